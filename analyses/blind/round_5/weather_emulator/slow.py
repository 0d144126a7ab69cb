"""Data-parallel training of a global weather emulator (two gloo ranks).

The network predicts the next-step anomaly of a few surface fields on a lat/lon grid.
"""
import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

WORLD = 2


def synthetic_climatology(days, fields, nlat, nlon):
    lat = torch.linspace(-1, 1, nlat)[None, None, :, None]
    lon = torch.linspace(0, 2 * torch.pi, nlon)[None, None, None, :]
    day = torch.arange(days)[:, None, None, None] * (2 * torch.pi / days)
    k = torch.arange(1, fields + 1)[None, :, None, None].float()
    return (1 - lat ** 2) * torch.cos(k * lon) + 0.5 * lat * torch.sin(day + k) + 0 * lon


class PeriodicConv(nn.Module):
    """3x3 convolution, periodic in longitude and replicated at the poles."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, 3)

    def forward(self, x):
        x = F.pad(x, (1, 1, 0, 0), mode="circular")
        x = F.pad(x, (0, 0, 1, 1), mode="replicate")
        return self.conv(x)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.a = PeriodicConv(width, width)
        self.b = PeriodicConv(width, width)

    def forward(self, x):
        return x + self.b(F.gelu(self.a(self.norm(x))))


class Emulator(nn.Module):
    def __init__(self, climatology, width, depth):
        super().__init__()
        fields, nlat = climatology.shape[1], climatology.shape[2]
        lat = torch.linspace(-torch.pi / 2, torch.pi / 2, nlat)
        self.register_buffer("climatology", climatology)
        self.register_buffer("area", (torch.cos(lat) / torch.cos(lat).mean())[:, None])
        self.inp = PeriodicConv(2 * fields, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.out = nn.Conv2d(width, fields, 1)
        nn.init.zeros_(self.out.weight)

    def forward(self, state, day):
        clim = self.climatology[day]
        x = torch.cat([state - clim, clim], 1)
        step = self.out(self.blocks(self.inp(x)))
        after = self.climatology[(day + 1) % self.climatology.shape[0]]
        return after + (state - clim) + step

    def error(self, prediction, truth):
        return ((prediction - truth).square() * self.area).mean()


class Atmosphere:
    """Advected, damped random anomalies on top of the climatology."""

    def __init__(self, climatology, seed):
        self.clim = climatology
        self.gen = torch.Generator().manual_seed(seed)

    def batch(self, n):
        days, fields, nlat, nlon = self.clim.shape
        day = torch.randint(days, (n,), generator=self.gen)
        coarse = torch.randn(n, fields, nlat // 4, nlon // 4, generator=self.gen)
        anomaly = F.interpolate(coarse, size=(nlat, nlon), mode="bilinear")
        moved = 0.9 * torch.roll(anomaly, 2, dims=-1) + 0.05 * anomaly.flip(1)
        return day, self.clim[day] + anomaly, self.clim[(day + 1) % days] + moved


def run(rank, port, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(port)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    climatology = synthetic_climatology(366, args.fields, args.nlat, args.nlon)
    net = Emulator(climatology, args.width, args.depth)
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr,
                                                    total_steps=args.steps + args.warm)
    source = Atmosphere(climatology, args.seed + 10 * (rank + 1))
    check = Atmosphere(climatology, args.seed + 5 + rank).batch(8)

    def step():
        day, now, then = source.batch(args.batch)
        loss = net.error(model(now, day), then)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        return loss.detach()

    for _ in range(args.warm):
        step()
    dist.barrier()
    begin = time.perf_counter()
    for i in range(1, args.steps + 1):
        loss = step()
        if i % args.eval_every == 0:
            with torch.no_grad():
                score = net.error(net(check[1], check[0]), check[2])
            dist.all_reduce(score)
            if rank == 0:
                print(f"step {i:4d} loss {loss.item():.4f} held-out {score.item() / WORLD:.4f}",
                      flush=True)
    dist.barrier()
    elapsed = time.perf_counter() - begin
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (elapsed, args.steps), flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fields", type=int, default=6)
    parser.add_argument("--nlat", type=int, default=32)
    parser.add_argument("--nlon", type=int, default=64)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--warm", type=int, default=3)
    parser.add_argument("--eval-every", type=int, default=60)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    mp.spawn(run, args=(free_port(), args), nprocs=WORLD)


if __name__ == "__main__":
    main()
