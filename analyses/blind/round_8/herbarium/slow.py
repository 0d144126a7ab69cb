"""Plant species from image features, long-tailed classes, two processes (gloo, DDP)."""
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

CONF = dict(
    world=2,
    species=1400,
    feature=512,
    hidden=768,
    samples=24000,
    batch=320,
    steps=150,
    log_every=20,
    lr=1e-3,
    seed=33,
)


def make_features(conf):
    g = torch.Generator().manual_seed(conf["seed"])
    freq = 1.0 / torch.arange(1, conf["species"] + 1).float() ** 0.9
    labels = torch.multinomial(freq, conf["samples"], replacement=True, generator=g)
    centres = torch.randn(conf["species"], conf["feature"], generator=g)
    feats = centres[labels] + 2.0 * torch.randn(conf["samples"], conf["feature"], generator=g)
    return feats, labels, freq.log()


class Head(nn.Module):
    def __init__(self, conf):
        super().__init__()
        h = conf["hidden"]
        self.body = nn.Sequential(
            nn.Linear(conf["feature"], h), nn.LayerNorm(h), nn.GELU(),
            nn.Linear(h, h), nn.LayerNorm(h), nn.GELU(),
            nn.Linear(h, conf["species"]))

    def forward(self, x):
        return self.body(x)


class ConfusionMatrix:
    """Counts of (species, prediction) over both processes since the last reset."""

    def __init__(self, n):
        self.n = n
        self.counts = torch.zeros(n, n)

    def update(self, target, pred):
        cells = target * self.n + pred
        fresh = torch.zeros_like(self.counts)
        fresh.view(-1).index_add_(0, cells, torch.ones(len(cells)))
        dist.all_reduce(fresh)
        self.counts += fresh

    def summary(self):
        total = self.counts
        hits, support = total.diagonal(), total.sum(1)
        seen = support > 0
        return (hits.sum() / support.sum()).item(), (hits[seen] / support[seen]).mean().item()

    def reset(self):
        self.counts.zero_()


class EpochShards:
    """The same permutation in all processes; each takes every world-th row."""

    def __init__(self, n, batch, rank, world, seed):
        self.n, self.batch, self.rank, self.world = n, batch, rank, world
        self.gen = torch.Generator().manual_seed(seed)

    def __iter__(self):
        while True:
            mine = torch.randperm(self.n, generator=self.gen)[self.rank::self.world]
            for rows in mine.split(self.batch):
                if len(rows) == self.batch:
                    yield rows


def worker(rank, conf, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=conf["world"])
    torch.manual_seed(conf["seed"])
    feats, labels, log_prior = make_features(conf)
    model = DistributedDataParallel(Head(conf))
    opt = torch.optim.AdamW(model.parameters(), lr=conf["lr"], fused=True)
    confusion = ConfusionMatrix(conf["species"])
    shards = iter(EpochShards(conf["samples"], conf["batch"], rank, conf["world"], conf["seed"]))

    for _ in range(2):
        rows = next(shards)
        F.cross_entropy(model(feats[rows]), labels[rows]).backward()
        opt.zero_grad(set_to_none=True)

    dist.barrier()
    t0 = time.perf_counter()
    for step in range(1, conf["steps"] + 1):
        rows = next(shards)
        x, y = feats[rows], labels[rows]
        logits = model(x)
        loss = F.cross_entropy(logits + log_prior, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        confusion.update(y, logits.detach().argmax(1))
        if step % conf["log_every"] == 0:
            micro, macro = confusion.summary()
            confusion.reset()
            if rank == 0:
                print(f"step {step:4d} loss {loss.item():.3f} micro {micro:.4f} macro {macro:.4f}", flush=True)
    dist.barrier()
    seconds = time.perf_counter() - t0
    dist.destroy_process_group()
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (seconds, conf["steps"]), flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    mp.spawn(worker, args=(CONF, free_port()), nprocs=CONF["world"])
