import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


def sphere(rng, n):
    p = rng.normal(size=(n, 3))
    return p / np.linalg.norm(p, axis=1, keepdims=True)


def box(rng, n):
    p = rng.uniform(-1, 1, (n, 3))
    axis = rng.integers(0, 3, n)
    p[np.arange(n), axis] = np.sign(p[np.arange(n), axis])
    return p


def tube(rng, n):
    a = rng.uniform(0, 2 * np.pi, n)
    return np.stack([np.cos(a), np.sin(a), rng.uniform(-1, 1, n)], 1)


def torus(rng, n):
    a, b = rng.uniform(0, 2 * np.pi, (2, n))
    return np.stack([(1 + 0.3 * np.cos(b)) * np.cos(a), (1 + 0.3 * np.cos(b)) * np.sin(a), 0.3 * np.sin(b)], 1)


SHAPES = [sphere, box, tube, torus]


class Shapes(Dataset):
    def __init__(self, count, points, train):
        rng = np.random.default_rng(0 if train else 1)
        self.labels = rng.integers(0, len(SHAPES), count)
        self.clouds = [SHAPES[c](rng, points).astype(np.float32) for c in self.labels]
        self.train = train
        self.rng = rng

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        p = self.clouds[i]
        if self.train:
            a = self.rng.uniform(0, 2 * np.pi)
            rot = np.array([[np.cos(a), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]], np.float32)
            p = p @ rot * np.float32(self.rng.uniform(0.8, 1.2))
            p = p + self.rng.normal(0, 0.02, p.shape).astype(np.float32)
        return torch.from_numpy(p), int(self.labels[i])


def neighbours(x, k):
    """x: (B, N, C) -> indices (B, N, k) of the closest points."""
    sq = (x * x).sum(-1)
    dist = sq.unsqueeze(2) + sq.unsqueeze(1) - 2 * torch.bmm(x, x.transpose(1, 2))
    return dist.topk(k, dim=-1, largest=False).indices


class EdgeConv(nn.Module):
    def __init__(self, cin, cout, k):
        super().__init__()
        self.k = k
        self.mlp = nn.Sequential(nn.Linear(2 * cin, cout), nn.LayerNorm(cout), nn.ReLU(), nn.Linear(cout, cout))

    def forward(self, x):
        b, n, c = x.shape
        with torch.no_grad():
            idx = neighbours(x, self.k)
        near = x.gather(1, idx.reshape(b, -1, 1).expand(-1, -1, c)).view(b, n, self.k, c)
        center = x.unsqueeze(2).expand_as(near)
        return self.mlp(torch.cat([center, near - center], -1)).amax(2)


class DGCNN(nn.Module):
    def __init__(self, k, classes=len(SHAPES)):
        super().__init__()
        self.convs = nn.ModuleList([EdgeConv(3, 24, k), EdgeConv(24, 24, k), EdgeConv(24, 48, k)])
        self.head = nn.Sequential(nn.Linear(96, 128), nn.ReLU(), nn.Dropout(0.3), nn.Linear(128, classes))

    def forward(self, x):
        feats = []
        for conv in self.convs:
            x = conv(x)
            feats.append(x)
        return self.head(torch.cat(feats, -1).amax(1))


def evaluate(model, loader):
    model.eval()
    with torch.no_grad():
        hits = sum((model(p).argmax(1) == y).sum().item() for p, y in loader)
    model.train()
    return hits / len(loader.dataset)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--points", type=int, default=320)
    ap.add_argument("--k", type=int, default=10)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train = DataLoader(Shapes(240, args.points, True), args.batch, shuffle=True, drop_last=True)
    test = DataLoader(Shapes(32, args.points, False), 16)
    model = DGCNN(args.k)
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    model(torch.randn(2, args.points, 3)).sum().backward()
    steps, t0 = 0, time.perf_counter()
    for epoch in range(args.epochs):
        for pts, label in train:
            loss = F.cross_entropy(model(pts), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            steps += 1
        print(f"epoch {epoch} loss {loss.item():.3f} acc {evaluate(model, test):.3f}")
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={steps}")


if __name__ == "__main__":
    main()
