import argparse
import pathlib
import tempfile
import time
import zlib

import numpy as np
import torch
import torch.nn as nn
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset

CLASSES = 6
FULL = 208


def render(label, rng):
    base = rng.normal(0.3, 0.08, size=(FULL, FULL))
    for _ in range(3 + label * 2):
        y, x = rng.integers(8, FULL - 8, size=2)
        h = 2 + label % 3
        base[y - h:y + h, x - 5:x + 5] += rng.uniform(0.3, 0.7)
    return (np.clip(np.stack([base, base * 0.9, base * 0.7], -1), 0, 1) * 255).astype(np.uint8)


def build_archive(root, n):
    rng = np.random.default_rng(11)
    items = []
    for i in range(n):
        label = int(rng.integers(0, CLASSES))
        p = root / f"{i:05d}.z"
        p.write_bytes(zlib.compress(render(label, rng).tobytes(), 3))
        items.append((p, label))
    return items


class PlanktonDataset(Dataset):
    def __init__(self, items, crop, seed):
        self.items = items
        self.crop = crop
        self.seed = seed

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path, label = self.items[i]
        rng = np.random.default_rng((self.seed, i))
        img = np.frombuffer(zlib.decompress(path.read_bytes()), np.uint8).reshape(FULL, FULL, 3)
        top, left = rng.integers(0, FULL - self.crop, size=2)
        img = img[top:top + self.crop, left:left + self.crop].astype(np.float32) / 255.0
        img = img * rng.uniform(0.8, 1.2) + rng.uniform(-0.1, 0.1)
        img = ndimage.gaussian_filter(img, sigma=(0.6, 0.6, 0))
        if rng.random() < 0.5:
            img = img[:, ::-1]
        img = (img - np.float32(0.35)) / np.float32(0.2)
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1), dtype=np.float32)), label


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a = nn.Conv2d(c, c, 3, padding=1)
        self.b = nn.Conv2d(c, c, 3, padding=1)
        self.norm = nn.BatchNorm2d(c)

    def forward(self, x):
        return torch.relu(x + self.norm(self.b(torch.relu(self.a(x)))))


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 24, 5, stride=2, padding=2), nn.ReLU(),
        ResBlock(24), nn.MaxPool2d(2), ResBlock(24), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(24 * 16, CLASSES))


def train(args, root):
    items = build_archive(root, args.images)
    data = PlanktonDataset(items, args.crop, 1)
    loader = DataLoader(data, batch_size=args.batch, shuffle=True, num_workers=1, persistent_workers=True,
                        prefetch_factor=3, drop_last=True)
    model = build_model()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    crit = nn.CrossEntropyLoss()
    for x, y in loader:
        crit(model(x), y).backward()
        break
    start, steps = time.perf_counter(), 0
    for epoch in range(args.epochs):
        running = torch.zeros(())
        for x, y in loader:
            opt.zero_grad()
            loss = crit(model(x), y)
            loss.backward()
            opt.step()
            running += loss.detach()
            steps += 1
        print(f"[{epoch}] train loss {running.item() / len(loader):.4f}")
    return time.perf_counter() - start, steps


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--images", type=int, default=512)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--crop", type=int, default=48)
    ap.add_argument("--epochs", type=int, default=5)
    a = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as d:
        took, n = train(a, pathlib.Path(d))
    print(f"loop_s={took:.3f} steps={n}")
