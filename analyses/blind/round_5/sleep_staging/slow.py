"""Sleep staging from single-night EEG/EOG: 1-D residual CNN on 30-second epochs.

Recordings are kept in one archive of zlib-packed blocks (a night of a sleeper is cut in several blocks),
like the files the sleep lab hands out.
"""
import io
import struct
import time
import zlib
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

FS = 64
EPOCH = 30 * FS
CHANNELS = 2
STAGES = ("W", "N1", "N2", "N3", "R")

CONFIG = {
    "nights": 12,
    "blocks_per_night": 4,
    "epochs_per_block": 48,
    "cache_blocks": 8,
    "batch": 64,
    "steps": 70,
    "lr": 1e-3,
    "weight_decay": 1e-4,
    "log_every": 10,
    "seed": 4,
}


# ------------------------------------------------------------------ archive
class ArchiveWriter:
    MAGIC = b"SLP1"

    def __init__(self):
        self.buf = io.BytesIO()
        self.buf.write(self.MAGIC)
        self.index = []

    def add(self, signals, stages):
        packed = zlib.compress(signals.astype("<i2").tobytes() + stages.astype("u1").tobytes(), 4)
        self.index.append((self.buf.tell(), len(packed), len(stages)))
        self.buf.write(struct.pack("<II", len(packed), len(stages)))
        self.buf.write(packed)

    def close(self):
        return self.buf.getvalue(), self.index


class Archive:
    """Random access to the epochs of an archive, with the most recently used blocks kept unpacked."""

    def __init__(self, raw, index, cache_blocks):
        self.raw = memoryview(raw)
        self.index = index
        self.cache_blocks = cache_blocks
        self.cache = OrderedDict()
        self.where = [(b, i) for b, (_, _, n) in enumerate(index) for i in range(n)]

    def __len__(self):
        return len(self.where)

    def block(self, b):
        hit = self.cache.get(b)
        if hit is not None:
            self.cache.move_to_end(b)
            return hit
        at, size, n = self.index[b]
        blob = zlib.decompress(self.raw[at + 8:at + 8 + size])
        cut = n * CHANNELS * EPOCH * 2
        entry = (np.frombuffer(blob, "<i2", count=n * CHANNELS * EPOCH).reshape(n, CHANNELS, EPOCH),
                 np.frombuffer(blob, "u1", offset=cut))
        self.cache[b] = entry
        while len(self.cache) > self.cache_blocks:
            self.cache.popitem(last=False)
        return entry

    def batch(self, ids):
        x = np.empty((len(ids), CHANNELS, EPOCH), np.float32)
        y = np.empty(len(ids), np.int64)
        for row, i in enumerate(ids):
            b, k = self.where[i]
            signals, stages = self.block(b)
            x[row] = signals[k]
            y[row] = stages[k]
        return torch.from_numpy(x).mul_(1 / 400.0), torch.from_numpy(y)


def synth_block(rng, n, start_stage):
    """Stage-dependent rhythms in int16 microvolt units."""
    rhythm = {0: (10.0, 120), 1: (6.0, 90), 2: (13.0, 150), 3: (1.5, 500), 4: (5.0, 110)}
    t = np.arange(EPOCH) / FS
    stages = np.empty(n, np.int64)
    stage = start_stage
    for i in range(n):
        if rng.random() < 0.12:
            stage = int(rng.integers(0, 5))
        stages[i] = stage
    freq = np.array([rhythm[s][0] for s in stages]) * rng.uniform(0.85, 1.15, n)
    amp = np.array([rhythm[s][1] for s in stages]) * rng.uniform(0.7, 1.3, n)
    phase = rng.uniform(0, 2 * np.pi, (n, 1))
    eeg = amp[:, None] * np.sin(2 * np.pi * freq[:, None] * t + phase) + rng.normal(0, 60, (n, EPOCH))
    eog = np.where(np.isin(stages, (0, 4))[:, None], 250.0, 40.0) * np.sin(2 * np.pi * 0.4 * t + 3 * phase)
    eog = eog + rng.normal(0, 30, (n, EPOCH))
    return np.stack([eeg, eog], 1).round(), stages, stage


def build_archive(cfg):
    rng = np.random.default_rng(cfg["seed"])
    writer = ArchiveWriter()
    for _ in range(cfg["nights"]):
        stage = 0
        for _ in range(cfg["blocks_per_night"]):
            signals, stages, stage = synth_block(rng, cfg["epochs_per_block"], stage)
            writer.add(signals, stages)
    return writer.close()


# ------------------------------------------------------------------ model
class ResBlock(nn.Module):
    def __init__(self, c_in, c_out, stride):
        super().__init__()
        self.c1 = nn.Conv1d(c_in, c_out, 7, stride=stride, padding=3, bias=False)
        self.b1 = nn.BatchNorm1d(c_out)
        self.c2 = nn.Conv1d(c_out, c_out, 5, padding=2, bias=False)
        self.b2 = nn.BatchNorm1d(c_out)
        self.skip = nn.Conv1d(c_in, c_out, 1, stride=stride, bias=False)

    def forward(self, x):
        h = F.relu(self.b1(self.c1(x)), inplace=True)
        return F.relu(self.b2(self.c2(h)) + self.skip(x), inplace=True)


class StageNet(nn.Module):
    def __init__(self, widths=(24, 32, 48)):
        super().__init__()
        self.stem = nn.Conv1d(CHANNELS, 16, 25, stride=4, padding=12)
        chain, c = [], 16
        for w in widths:
            chain.append(ResBlock(c, w, 2))
            c = w
        self.body = nn.Sequential(*chain)
        self.head = nn.Linear(c, len(STAGES))

    def forward(self, x):
        return self.head(self.body(F.relu(self.stem(x))).mean(-1))


def main(cfg=CONFIG):
    torch.manual_seed(cfg["seed"])
    raw, index = build_archive(cfg)
    data = Archive(raw, index, cfg["cache_blocks"])
    print(f"{len(data)} epochs in {len(index)} blocks, {len(raw) / 1e6:.1f} MB packed")
    net = StageNet()
    opt = torch.optim.AdamW(net.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"], fused=True)
    order = np.random.default_rng(cfg["seed"]).permutation(len(data))
    order = np.resize(order, cfg["steps"] * cfg["batch"]).reshape(cfg["steps"], cfg["batch"])

    confusion = torch.zeros(5, 5)
    start = time.perf_counter()
    for step, ids in enumerate(order, 1):
        x, y = data.batch(ids)
        out = net(x)
        loss = F.cross_entropy(out, y, label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
        confusion.index_put_((y, out.argmax(1)), torch.ones(len(y)), accumulate=True)
        if step % cfg["log_every"] == 0:
            recall = confusion.diagonal() / confusion.sum(1).clamp_min(1)
            print(f"{step:4d} loss {loss.item():.3f} " + " ".join(f"{s} {r:.2f}" for s, r in zip(STAGES, recall)))
            confusion.zero_()
    took = time.perf_counter() - start
    print("loop_s=%.3f steps=%d" % (took, cfg["steps"]))


if __name__ == "__main__":
    main()
