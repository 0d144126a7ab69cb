"""Travel-time estimation for taxi trips from their sparse GPS traces.

A trip is a short, irregular sequence of fixes.  A dilated 1-D ConvNet reads it together with the
departure context (hour, weekday, rain), attention pools it, and the head predicts log seconds.
"""
import logging
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("eta")


@dataclass
class Config:
    trips: int = 24000
    holdout: int = 1024
    batch: int = 128
    epochs: int = 1
    max_steps: int = 90
    width: int = 80
    min_fixes: int = 24
    max_fixes: int = 80
    lr: float = 1.5e-3
    log_every: int = 20
    seed: int = 11


class TripStore(Dataset):
    """All fixes in one flat array, with the offset of every trip."""

    def __init__(self, cfg, n, seed):
        rng = np.random.default_rng(seed)
        length = rng.integers(cfg.min_fixes, cfg.max_fixes + 1, n)
        self.offset = np.concatenate([[0], np.cumsum(length)])
        total = int(self.offset[-1])
        gap = rng.exponential(20.0, total).astype(np.float32)
        speed = np.abs(rng.normal(9.0, 3.0, total)).astype(np.float32)
        heading = rng.uniform(-np.pi, np.pi, total).astype(np.float32)
        step = gap * speed
        self.fixes = np.stack([step * np.cos(heading) / 200, step * np.sin(heading) / 200,
                               np.cos(heading), np.sin(heading), speed / 10], 1).astype(np.float32)
        hour = rng.integers(0, 24, n)
        rain = rng.random(n) < 0.2
        self.context = np.stack([np.sin(hour * np.pi / 12), np.cos(hour * np.pi / 12),
                                 rng.integers(0, 7, n) / 6, rain], 1).astype(np.float32)
        secs = np.add.reduceat(gap, self.offset[:-1])
        jam = 1 + 0.5 * np.exp(-((hour - 8.5) / 2) ** 2) + 0.25 * rain
        self.logsec = np.log(secs * jam + 1).astype(np.float32)

    def __len__(self):
        return len(self.logsec)

    def __getitem__(self, i):
        lo, hi = self.offset[i], self.offset[i + 1]
        return (torch.from_numpy(self.fixes[lo:hi]), torch.from_numpy(self.context[i]),
                float(self.logsec[i]))


def pad(trips):
    fixes = nn.utils.rnn.pad_sequence([t[0] for t in trips], batch_first=True)
    length = torch.tensor([len(t[0]) for t in trips])
    mask = torch.arange(fixes.shape[1])[None] < length[:, None]
    return fixes, mask, torch.stack([t[1] for t in trips]), torch.tensor([t[2] for t in trips])


def collate(trips):
    return trips


class Block(nn.Module):
    def __init__(self, width, dilation):
        super().__init__()
        self.a = nn.Conv1d(width, width, 3, padding=dilation, dilation=dilation)
        self.b = nn.Conv1d(width, width, 1)
        self.norm = nn.GroupNorm(4, width)

    def forward(self, x):
        return x + self.b(F.gelu(self.norm(self.a(x))))


class TripNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inp = nn.Linear(5 + 4, width)
        self.blocks = nn.ModuleList([Block(width, d) for d in (1, 2, 4)])
        self.score = nn.Linear(width, 1)
        self.head = nn.Sequential(nn.Linear(width + 4, width), nn.GELU(), nn.Linear(width, 1))

    def forward(self, fixes, mask, context):
        x = torch.cat([fixes, context[:, None].expand(-1, fixes.shape[1], -1)], -1)
        x = (self.inp(x) * mask[..., None]).transpose(1, 2)
        for b in self.blocks:
            x = b(x)
        x = x.transpose(1, 2)
        att = self.score(x).squeeze(-1).masked_fill(~mask, -1e4).softmax(-1)
        pooled = (att[..., None] * x).sum(1) + (x * mask[..., None]).sum(1) / 50
        return self.head(torch.cat([pooled, context], -1)).squeeze(-1)


@torch.no_grad()
def evaluate(net, store):
    net.eval()
    err = []
    for lo in range(0, len(store), 256):
        fixes, mask, ctx, y = pad([store[i] for i in range(lo, min(lo + 256, len(store)))])
        err.append((net(fixes, mask, ctx) - y).abs())
    net.train()
    return torch.cat(err).mean().item()


def train(cfg):
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)
    store = TripStore(cfg, cfg.trips, cfg.seed)
    hold = TripStore(cfg, cfg.holdout, cfg.seed + 1)
    net = TripNet(cfg.width)
    opt = torch.optim.AdamW(net.parameters(), lr=cfg.lr, weight_decay=1e-4, fused=True)
    loader = DataLoader(store, batch_size=cfg.batch, shuffle=True, drop_last=True, num_workers=1,
                        collate_fn=collate, generator=torch.Generator().manual_seed(cfg.seed))
    it = iter(loader)
    next(it)  # the worker is up
    t0 = time.perf_counter()
    step = 0
    for trips in it:
        fixes, mask, ctx, y = pad(trips)
        loss = F.huber_loss(net(fixes, mask, ctx), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        step += 1
        if step % cfg.log_every == 0:
            log.info("step %d huber %.4f", step, loss.item())
        if step == cfg.max_steps:
            break
    wall = time.perf_counter() - t0
    log.info("hold-out mean abs log error %.4f", evaluate(net, hold))
    return wall, step


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    wall, steps = train(Config())
    print("loop_s=%.3f steps=%d" % (wall, steps))
