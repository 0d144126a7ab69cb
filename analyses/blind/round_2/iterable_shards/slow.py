import argparse
import gzip
import json
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


def write_shards(folder, shards, per_shard):
    rng = np.random.default_rng(0)
    for s in range(shards):
        with gzip.open(os.path.join(folder, f"part-{s:03d}.jsonl.gz"), "wt", compresslevel=3) as f:
            for _ in range(per_shard):
                label = int(rng.integers(6))
                n = int(rng.integers(90, 110))
                signal = np.sin(np.arange(n) * (label + 1) * 0.1) + rng.normal(0, 0.4, n)
                f.write(json.dumps({"label": label, "ch": [np.round(signal * g, 4).tolist() for g in (1, 2, 3, 4)]}) + "\n")


def resample(ch, width):
    out = np.empty((len(ch), width), np.float32)
    for k, row in enumerate(ch):
        out[k] = np.interp(np.linspace(0, len(row) - 1, width), np.arange(len(row)), row)
    return out


class ShardStream(IterableDataset):
    def __init__(self, folder, width, seed=0):
        self.files = sorted(os.path.join(folder, f) for f in os.listdir(folder))
        self.width, self.seed = width, seed
        self.epoch = 0

    def parse(self, line):
        record = json.loads(line)
        x = resample(record["ch"], self.width)
        x = (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1e-6)
        return torch.from_numpy(x), record["label"]

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        files = list(self.files)
        np.random.default_rng(self.seed + self.epoch).shuffle(files)
        count = 0
        for path in files:
            with gzip.open(path, "rt") as f:
                for line in f:
                    sample = self.parse(line)
                    if count % workers == worker:
                        yield sample
                    count += 1


class Net(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        self.c1 = nn.Conv1d(4, w, 5, stride=2, padding=2)
        self.c2 = nn.Conv1d(w, 2 * w, 5, stride=2, padding=2)
        self.c3 = nn.Conv1d(2 * w, 2 * w, 5, stride=2, padding=2)
        self.out = nn.Linear(2 * w, 6)

    def forward(self, x):
        for c in (self.c1, self.c2, self.c3):
            x = F.relu(c(x))
        return self.out(x.mean(-1))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--width", type=int, default=96)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        write_shards(tmp, 16, 576)
        data = ShardStream(tmp, args.width)
        loader = DataLoader(data, batch_size=args.batch, num_workers=args.workers, drop_last=True)
        model = Net()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        model(torch.zeros(2, 4, args.width)).sum().backward()
        steps, start = 0, time.perf_counter()
        for epoch in range(args.epochs):
            data.epoch = epoch
            hits = seen = 0
            for x, y in loader:
                logits = model(x)
                loss = F.cross_entropy(logits, y)
                opt.zero_grad()
                loss.backward()
                opt.step()
                hits += (logits.argmax(1) == y).sum()
                seen += len(y)
                steps += 1
            print(f"epoch {epoch} loss {loss.item():.3f} acc {hits.item() / seen:.3f}")
        seconds = time.perf_counter() - start
    print(f"loop_s={seconds:.3f} steps={steps}")


if __name__ == "__main__":
    main()
