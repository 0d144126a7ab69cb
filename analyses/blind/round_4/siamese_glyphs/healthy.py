#!/usr/bin/env python
"""Siamese verification: are two glyph images drawn by the same writer?"""
import argparse
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset


@dataclass
class Config:
    writers: int = 120
    per_writer: int = 20
    side: int = 40
    batch: int = 32
    steps: int = 120
    lr: float = 6e-4
    margin: float = 1.0
    sweep: int = 80
    log_every: int = 20
    seed: int = 11


def draw_corpus(cfg):
    rng = np.random.default_rng(cfg.seed)
    coarse = rng.normal(size=(cfg.writers, 10, 10)).astype(np.float32)
    proto = np.kron(coarse, np.ones((1, cfg.side // 10, cfg.side // 10), np.float32))
    imgs = np.repeat(proto, cfg.per_writer, 0)
    imgs += 0.6 * rng.standard_normal(imgs.shape, dtype=np.float32)
    labels = np.repeat(np.arange(cfg.writers), cfg.per_writer)
    return imgs.astype(np.float32), labels


class PairSet(Dataset):
    """Pairs drawn by the index: even ones are of the same writer, odd ones of two."""

    def __init__(self, imgs, labels, n_pairs, cfg):
        self.imgs, self.cfg, self.n = imgs, cfg, n_pairs
        self.by_writer = labels.reshape(cfg.writers, cfg.per_writer) * 0 + \
            np.arange(len(labels)).reshape(cfg.writers, cfg.per_writer)

    def __len__(self):
        return self.n

    def _augment(self, x, rng):
        dy, dx = rng.integers(-3, 4, 2)
        x = np.roll(x, (dy, dx), (1, 2))
        gain = rng.uniform(0.8, 1.2, (len(x), 1, 1)).astype(np.float32)
        return x * gain

    def __getitems__(self, idx):
        idx = np.asarray(idx)
        rng = np.random.default_rng(int(idx[0]) + 7919 * self.cfg.seed)
        same = idx % 2 == 0
        w1 = rng.integers(0, self.cfg.writers, len(idx))
        w2 = np.where(same, w1, (w1 + rng.integers(1, self.cfg.writers, len(idx))) % self.cfg.writers)
        k1 = rng.integers(0, self.cfg.per_writer, len(idx))
        k2 = (k1 + rng.integers(1, self.cfg.per_writer, len(idx))) % self.cfg.per_writer
        a = self._augment(self.imgs[self.by_writer[w1, k1]], rng)
        b = self._augment(self.imgs[self.by_writer[w2, k2]], rng)
        return a[:, None], b[:, None], same.astype(np.float32)


def to_tensors(batch):
    return tuple(torch.from_numpy(np.ascontiguousarray(t)) for t in batch)


class Encoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()

        def block(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(8, o), nn.ReLU(inplace=True))

        self.net = nn.Sequential(
            block(1, 24), nn.MaxPool2d(2), block(24, 48), block(48, 48), nn.MaxPool2d(2),
            block(48, 96), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96 * 25, dim),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=1)


def contrastive(dist, same, margin):
    return (same * dist.pow(2) + (1 - same) * F.relu(margin - dist).pow(2)).mean()


class VerificationMeter:
    """False accepts and false rejects at a grid of thresholds; the equal error rate is where they cross."""

    def __init__(self, sweep):
        self.thresholds = 2.0 * np.arange(1, sweep + 1) / sweep
        self.reset()

    def reset(self):
        self.fa = np.zeros(len(self.thresholds), np.int64)
        self.fr = np.zeros(len(self.thresholds), np.int64)
        self.pos = self.neg = 0

    def update(self, dist, same):
        d, s = dist.double().numpy(), same.numpy() > 0.5
        over = d[:, None] > self.thresholds
        self.fr += over[s].sum(0)
        self.fa += (~over[~s]).sum(0)
        self.pos += int(s.sum())
        self.neg += int((~s).sum())

    def eer(self):
        fa, fr = self.fa / self.neg, self.fr / self.pos
        k = np.argmin(np.abs(fa - fr))
        return (fa[k] + fr[k]) / 2


def train(cfg):
    random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    imgs, labels = draw_corpus(cfg)
    pairs = PairSet(imgs, labels, cfg.batch * cfg.steps, cfg)
    loader = DataLoader(pairs, batch_size=cfg.batch, num_workers=1, prefetch_factor=4,
                        collate_fn=to_tensors, persistent_workers=True)
    net = Encoder()
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr, fused=True)
    meter = VerificationMeter(cfg.sweep)
    n, t0 = 0, time.perf_counter()
    for a, b, same in loader:
        za, zb = net(torch.cat([a, b])).chunk(2)
        dist = (za - zb).pow(2).sum(1).add(1e-9).sqrt()
        loss = contrastive(dist, same, cfg.margin)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        meter.update(dist.detach(), same)
        n += 1
        if n % cfg.log_every == 0:
            print(f"[{n:4d}] loss {loss.item():.4f}  eer {meter.eer():.4f}", flush=True)
            meter.reset()
    return time.perf_counter() - t0, n


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__)
    for name, value in vars(Config()).items():
        p.add_argument("--" + name.replace("_", "-"), type=type(value), default=value)
    seconds, n = train(Config(**vars(p.parse_args())))
    print("loop_s=%.3f steps=%d" % (seconds, n))
