"""Cocktail-party separation: four talkers from one microphone, TasNet-style mask network, PIT loss."""
import itertools
import time
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn

cfg = SimpleNamespace(
    speakers=4, rate=8000, seconds=2.0, basis=96, win=40, hop=40, hidden=160, layers=1,
    batch=4, steps=64, lr=1e-3, clip=5.0, log=16, seed=21, pool=64)


class TalkerPool:
    """Harmonic 'voices' with their own pitch contour and syllable rhythm."""

    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        n = int(cfg.rate * cfg.seconds)
        t = np.arange(n) / cfg.rate
        self.voices = np.zeros((cfg.pool, n), dtype=np.float32)
        for i in range(cfg.pool):
            f0 = rng.uniform(80, 260) * (1 + 0.1 * np.sin(2 * np.pi * rng.uniform(0.3, 2) * t + rng.uniform(0, 6)))
            ph = 2 * np.pi * np.cumsum(f0) / cfg.rate
            tilt = rng.uniform(0.5, 1.5)
            v = sum(np.sin(h * ph) / h ** tilt for h in range(1, 12))
            gate = np.clip(np.sin(2 * np.pi * rng.uniform(2, 5) * t + rng.uniform(0, 6)), 0, None)
            v = v * gate + rng.normal(0, 0.01, size=n)
            self.voices[i] = v / np.abs(v).max()
        self.voices = torch.from_numpy(self.voices)
        self.gen = torch.Generator().manual_seed(cfg.seed)

    def batch(self, b, k):
        pick = torch.stack([torch.randperm(len(self.voices), generator=self.gen)[:k] for _ in range(b)])
        gain = 10 ** (torch.rand(b, k, 1, generator=self.gen) * 0.5 - 0.25)
        src = self.voices[pick] * gain
        return src.sum(1), src


class Separator(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.encoder = nn.Linear(cfg.win, cfg.basis, bias=False)
        self.norm = nn.LayerNorm(cfg.basis)
        self.rnn = nn.GRU(cfg.basis, cfg.hidden, cfg.layers, batch_first=True, bidirectional=True)
        self.mask = nn.Linear(2 * cfg.hidden, cfg.speakers * cfg.basis)
        self.decoder = nn.Linear(cfg.basis, cfg.win, bias=False)

    def forward(self, mix):
        b, n = mix.shape
        frames = mix.view(b, n // self.cfg.hop, self.cfg.win)
        h = torch.relu(self.encoder(frames))
        r, _ = self.rnn(self.norm(h))
        m = torch.sigmoid(self.mask(r)).view(b, -1, self.cfg.speakers, self.cfg.basis)
        out = self.decoder(m * h.unsqueeze(2))               # b, frames, speakers, win
        return out.permute(0, 2, 1, 3).reshape(b, self.cfg.speakers, n)


def si_sdr(est, ref, eps=1e-8):
    """Scale-invariant SDR in dB over the last axis."""
    est = est - est.mean(-1, keepdim=True)
    ref = ref - ref.mean(-1, keepdim=True)
    scale = (est * ref).sum(-1, keepdim=True) / (ref.square().sum(-1, keepdim=True) + eps)
    target = scale * ref
    noise = est - target
    return 10 * torch.log10((target.square().sum(-1) + eps) / (noise.square().sum(-1) + eps))


class PITLoss(nn.Module):
    """Negative SI-SDR under the best assignment of outputs to talkers."""

    def __init__(self, speakers):
        super().__init__()
        self.register_buffer("perms", torch.tensor(list(itertools.permutations(range(speakers)))))
        self.register_buffer("rows", torch.arange(speakers))

    def pairwise(self, est, ref, eps=1e-8):
        est = est - est.mean(-1, keepdim=True)
        ref = ref - ref.mean(-1, keepdim=True)
        dot = est @ ref.transpose(1, 2)                      # b, outputs, talkers
        target = dot.square() / (ref.square().sum(-1).unsqueeze(1) + eps)
        noise = (est.square().sum(-1).unsqueeze(2) - target).clamp_min(0)
        return 10 * torch.log10((target + eps) / (noise + eps))

    def forward(self, est, ref):
        sdr = self.pairwise(est, ref)
        scores = sdr[:, self.rows, self.perms].mean(-1)
        return -scores.max(1).values.mean()


def baseline_db(mix, src):
    return si_sdr(mix.unsqueeze(1).expand_as(src), src).mean().item()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    pool = TalkerPool(cfg)
    net, criterion = Separator(cfg), PITLoss(cfg.speakers)
    optim = torch.optim.Adam(net.parameters(), lr=cfg.lr, fused=True)
    n_par = sum(p.numel() for p in net.parameters())
    mix, src = pool.batch(cfg.batch, cfg.speakers)
    print(f"{n_par / 1e6:.2f} M parameters, mixture SI-SDR {baseline_db(mix, src):.2f} dB")

    net(mix)  # allocate
    hist = []
    tic = time.perf_counter()
    for step in range(cfg.steps):
        mix, src = pool.batch(cfg.batch, cfg.speakers)
        est = net(mix)
        loss = criterion(est, src)
        optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), cfg.clip)
        optim.step()
        hist.append(-loss.item())
        if (step + 1) % cfg.log == 0:
            print(f"step {step + 1:4d}  SI-SDR {np.mean(hist[-cfg.log:]):6.2f} dB", flush=True)
    toc = time.perf_counter()
    print("loop_s=%.3f steps=%d" % (toc - tic, cfg.steps))


main()
