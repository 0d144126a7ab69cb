"""Patch transformer for electric load: 192 quarter hours in, 48 out, sliding windows over a station table."""
import argparse
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import nn


@dataclass
class Cfg:
    rows: int = 14000
    stations: int = 6
    look_back: int = 192
    horizon: int = 48
    patch: int = 8
    stride: int = 12
    batch: int = 64
    epochs: int = 13
    lr: float = 8e-4
    d_model: int = 96
    depth: int = 3
    seed: int = 21


def write_table(path, cfg):
    rng = np.random.default_rng(cfg.seed)
    when = pd.date_range("2023-01-01", periods=cfg.rows, freq="15min")
    t = np.arange(cfg.rows)
    day, week = 2 * np.pi * t / 96, 2 * np.pi * t / 672
    cols = {"when": when.strftime("%Y-%m-%d %H:%M:%S")}
    for s in range(cfg.stations):
        phase = rng.uniform(0, 6)
        load = 40 + 10 * np.sin(day + phase) + 4 * np.sin(week + 2 * phase) + rng.normal(0, 1.5, cfg.rows)
        load[rng.random(cfg.rows) < 0.01] = np.nan
        cols[f"station_{s}"] = np.round(load, 3)
    pd.DataFrame(cols).to_csv(path, index=False)


def calendar(when):
    """Time-of-day and day-of-week as points on a circle, plus a weekend flag."""
    def one(ts):
        h = 2 * np.pi * (ts.hour + ts.minute / 60) / 24
        w = 2 * np.pi * ts.weekday() / 7
        return np.sin(h), np.cos(h), np.sin(w), np.cos(w), float(ts.weekday() > 4)
    return np.array([one(ts) for ts in when], np.float32)


def load_table(path):
    frame = pd.read_csv(path, parse_dates=["when"]).set_index("when")
    frame = frame.interpolate(limit_direction="both")
    frame = frame.clip(frame.quantile(0.001), frame.quantile(0.999), axis=1)
    return frame.to_numpy(np.float32), calendar(frame.index)


class Windows:
    """Every window of one part of the table, from a given phase on."""

    def __init__(self, path, cfg, part, phase=0):
        values, marks = load_table(path)
        cut = int(len(values) * 0.85)
        self.mean, self.std = values[:cut].mean(0), values[:cut].std(0)
        lo, hi = (0, cut) if part == "train" else (cut - cfg.look_back, len(values))
        scaled = (values[lo:hi] - self.mean) / self.std
        table = torch.from_numpy(np.concatenate([scaled, marks[lo:hi]], 1))
        span = cfg.look_back + cfg.horizon
        self.view = table.unfold(0, span, 1).transpose(1, 2)[phase::cfg.stride]
        self.cfg = cfg

    def __len__(self):
        return len(self.view)

    def batches(self, size, order=None):
        order = torch.arange(len(self)) if order is None else order
        n, L = self.cfg.stations, self.cfg.look_back
        for idx in order.split(size):
            w = self.view[idx]
            yield w[:, :L], w[:, L:, :n]


class PatchFormer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        width = cfg.stations + 5
        self.cfg = cfg
        self.embed = nn.Linear(width * cfg.patch, cfg.d_model)
        self.pos = nn.Parameter(torch.randn(1, cfg.look_back // cfg.patch, cfg.d_model) * 0.02)
        layer = nn.TransformerEncoderLayer(cfg.d_model, 4, 4 * cfg.d_model, 0.0, "gelu",
                                           batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, cfg.depth, enable_nested_tensor=False)
        self.head = nn.Linear(cfg.d_model * self.pos.shape[1], cfg.horizon * cfg.stations)

    def forward(self, x):
        b, L, c = x.shape
        level = x[:, -16:, :self.cfg.stations].mean(1, keepdim=True)
        h = self.embed(x.reshape(b, L // self.cfg.patch, self.cfg.patch * c)) + self.pos
        y = self.head(self.encoder(h).flatten(1))
        return y.view(b, self.cfg.horizon, self.cfg.stations) + level


@torch.no_grad()
def validate(model, windows):
    model.eval()
    err = [(model(x) - y).abs().mean((1, 2)) for x, y in windows.batches(128)]
    model.train()
    return torch.cat(err).mean().item()


def run(cfg, path):
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    model = PatchFormer(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.05, fused=True)
    held_out = Windows(path, cfg, "valid")
    steps, t0 = 0, time.perf_counter()
    for epoch in range(cfg.epochs):
        # another phase each time, so that the strided windows cover the whole series
        windows = Windows(path, cfg, "train", phase=int(rng.integers(cfg.stride)))
        order = torch.randperm(len(windows))
        total = 0.0
        for k, (x, y) in enumerate(windows.batches(cfg.batch, order), 1):
            loss = nn.functional.huber_loss(model(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            total += loss.item()
            steps += 1
        print(f"epoch {epoch}: huber {total / k:.4f}  valid mae {validate(model, held_out):.4f}", flush=True)
    return time.perf_counter() - t0, steps


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--epochs", type=int, default=Cfg.epochs)
    p.add_argument("--batch", type=int, default=Cfg.batch)
    p.add_argument("--seed", type=int, default=Cfg.seed)
    cfg = Cfg(**vars(p.parse_args()))
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "load.csv")
        write_table(path, cfg)
        seconds, steps = run(cfg, path)
    print("loop_s=%.3f steps=%d" % (seconds, steps))


if __name__ == "__main__":
    main()
