"""Geocoder: free-text postal address -> (lat, lon) cell and offset. Frozen word vectors, two DDP ranks (gloo)."""
import os
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


@dataclass
class Config:
    vocab: int = 90000
    vec_dim: int = 128
    dim: int = 192
    max_words: int = 12
    cells: int = 400
    n_train: int = 16000
    batch: int = 128          # per rank
    steps: int = 125
    lr: float = 1e-3
    seed: int = 5
    log_every: int = 25
    port: int = 29641


def load_vectors(cfg):
    """Stands for the fastText file: the vectors do not change in training."""
    g = torch.Generator().manual_seed(1234)
    v = torch.randn(cfg.vocab, cfg.vec_dim, generator=g) * 0.3
    v[0] = 0
    return v


def make_addresses(cfg, n, seed):
    rng = np.random.default_rng(seed)
    cell = rng.integers(0, cfg.cells, size=n)
    words = rng.zipf(1.3, size=(n, cfg.max_words)) % (cfg.vocab - cfg.cells * 20 - 1) + cfg.cells * 20 + 1
    for j in range(3):  # town, street and postcode words hang on the cell
        words[:, j] = 1 + cell * 20 + rng.integers(0, 20, size=n)
    length = rng.integers(6, cfg.max_words + 1, size=n)
    words[np.arange(cfg.max_words)[None] >= length[:, None]] = 0
    offset = rng.normal(0, 0.3, size=(n, 2)) + np.stack([np.sin(cell), np.cos(cell)], 1) * 0.5
    return (torch.from_numpy(words.astype(np.int64)), torch.from_numpy(cell.astype(np.int64)),
            torch.from_numpy(offset.astype(np.float32)))


class AddressEncoder(nn.Module):
    def __init__(self, cfg, vectors):
        super().__init__()
        self.register_buffer("vectors", vectors)
        self.proj = nn.Linear(cfg.vec_dim, cfg.dim)
        self.pos = nn.Parameter(torch.randn(cfg.max_words, cfg.dim) * 0.02)
        layer = nn.TransformerEncoderLayer(cfg.dim, 4, 3 * cfg.dim, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(cfg.dim)

    def forward(self, words):
        pad = words.eq(0)
        h = self.proj(F.embedding(words, self.vectors)) + self.pos
        h = self.norm(self.enc(h, src_key_padding_mask=pad))
        keep = (~pad).unsqueeze(-1).float()
        return (h * keep).sum(1) / keep.sum(1)


class Geocoder(nn.Module):
    def __init__(self, cfg, vectors):
        super().__init__()
        self.encoder = AddressEncoder(cfg, vectors)
        self.cell = nn.Linear(cfg.dim, cfg.cells)
        self.offset = nn.Sequential(nn.Linear(cfg.dim, 64), nn.GELU(), nn.Linear(64, 2))

    def forward(self, words):
        h = self.encoder(words)
        return self.cell(h), self.offset(h)


def lr_at(step, cfg, warm=20):
    return cfg.lr * min(1.0, (step + 1) / warm) * (1 - 0.9 * step / cfg.steps)


def worker(rank, world, cfg):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(cfg.port))
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    words, cell, offset = make_addresses(cfg, cfg.n_train, seed=0)
    model = DDP(Geocoder(cfg, load_vectors(cfg)))
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, fused=True)
    gen = torch.Generator().manual_seed(cfg.seed)
    stats = torch.zeros(3)

    dist.barrier()
    t0 = time.perf_counter()
    step = 0
    while step < cfg.steps:
        order = torch.randperm(cfg.n_train, generator=gen)
        for chunk in order.split(cfg.batch * world):
            if len(chunk) < cfg.batch * world or step == cfg.steps:
                break
            idx = chunk[rank * cfg.batch:(rank + 1) * cfg.batch]
            for g in opt.param_groups:
                g["lr"] = lr_at(step, cfg)
            logits, off = model(words[idx])
            loss_c = F.cross_entropy(logits, cell[idx])
            loss_o = F.smooth_l1_loss(off, offset[idx])
            opt.zero_grad()
            (loss_c + 2.0 * loss_o).backward()
            opt.step()
            step += 1
            stats += torch.stack([loss_c.detach(), loss_o.detach(), (logits.argmax(1) == cell[idx]).float().mean()])
            if step % cfg.log_every == 0:
                dist.all_reduce(stats)
                stats /= world * cfg.log_every
                if rank == 0:
                    print(f"step {step:4d} cell {stats[0]:.3f} offset {stats[1]:.4f} acc {stats[2]:.3f}", flush=True)
                stats.zero_()
    dist.barrier()
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (time.perf_counter() - t0, step), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(2, Config()), nprocs=2)
