#!/usr/bin/env python
"""Malignancy of lung nodules: 3-D residual network on patches cut from chest CT volumes."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

HU_LOW, HU_HIGH = -1000.0, 400.0


def fake_ct(shape, n_nodules, rng):
    """A CT-like int16 volume (lung, wall, noise) with nodules; returns volume, centres, labels."""
    d, h, w = shape
    yy, xx = np.mgrid[:h, :w]
    body = ((yy - h / 2) / (h * 0.46)) ** 2 + ((xx - w / 2) / (w * 0.48)) ** 2 < 1
    lung = np.zeros((h, w), dtype=bool)
    for side in (-1, 1):
        lung |= ((yy - h / 2) / (h * 0.36)) ** 2 + ((xx - w / 2 - side * w * 0.22) / (w * 0.18)) ** 2 < 1
    plane = np.where(lung, -850, np.where(body, 40, -1000)).astype(np.float32)
    vol = np.repeat(plane[None], d, 0)
    vol += rng.standard_normal(shape, dtype=np.float32) * 35
    centres, labels = [], []
    for _ in range(n_nodules):
        z = int(rng.integers(16, d - 16))
        y = int(rng.integers(h // 2 - h // 5, h // 2 + h // 5))
        x = int(w / 2 + rng.choice([-1, 1]) * w * 0.22 + rng.integers(-6, 7))
        malignant = int(rng.random() < 0.4)
        r = rng.uniform(5, 8) if malignant else rng.uniform(3, 6)
        zz, y2, x2 = np.mgrid[-10:11, -10:11, -10:11]
        dist = np.sqrt(zz ** 2 + y2 ** 2 + x2 ** 2)
        if malignant:
            dist = dist + 1.5 * np.sin(4 * np.arctan2(y2, x2)) * np.cos(3 * np.arctan2(zz, x2))
        blob = 900 / (1 + np.exp(2 * (dist - r)))
        vol[z - 10:z + 11, y - 10:y + 11, x - 10:x + 11] += blob.astype(np.float32)
        centres.append((z, y, x))
        labels.append(malignant)
    return vol.astype(np.int16), centres, labels


class NodulePatches(Dataset):
    """Patches around nodules, with the window of the lung and augmentation."""

    def __init__(self, volumes, items, patch=32, jitter=4, seed=0):
        self.volumes = volumes
        self.table = items
        self.patch = patch
        self.jitter = jitter
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return len(self.table)

    def _tone(self, hu):
        """Window to 0..1, then random brightness, contrast and gamma."""
        x = np.clip(hu.astype(np.float32), HU_LOW, HU_HIGH)
        x = (x - HU_LOW) / (HU_HIGH - HU_LOW)
        gain, offset = self.rng.uniform(0.9, 1.1), self.rng.uniform(-0.05, 0.05)
        x = np.clip(x * np.float32(gain) + np.float32(offset), 0, 1)
        return x ** np.float32(self.rng.uniform(0.8, 1.25))

    def _box(self, centre, shape):
        half = self.patch // 2
        sl = []
        for c, s in zip(centre, shape):
            lo = c - half + int(self.rng.integers(-self.jitter, self.jitter + 1))
            lo = min(max(lo, 0), s - self.patch)
            sl.append(slice(lo, lo + self.patch))
        return tuple(sl)

    def __getitem__(self, i):
        v, centre, label = self.table[i]
        volume = self.volumes[v]
        patch = self._tone(volume[self._box(centre, volume.shape)])
        for axis in range(3):
            if self.rng.random() < 0.5:
                patch = np.flip(patch, axis)
        return torch.from_numpy(patch.copy())[None], np.float32(label)


class ResBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.a = nn.Conv3d(cin, cout, 3, stride, 1, bias=False)
        self.na = nn.BatchNorm3d(cout)
        self.b = nn.Conv3d(cout, cout, 3, 1, 1, bias=False)
        self.nb = nn.BatchNorm3d(cout)
        self.skip = nn.Conv3d(cin, cout, 1, stride, bias=False)

    def forward(self, x):
        y = torch.relu(self.na(self.a(x)))
        return torch.relu(self.nb(self.b(y)) + self.skip(x))


class PatchNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv3d(1, width, 5, 2, 2, bias=False), nn.BatchNorm3d(width), nn.ReLU())
        self.blocks = nn.Sequential(ResBlock(width, width, 1), ResBlock(width, 2 * width, 2), ResBlock(2 * width, 4 * width, 2))
        self.head = nn.Sequential(nn.Dropout(0.2), nn.Linear(4 * width, 1))

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3, 4))).squeeze(1)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--scans", type=int, default=10)
    ap.add_argument("--nodules", type=int, default=24)
    ap.add_argument("--shape", type=int, nargs=3, default=(48, 112, 112))
    ap.add_argument("--batch-size", type=int, default=12)
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    volumes, items = [], []
    for s in range(args.scans):
        vol, centres, labels = fake_ct(tuple(args.shape), args.nodules, rng)
        volumes.append(vol)
        items += [(s, c, y) for c, y in zip(centres, labels)]
    dataset = NodulePatches(volumes, items, seed=args.seed)
    sampler = RandomSampler(dataset, replacement=True, num_samples=args.steps * args.batch_size)
    loader = DataLoader(dataset, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    model = PatchNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.steps)
    criterion = nn.BCEWithLogitsLoss()

    model.train()
    began = time.perf_counter()
    for step, (patch, label) in enumerate(loader, 1):
        logit = model(patch)
        loss = criterion(logit, label)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 20 == 0:
            acc = ((logit > 0) == (label > 0.5)).float().mean().item()
            print(f"step {step:3d} loss {loss.item():.4f} acc {acc:.2f}")
    print(f"loop_s={time.perf_counter() - began:.3f} steps={step}")


if __name__ == "__main__":
    main()
