"""Pitch of a singing voice from raw frames: fixed log-frequency spectrum, small network on top, two processes."""
import argparse
import math
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

RATE = 16000
FRAME = 4096
BINS = 384
NOTES = 60


class LogSpectrum(nn.Module):
    """Magnitudes at BINS logarithmically spaced frequencies, by a fixed bank of windowed sines and cosines."""

    def __init__(self, low=55.0, per_octave=48):
        super().__init__()
        freq = low * 2 ** (torch.arange(BINS) / per_octave)
        t = (torch.arange(FRAME) - FRAME / 2) / RATE
        width = (24.0 / freq).clamp(max=FRAME / RATE)
        window = torch.exp(-0.5 * (t[None] / (0.2 * width[:, None])) ** 2)
        window = window / window.sum(1, keepdim=True)
        phase = 2 * math.pi * freq[:, None] * t[None]
        self.register_buffer("bank", torch.cat([phase.cos() * window, phase.sin() * window]).t().contiguous())

    def forward(self, frames):
        re, im = (frames @ self.bank).chunk(2, 1)
        return torch.log1p(50 * (re * re + im * im).sqrt())


class PitchNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.spectrum = LogSpectrum()
        self.convs = nn.Sequential(
            nn.Conv1d(1, width, 15, stride=2, padding=7), nn.GELU(),
            nn.Conv1d(width, 2 * width, 9, stride=2, padding=4), nn.GELU(),
            nn.Conv1d(2 * width, 2 * width, 9, stride=2, padding=4), nn.GELU())
        self.head = nn.Sequential(nn.Linear(2 * width * BINS // 8, 128), nn.GELU(), nn.Linear(128, NOTES))

    def forward(self, frames):
        with torch.no_grad():
            s = self.spectrum(frames)
            s = (s - s.mean(1, keepdim=True)) / (s.std(1, keepdim=True) + 1e-4)
        return self.head(self.convs(s[:, None]).flatten(1))


def sing(n, seed):
    """Frames of harmonic tones with vibrato and breath noise; the class is the semitone."""
    g = torch.Generator().manual_seed(seed)
    note = torch.randint(0, NOTES, (n,), generator=g)
    f0 = 65.0 * 2 ** ((note + 0.3 * torch.randn(n, generator=g).clamp(-1, 1)) / 12)
    t = torch.arange(FRAME) / RATE
    depth = 0.004 * torch.rand(n, 1, generator=g)
    vibrato = depth * torch.sin(2 * math.pi * 5.5 * t + 6.28 * torch.rand(n, 1, generator=g))
    phase = 2 * math.pi * f0[:, None] * (t + vibrato / 6)
    x = torch.zeros(n, FRAME)
    for h in range(1, 7):
        amp = torch.rand(n, 1, generator=g) / h * ((f0 * h) < RATE / 2)[:, None]
        x += amp * torch.sin(h * phase + 6.28 * torch.rand(n, 1, generator=g))
    return x / x.abs().amax(1, keepdim=True), note


def worker(rank, world, store, args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    torch.manual_seed(args.seed)
    frames, notes = sing(args.frames, args.seed + rank)
    model = DDP(PitchNet())
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    g = torch.Generator().manual_seed(100 + rank)

    hits = torch.zeros(())
    seen = 0
    dist.barrier()
    start = time.perf_counter()
    for step in range(1, args.steps + 1):
        rows = torch.randint(0, len(frames), (args.batch,), generator=g)
        gain = torch.empty(args.batch, 1).uniform_(0.3, 1.0, generator=g)
        x = gain * frames[rows]
        x.add_(torch.randn(x.shape, generator=g), alpha=0.02)
        logits = model(x)
        loss = F.cross_entropy(logits, notes[rows], label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        hits += (logits.argmax(1) == notes[rows]).sum()
        seen += args.batch
        if step % 40 == 0:
            dist.all_reduce(hits)
            if rank == 0:
                print(f"step {step} loss {loss.item():.3f} accuracy {hits.item() / (seen * world):.3f}",
                      flush=True)
            hits.zero_()
            seen = 0
    dist.barrier()
    seconds = time.perf_counter() - start
    if rank == 0:
        print(f"loop_s={seconds:.3f} steps={args.steps}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=260)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--frames", type=int, default=800)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=9)
    args = ap.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(worker, args=(2, os.path.join(tmp, "store"), args), nprocs=2)
