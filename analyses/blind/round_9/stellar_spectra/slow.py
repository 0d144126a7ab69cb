"""Stellar labels and a denoised spectrum from two-arm survey spectra; two ranks with DDP on gloo.

The decoder writes the star's spectrum at infinite resolution; the line spread function of each arm
(a full matrix, as calibrated from arc lamps) takes it to what the detector sees.
"""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def line_spread(n_pix, low, high):
    """Rows are the response of a detector pixel, the width grows along the arm."""
    pix = np.arange(n_pix)
    width = np.linspace(low, high, n_pix)[:, None]
    core = np.exp(-0.5 * ((pix[None] - pix[:, None]) / width) ** 2)
    wings = 0.02 / (1 + ((pix[None] - pix[:, None]) / (6 * width)) ** 2)
    m = core + wings
    return torch.from_numpy((m / m.sum(1, keepdims=True)).astype(np.float32))


def make_spectra(n, n_pix, seed):
    rng = np.random.default_rng(seed)
    labels = rng.uniform(-1, 1, (n, 3)).astype(np.float32)
    lines = np.random.default_rng(99)
    centres = lines.integers(0, 2 * n_pix, 80)
    slopes = lines.normal(0, 0.5, (80, 3)).astype(np.float32)
    depth = 1 / (1 + np.exp(-(labels @ slopes.T))) * 0.5
    pix = np.arange(2 * n_pix)
    shape = np.exp(-0.5 * ((pix[None] - centres[:, None]) / 4.0) ** 2).astype(np.float32)
    flux = 1 - depth.astype(np.float32) @ shape
    flux += 0.03 * rng.standard_normal(flux.shape, dtype=np.float32)
    return torch.from_numpy(flux.astype(np.float32)), torch.from_numpy(labels)


class SpectrumNet(nn.Module):
    def __init__(self, n_pix, latent=24):
        super().__init__()
        self.n_pix = n_pix
        self.register_buffer("lsf_blue", line_spread(n_pix, 1.2, 2.0))
        self.register_buffer("lsf_red", line_spread(n_pix, 1.5, 3.0))
        self.encoder = nn.Sequential(
            nn.Conv1d(2, 24, 9, stride=4, padding=4), nn.GELU(),
            nn.Conv1d(24, 32, 9, stride=4, padding=4), nn.GELU(),
            nn.Conv1d(32, 32, 9, stride=4, padding=4), nn.GELU(),
            nn.Flatten(), nn.Linear(32 * n_pix // 64, latent))
        self.labels = nn.Sequential(nn.Linear(latent, 48), nn.GELU(), nn.Linear(48, 3))
        self.decoder = nn.Sequential(
            nn.Linear(latent, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 2 * n_pix))

    def forward(self, flux):
        code = self.encoder(flux.view(-1, 2, self.n_pix) - 1)
        rest = self.decoder(code)
        blue = F.linear(rest[:, : self.n_pix], self.lsf_blue)
        red = F.linear(rest[:, self.n_pix:], self.lsf_red)
        return self.labels(code), 1 + torch.cat([blue, red], 1)


@torch.no_grad()
def validate(net, flux, labels, rank, world):
    """Each rank takes its share; the sums are put together."""
    sums = torch.zeros(2)
    for idx in torch.arange(rank, len(flux), world).split(64):
        guess, model = net(flux[idx])
        sums[0] += (guess - labels[idx]).abs().mean(1).sum()
        sums[1] += (model - flux[idx]).pow(2).mean(1).sum()
    dist.all_reduce(sums)
    return (sums / len(flux)).tolist()


def worker(rank, args, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=args.world)
    torch.manual_seed(args.seed)
    flux, labels = make_spectra(args.stars, args.pixels, args.seed)
    val_flux, val_labels = make_spectra(256, args.pixels, args.seed + 1)
    net = SpectrumNet(args.pixels)
    ddp = DDP(net)
    opt = torch.optim.AdamW(ddp.parameters(), lr=args.lr)
    order = torch.Generator().manual_seed(args.seed)

    dist.barrier()
    start = time.perf_counter()
    steps = 0
    for epoch in range(args.epochs):
        ddp.train()
        perm = torch.randperm(len(flux), generator=order)[rank::args.world]
        total = torch.zeros(())
        batches = perm.split(args.batch)
        for idx in batches:
            guess, model = ddp(flux[idx])
            loss = F.smooth_l1_loss(guess, labels[idx]) + 5 * F.mse_loss(model, flux[idx])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            total += loss.detach()
            steps += 1
        net.eval()
        mae, chi = validate(net, val_flux, val_labels, rank, args.world)
        if rank == 0:
            print(f"epoch {epoch} loss {total.item() / len(batches):.4f} label mae {mae:.4f} mse {chi:.5f}", flush=True)
    dist.barrier()
    if rank == 0:
        print(f"loop_s={time.perf_counter() - start:.3f} steps={steps}", flush=True)
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--stars", type=int, default=2560)
    ap.add_argument("--pixels", type=int, default=1536)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--world", type=int, default=2)
    ap.add_argument("--seed", type=int, default=4)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, args=(args, os.path.join(folder, "rdzv")), nprocs=args.world)


if __name__ == "__main__":
    main()
