# Seismic phase picker (P / S / noise per patch) on three-component windows. Two ranks over gloo.
import argparse
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

PATCH, LENGTH = 20, 2400


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=90)
    p.add_argument("--batch", type=int, default=16, help="per rank")
    p.add_argument("--eval-every", type=int, default=15)
    p.add_argument("--train-size", type=int, default=1600)
    p.add_argument("--dev-size", type=int, default=384)
    p.add_argument("--width", type=int, default=160)
    p.add_argument("--depth", type=int, default=3)
    p.add_argument("--lr", type=float, default=7e-4)
    p.add_argument("--port", type=int, default=29655)
    return p.parse_args()


def make_events(n, seed):
    """Waveforms with a P and a later S arrival; labels per patch: 0 noise, 1 P, 2 S."""
    rng = np.random.default_rng(seed)
    t = np.arange(LENGTH, dtype=np.float32)
    p = rng.uniform(200, 1200, size=n).astype(np.float32)
    s = p + rng.uniform(150, 900, size=n).astype(np.float32)
    x = rng.normal(0, 0.3, size=(n, 3, LENGTH)).astype(np.float32)
    for arr, amp, f in ((p, (0.4, 0.4, 1.0), 0.45), (s, (1.3, 1.3, 0.5), 0.21)):
        dt = t[None] - arr[:, None]
        w = np.where(dt > 0, np.exp(-np.maximum(dt, 0) / 180) * np.sin(f * dt), 0).astype(np.float32)
        x += np.asarray(amp, np.float32)[None, :, None] * w[:, None] * rng.uniform(0.5, 1.5, (n, 1, 1)).astype(np.float32)
    y = np.zeros((n, LENGTH // PATCH), dtype=np.int64)
    rows = np.arange(n)
    y[rows, (s // PATCH).astype(int)] = 2
    y[rows, (p // PATCH).astype(int)] = 1
    x /= x.std(axis=(1, 2), keepdims=True)
    return torch.from_numpy(x), torch.from_numpy(y)


class Block(nn.Module):
    def __init__(self, d, heads=4):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.n2(x))


class Picker(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.embed = nn.Linear(3 * PATCH, width)
        self.pos = nn.Parameter(torch.randn(LENGTH // PATCH, width) * 0.02)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3))

    def forward(self, x):
        b = x.shape[0]
        x = x.view(b, 3, -1, PATCH).permute(0, 2, 1, 3).reshape(b, -1, 3 * PATCH)
        return self.head(self.blocks(self.embed(x) + self.pos))


class PickScore:
    """Hit rate of the P and S picks (within one patch) and mean error in patches."""

    def __init__(self):
        self.sums = torch.zeros(5, dtype=torch.float64)

    def update(self, logits, y):
        for k, phase in enumerate((1, 2)):
            guess = logits[..., phase].argmax(1)
            err = (guess - y.eq(phase).int().argmax(1)).abs()
            self.sums[2 * k] += (err <= 1).sum()
            self.sums[2 * k + 1] += err.sum()
        self.sums[4] += len(y)

    def result(self):
        n = self.sums[4].item()
        p, pe, s, se = (self.sums[:4] / n).tolist()
        return f"P hit {p:.3f} err {pe:.1f} | S hit {s:.3f} err {se:.1f} | n {n:.0f}"


@torch.no_grad()
def evaluate(net, x, y, batch=32):
    net.eval()
    score = PickScore()
    for xb, yb in zip(x.split(batch), y.split(batch)):
        score.update(net(xb), yb)
    net.train()
    return score


def main(rank, world, args):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(args.port)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    x, y = make_events(args.train_size, seed=10)
    dev_x, dev_y = make_events(args.dev_size, seed=11)
    x, y = x[rank::world], y[rank::world]

    net = Picker(args.width, args.depth)
    ddp = DistributedDataParallel(net)
    opt = torch.optim.AdamW(ddp.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    weight = torch.tensor([0.1, 1.0, 1.0])
    gen = torch.Generator().manual_seed(rank)

    order = torch.randperm(len(x), generator=gen)
    at, total = 0, 0.0
    dist.barrier()
    start = time.perf_counter()
    for step in range(1, args.steps + 1):
        if at + args.batch > len(order):
            order, at = torch.randperm(len(x), generator=gen), 0
        idx = order[at:at + args.batch]
        at += args.batch
        loss = nn.functional.cross_entropy(ddp(x[idx]).flatten(0, 1), y[idx].flatten(), weight=weight)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
        if step % args.eval_every == 0:
            score = evaluate(net, dev_x[rank::world], dev_y[rank::world])
            dist.all_reduce(score.sums)
            if rank == 0:
                print(f"step {step} loss {total / args.eval_every:.4f} {score.result()}", flush=True)
            total = 0.0
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (time.perf_counter() - start, args.steps), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(main, args=(2, parse()), nprocs=2)
