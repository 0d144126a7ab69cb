"""Classify variable stars from irregular light curves of two surveys, two ranks (gloo, DDP).

Curves are kept in shards, as the surveys deliver them: "deep" fields are visited often, "wide" fields seldom.
"""
from dataclasses import dataclass
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel

CLASSES = ("rr_lyrae", "cepheid", "eclipsing", "mira", "flare")


@dataclass
class Settings:
    world: int = 2
    shards_per_survey: int = 8
    curves: int = 64
    batch: int = 8
    epochs: int = 2
    dim: int = 64
    depth: int = 2
    lr: float = 1e-3
    seed: int = 17


def light_curve(kind, n, rng):
    t = np.sort(rng.uniform(0, 100, n))
    period = rng.uniform(*[(0.4, 0.9), (3, 20), (1, 8), (60, 100), (5, 10)][kind])
    ph = (t / period + rng.random()) % 1
    if kind == 0:
        mag = 0.8 * ph ** 0.5
    elif kind == 1:
        mag = 0.5 * np.sin(2 * np.pi * ph) + 0.2 * np.sin(4 * np.pi * ph)
    elif kind == 2:
        mag = 0.7 * (np.abs(ph - 0.5) < 0.06) + 0.3 * ((ph < 0.04) | (ph > 0.96))
    elif kind == 3:
        mag = 1.5 * np.sin(2 * np.pi * ph)
    else:
        mag = -1.2 * np.exp(-((t - rng.uniform(10, 90)).clip(0)) / 3)
    err = rng.uniform(0.02, 0.1, n)
    return np.stack([t / 100, mag + err * rng.standard_normal(n), err * 10], 1).astype(np.float32)


def make_shard(name, cfg):
    survey, number = name.split("_")
    rng = np.random.default_rng([cfg.seed, len(survey), ord(survey[0]), int(number)])
    low, high = (180, 220) if survey == "deep" else (40, 60)
    labels = rng.integers(0, len(CLASSES), cfg.curves)
    curves = [torch.from_numpy(light_curve(k, int(rng.integers(low, high)), rng)) for k in labels]
    return curves, torch.from_numpy(labels)


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.freq = nn.Parameter(torch.logspace(0, 2.3, cfg.dim // 2))
        self.inp = nn.Linear(cfg.dim + 2, cfg.dim)
        layer = nn.TransformerEncoderLayer(cfg.dim, 4, 4 * cfg.dim, 0.1, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, cfg.depth, enable_nested_tensor=False)
        self.head = nn.Linear(cfg.dim, len(CLASSES))

    def forward(self, x, pad):
        angle = x[..., :1] * self.freq
        h = self.inp(torch.cat([angle.sin(), angle.cos(), x[..., 1:]], -1))
        h = self.body(h, src_key_padding_mask=pad)
        keep = (~pad).unsqueeze(-1).to(h.dtype)
        return self.head((h * keep).sum(1) / keep.sum(1))


def pad_batch(curves):
    x = nn.utils.rnn.pad_sequence(curves, batch_first=True)
    lengths = torch.tensor([len(c) for c in curves])
    return x, torch.arange(x.shape[1])[None] >= lengths[:, None]


def shard_names(cfg):
    return [f"{s}_{i:02d}" for s in ("deep", "wide") for i in range(cfg.shards_per_survey)]


def my_shards(names, rank, world):
    return names[rank::world]


def batches(shards, cfg, epoch):
    """Shards in a shuffled order, curves shuffled within a shard; a batch comes from one shard."""
    order = np.random.default_rng([cfg.seed, epoch])
    for s in order.permutation(len(shards)):
        curves, labels = shards[s]
        for idx in torch.from_numpy(order.permutation(len(curves))).split(cfg.batch):
            x, pad = pad_batch([curves[i] for i in idx.tolist()])
            yield x, pad, labels[idx]


def train(rank, cfg, init_file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + init_file, rank=rank, world_size=cfg.world)
    torch.manual_seed(cfg.seed)
    names = my_shards(shard_names(cfg), rank, cfg.world)
    shards = [make_shard(name, cfg) for name in names]
    model = DistributedDataParallel(Encoder(cfg))
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)

    dist.barrier()
    t0 = time.perf_counter()
    steps = 0
    for epoch in range(cfg.epochs):
        stats = torch.zeros(3)
        for x, pad, label in batches(shards, cfg, epoch):
            logits = model(x, pad)
            loss = F.cross_entropy(logits, label)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            steps += 1
            stats += torch.tensor([loss.item(), (logits.argmax(1) == label).float().mean().item(), 1.0])
        dist.all_reduce(stats)
        if rank == 0:
            print(f"epoch {epoch} loss {stats[0] / stats[2]:.4f} acc {stats[1] / stats[2]:.3f}", flush=True)
    dist.barrier()
    if rank == 0:
        print(f"loop_s={time.perf_counter() - t0:.3f} steps={steps}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(train, args=(Settings(), os.path.join(tmp, "init")), nprocs=Settings.world)
