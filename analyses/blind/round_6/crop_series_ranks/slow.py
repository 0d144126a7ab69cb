"""Crop type from satellite time series: pixel-set encoder and temporal attention, two gloo ranks."""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--parcels", type=int, default=1200)
    p.add_argument("--dates", type=int, default=24)
    p.add_argument("--bands", type=int, default=10)
    p.add_argument("--pixels", type=int, default=48, help="pixels of a parcel in the archive")
    p.add_argument("--set-size", type=int, default=32, help="pixels drawn for a step")
    p.add_argument("--crops", type=int, default=8)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--batch", type=int, default=24)
    p.add_argument("--steps", type=int, default=90)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=9)
    return p.parse_args()


def archive(a):
    rng = np.random.default_rng(a.seed)
    crop = rng.integers(0, a.crops, a.parcels)
    day = np.linspace(0, 1, a.dates)
    peak, sharp = np.linspace(0.3, 0.8, a.crops)[crop], rng.uniform(20, 40, a.parcels)
    curve = np.exp(-sharp[:, None] * (day[None] - peak[:, None] - rng.normal(0, 0.03, (a.parcels, 1))) ** 2)
    tint = rng.normal(size=(a.crops, a.bands))[crop]
    x = curve[:, :, None, None] * tint[:, None, :, None]
    x = x + 0.3 * rng.standard_normal((a.parcels, a.dates, a.bands, a.pixels), dtype=np.float32)
    return x.astype(np.float32), crop


class PixelSet(nn.Module):
    def __init__(self, bands, width):
        super().__init__()
        self.point = nn.Sequential(
            nn.Linear(bands, width), nn.LayerNorm(width), nn.ReLU(),
            nn.Linear(width, width), nn.LayerNorm(width), nn.ReLU(),
        )
        self.merge = nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.point(x)
        return self.merge(torch.cat([h.mean(-2), h.std(-2)], -1))


class CropNet(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.pixels = PixelSet(a.bands, a.width)
        self.when = nn.Parameter(0.02 * torch.randn(a.dates, a.width))
        layer = nn.TransformerEncoderLayer(a.width, 4, 4 * a.width, dropout=0.0, batch_first=True, norm_first=True)
        self.time = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(a.width), nn.Linear(a.width, a.crops))

    def forward(self, x):
        return self.head(self.time(self.pixels(x) + self.when).mean(1))


class Feeder:
    def __init__(self, a, rank, world):
        self.x, self.y = archive(a)
        self.a = a
        self.mine = np.arange(rank, a.parcels, world)
        self.rng = np.random.default_rng(a.seed + rank)

    def next(self):
        xs, ys = [], []
        for _ in range(self.a.batch):
            i = self.rng.choice(self.mine)
            px = self.rng.choice(self.a.pixels, self.a.set_size, replace=False)
            xs.append(torch.from_numpy(self.x[i][:, :, px]).transpose(1, 2))
            ys.append(int(self.y[i]))
        return torch.stack(xs), torch.tensor(ys)


def run(rank, world, a, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=rendezvous, rank=rank, world_size=world)
    torch.manual_seed(a.seed)
    feed = Feeder(a, rank, world)
    model = DDP(CropNet(a))
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, fused=True)
    loss_fn = nn.CrossEntropyLoss()
    history = []

    def step():
        x, y = feed.next()
        out = model(x)
        loss = loss_fn(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach(), (out.argmax(1) == y).float().mean()

    for _ in range(3):
        step()
    dist.barrier()
    start = time.perf_counter()
    for n in range(1, a.steps + 1):
        loss, hit = step()
        dist.barrier()
        mean_loss = loss.clone()
        dist.all_reduce(mean_loss)
        hits = [torch.zeros_like(hit) for _ in range(world)]
        dist.all_gather(hits, hit)
        history.append((mean_loss.item() / world, sum(h.item() for h in hits) / world))
        if n % 10 == 0 and rank == 0:
            print(f"step {n} loss {history[-1][0]:.4f} accuracy {history[-1][1]:.3f}", flush=True)
    dist.barrier()
    loop = time.perf_counter() - start
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (loop, a.steps), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    args = arguments()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as d:
        mp.spawn(run, args=(2, args, f"file://{d}/store"), nprocs=2)
