"""Data-parallel (gloo, two ranks) texture classifier trained at the images' own resolutions."""
import argparse
import os
import socket
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

SIZES = (24, 36, 48, 64, 80)


def make_images(n_per_size, seed):
    """Gratings of six orientations, in five resolutions, stored as uint8."""
    rng = np.random.default_rng(seed)
    images, labels = [], []
    for size in SIZES:
        yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
        for _ in range(n_per_size):
            k = int(rng.integers(0, 6))
            ang = np.pi * (k + rng.uniform(-0.3, 0.3)) / 6
            wave = np.sin((xx * np.cos(ang) + yy * np.sin(ang)) * rng.uniform(0.5, 1.2) + rng.uniform(0, 6.28))
            img = 128 + 50 * wave[None] + 40 * rng.normal(size=(3, size, size))
            images.append(torch.from_numpy(img.clip(0, 255).astype(np.uint8)))
            labels.append(k)
    return images, torch.tensor(labels)


class ResolutionBatches:
    """Batches of equal-sized images for one rank."""

    def __init__(self, images, labels, batch_size, rank, world, seed):
        self.images, self.labels = images, labels
        self.rank, self.world, self.seed = rank, world, seed
        order = sorted(range(len(images)), key=lambda i: images[i].shape[-1])
        batches = []
        for size in SIZES:
            same = [i for i in order if images[i].shape[-1] == size]
            batches += [same[i:i + batch_size] for i in range(0, len(same) - batch_size + 1, batch_size)]
        self.mine = batches[rank:len(batches) - len(batches) % world:world]

    def __len__(self):
        return len(self.mine)

    def epoch(self, number):
        g = torch.Generator().manual_seed(self.seed + number)
        for j in torch.randperm(len(self.mine), generator=g).tolist():
            idx = self.mine[j]
            x = torch.stack([self.images[i] for i in idx]).float().div_(127.5).sub_(1)
            yield x.contiguous(memory_format=torch.channels_last), self.labels[idx]


class Residual(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.c1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.n1 = nn.GroupNorm(4, o)
        self.c2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.n2 = nn.GroupNorm(4, o)
        self.skip = nn.Conv2d(i, o, 1, stride, bias=False)

    def forward(self, x):
        y = F.relu(self.n1(self.c1(x)))
        return F.relu(self.n2(self.c2(y)) + self.skip(x))


def build(width):
    return nn.Sequential(nn.Conv2d(3, width, 5, 2, 2), nn.ReLU(), Residual(width, 2 * width, 1),
                         Residual(2 * width, 4 * width, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(4 * width, 6))


def worker(rank, world, port, args):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    images, labels = make_images(args.per_size, args.seed)
    data = ResolutionBatches(images, labels, args.batch_size, rank, world, args.seed)
    model = DDP(build(args.width).to(memory_format=torch.channels_last), gradient_as_bucket_view=True)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)

    dist.barrier()
    t0, step = time.perf_counter(), 0
    for epoch in range(args.epochs):
        stats = torch.zeros(3)
        for x, y in data.epoch(epoch):
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            stats += torch.stack([loss.detach(), (logits.argmax(1) == y).float().mean(), torch.ones(())])
            step += 1
        dist.all_reduce(stats)
        if rank == 0:
            print(f"epoch {epoch}: loss {stats[0] / stats[2]:.4f} acc {stats[1] / stats[2]:.3f}", flush=True)
    loop_s = time.perf_counter() - t0
    dist.barrier()
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (loop_s, step), flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--per-size", type=int, default=160)
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--width", type=int, default=16)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=6)
    cli = p.parse_args()
    mp.spawn(worker, args=(2, free_port(), cli), nprocs=2, join=True)
