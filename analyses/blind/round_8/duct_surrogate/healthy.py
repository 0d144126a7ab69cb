"""Surrogate of duct flow: from a wall profile to pressure along the duct.

Every design was solved twice, on a fine and on a coarse grid. Two gloo processes share a batch;
gradients are summed by hand over one flat buffer.
"""
import argparse
import os
import tempfile
import time
from collections import defaultdict

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

GRIDS = {"fine": 768, "coarse": 192}


def solve(n_designs, seed):
    """A cheap stand-in for the solver: wall profile, width and pressure on both grids."""
    g = torch.Generator().manual_seed(seed)
    amp = torch.randn(n_designs, 6, generator=g) * 0.12
    phase = torch.rand(n_designs, 6, generator=g) * 6.283
    inlet = 0.5 + torch.rand(n_designs, 1, generator=g)
    runs = []
    fields = {}
    for name, n in GRIDS.items():
        s = torch.linspace(0, 1, n)
        k = torch.arange(1, 7).float()
        wall = (amp.unsqueeze(2) * torch.sin(6.283 * k.view(1, 6, 1) * s + phase.unsqueeze(2))).sum(1)
        width = 1 + 0.5 * torch.tanh(wall)
        speed = inlet / width
        friction = torch.cumsum(speed ** 2 / width, 1) / n
        pressure = 0.5 * (inlet ** 2 - speed ** 2) - 0.3 * friction
        fields[name] = (torch.stack([wall, width, inlet.expand(-1, n), s.expand(n_designs, n)], 1), pressure)
    for d in range(n_designs):
        for name in GRIDS:
            x, y = fields[name]
            runs.append((name, x[d], y[d]))
    return runs


class ConvBlock(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.norm = nn.GroupNorm(1, ch)
        self.a = nn.Conv1d(ch, ch, 5, padding=2 * dilation, dilation=dilation)
        self.b = nn.Conv1d(ch, ch, 1)

    def forward(self, x):
        return x + self.b(F.gelu(self.a(self.norm(x))))


class Surrogate(nn.Module):
    def __init__(self, ch, depth):
        super().__init__()
        self.inp = nn.Conv1d(4, ch, 1)
        self.blocks = nn.Sequential(*[ConvBlock(ch, 2 ** (i % 4)) for i in range(depth)])
        self.out = nn.Conv1d(ch, 1, 1)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x))).squeeze(1)


class GradientSum:
    def __init__(self, params):
        self.params = list(params)
        self.flat = torch.zeros(sum(p.numel() for p in self.params))
        self.views = [v.view_as(p) for v, p in
                      zip(self.flat.split([p.numel() for p in self.params]), self.params)]
        for p, v in zip(self.params, self.views):
            p.grad = v

    def zero(self):
        self.flat.zero_()

    def __call__(self):
        dist.all_reduce(self.flat)


def accumulate(model, runs, rows, total):
    """Backward over the given runs, stacked by grid. Returns the share of the loss."""
    groups = defaultdict(list)
    for r in rows:
        groups[runs[r][0]].append(r)
    share = 0.0
    for members in groups.values():
        x = torch.stack([runs[r][1] for r in members])
        y = torch.stack([runs[r][2] for r in members])
        loss = (model(x) - y).square().mean(1).sum() / total
        loss.backward()
        share += loss.item()
    return share


def split_batch(designs, rank, world):
    """Runs of this process: the batch's runs are 2d (fine) and 2d + 1 (coarse) of every design d."""
    return [2 * d + k for d in designs[rank::world] for k in range(2)]


def worker(rank, args, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=args.world)
    torch.manual_seed(args.seed)
    runs = solve(args.designs, args.seed)
    model = Surrogate(args.channels, args.depth)
    grads = GradientSum(model.parameters())
    opt = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    order = torch.Generator().manual_seed(args.seed)

    accumulate(model, runs, split_batch(range(args.batch_designs), rank, args.world), 2 * args.batch_designs)
    grads()
    grads.zero()

    dist.barrier()
    start, step = time.perf_counter(), 0
    while step < args.steps:
        for designs in torch.randperm(args.designs, generator=order).split(args.batch_designs):
            rows = split_batch(designs.tolist(), rank, args.world)
            share = accumulate(model, runs, rows, 2 * args.batch_designs)
            grads()
            opt.step()
            grads.zero()
            step += 1
            if step % 20 == 0:
                loss = torch.tensor(share)
                dist.all_reduce(loss)
                if rank == 0:
                    print(f"step {step} mse {loss.item():.5f}", flush=True)
            if step == args.steps:
                break
    dist.barrier()
    seconds = time.perf_counter() - start
    dist.destroy_process_group()
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (seconds, step), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--world", type=int, default=2)
    p.add_argument("--designs", type=int, default=480)
    p.add_argument("--batch-designs", type=int, default=8)
    p.add_argument("--channels", type=int, default=64)
    p.add_argument("--depth", type=int, default=8)
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=8)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(worker, args=(args, os.path.join(tmp, "rendezvous")), nprocs=args.world)


if __name__ == "__main__":
    main()
