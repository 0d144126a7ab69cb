"""Which compound made this mass spectrum?  Two ranks, DistributedDataParallel over gloo.

Binned spectra go through a residual MLP to a closed library of compounds.  Besides the loss we follow
macro recall and the pairs of compounds that are taken for one another, from a confusion matrix.
"""
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

CFG = {
    "ranks": 2,
    "compounds": 1400,
    "bins": 800,
    "peaks": 24,
    "width": 320,
    "blocks": 3,
    "batch": 256,          # on each rank
    "steps": 180,
    "log_every": 45,
    "lr": 2e-3,
    "seed": 21,
}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def build_library(cfg):
    g = torch.Generator().manual_seed(cfg["seed"])
    where = torch.randint(0, cfg["bins"], (cfg["compounds"], cfg["peaks"]), generator=g)
    height = torch.rand(cfg["compounds"], cfg["peaks"], generator=g) ** 2 + 0.02
    return where, height


def draw_batch(cfg, library, gen):
    where, height = library
    y = torch.randint(0, cfg["compounds"], (cfg["batch"],), generator=gen)
    h = height[y] * (0.6 + 0.8 * torch.rand(cfg["batch"], cfg["peaks"], generator=gen))
    keep = torch.rand(h.shape, generator=gen) > 0.3
    x = torch.zeros(cfg["batch"], cfg["bins"])
    x.scatter_add_(1, where[y], h * keep)
    noise = torch.randint(0, cfg["bins"], (cfg["batch"], 40), generator=gen)
    x.scatter_add_(1, noise, 0.1 * torch.rand(cfg["batch"], 40, generator=gen))
    return x.sqrt(), y


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def build_model(cfg):
    w = cfg["width"]
    return nn.Sequential(nn.Linear(cfg["bins"], w), *[Residual(w) for _ in range(cfg["blocks"])],
                         nn.LayerNorm(w), nn.Linear(w, cfg["compounds"]))


class Confusion:
    """Rows: truth, columns: prediction, over all ranks."""

    def __init__(self, n):
        self.n = n
        self.counts = torch.zeros(n, n, dtype=torch.long)

    def update(self, logits, y):
        self.counts.index_put_((y, logits.argmax(1)), torch.ones_like(y), accumulate=True)

    def compute(self):
        counts = self.counts.clone()
        dist.all_reduce(counts)
        hit = counts.diagonal()
        total = counts.sum(1)
        recall = (hit / total.clamp(min=1))[total > 0].mean().item()
        off = counts - torch.diag(hit)
        worst = off.flatten().argmax().item()
        return recall, (worst // self.n, worst % self.n, int(off.max().item()))

    def reset(self):
        self.counts.zero_()


def worker(rank, cfg, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=cfg["ranks"])
    torch.set_num_threads(1)
    torch.manual_seed(cfg["seed"])
    gen = torch.Generator().manual_seed(1000 + rank)
    library = build_library(cfg)
    model = DDP(build_model(cfg))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=1e-3, fused=True)
    confusion = Confusion(cfg["compounds"])

    def train_step():
        x, y = draw_batch(cfg, library, gen)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach(), logits.detach(), y

    for _ in range(3):
        train_step()
    dist.barrier()
    t0 = time.perf_counter()
    for step in range(1, cfg["steps"] + 1):
        loss, logits, y = train_step()
        confusion.update(logits, y)
        if step % cfg["log_every"] == 0:
            recall, (a, b, times) = confusion.compute()
            confusion.reset()
            if rank == 0:
                print(f"step {step}: loss {loss.item():.3f}, macro recall {recall:.3f}, "
                      f"compound {a} taken for {b} {times} times", flush=True)
    dist.barrier()
    wall = time.perf_counter() - t0
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (wall, cfg["steps"]), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(CFG, free_port()), nprocs=CFG["ranks"])
