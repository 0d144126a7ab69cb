"""Complete object shapes from one depth view, for a bin-picking robot.

Input: the visible points of an object (from one side). Output: a full set of surface points.
"""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn


def superquadric(rng, n):
    """Random points on a superquadric with random half axes and exponents."""
    a = rng.uniform(0.3, 1.0, 3)
    e1, e2 = rng.uniform(0.3, 1.6, 2)
    u = rng.uniform(-np.pi / 2, np.pi / 2, n)
    v = rng.uniform(-np.pi, np.pi, n)

    def power(x, e):
        return np.sign(x) * np.abs(x) ** e

    pts = np.stack([
        a[0] * power(np.cos(u), e1) * power(np.cos(v), e2),
        a[1] * power(np.cos(u), e1) * power(np.sin(v), e2),
        a[2] * power(np.sin(u), e1),
    ], axis=1)
    q, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    return pts @ q


def build_objects(count, n_full, n_view, rng):
    full = np.zeros((count, n_full, 3), np.float32)
    view = np.zeros((count, n_view, 3), np.float32)
    for i in range(count):
        pts = superquadric(rng, n_full)
        full[i] = pts
        order = np.argsort(-pts[:, 2])[: n_full // 2]
        view[i] = pts[rng.choice(order, n_view)] + rng.normal(0, 0.01, (n_view, 3))
    return torch.from_numpy(full), torch.from_numpy(view)


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, width))
        self.second = nn.Sequential(nn.Linear(2 * width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 2 * width))

    def forward(self, pts):
        h = self.first(pts)
        g = h.max(dim=1, keepdim=True).values.expand_as(h)
        return self.second(torch.cat([h, g], dim=2)).max(dim=1).values


class CompletionNet(nn.Module):
    def __init__(self, n_out, width=128, grid=4):
        super().__init__()
        self.encoder = Encoder(width)
        self.n_coarse = n_out // grid ** 2
        self.coarse = nn.Sequential(
            nn.Linear(2 * width, 256), nn.ReLU(), nn.Linear(256, 3 * self.n_coarse))
        side = torch.linspace(-0.05, 0.05, grid)
        self.register_buffer("patch", torch.cartesian_prod(side, side))
        self.fold = nn.Sequential(nn.Linear(2 * width + 5, 96), nn.ReLU(), nn.Linear(96, 3))

    def forward(self, view):
        code = self.encoder(view)
        seeds = self.coarse(code).view(-1, self.n_coarse, 3)
        k = len(self.patch)
        b, m = seeds.shape[:2]
        rep = seeds.repeat_interleave(k, dim=1)
        patch = self.patch.repeat(m, 1).expand(b, -1, -1)
        glob = code[:, None].expand(-1, m * k, -1)
        return seeds, rep + self.fold(torch.cat([rep, patch, glob], dim=2))


def chamfer(pred, ref):
    """Mean squared nearest-neighbour distance, both ways."""
    with torch.no_grad():
        dist = torch.cdist(pred, ref)
        to_ref, to_pred = dist.argmin(dim=2), dist.argmin(dim=1)
    near_ref = ref.gather(1, to_ref.unsqueeze(-1).expand(-1, -1, 3))
    near_pred = pred.gather(1, to_pred.unsqueeze(-1).expand(-1, -1, 3))
    return (pred - near_ref).pow(2).sum(-1).mean() + (near_pred - ref).pow(2).sum(-1).mean()


def fscore(pred, ref, radius=0.1):
    d = torch.cdist(pred, ref)
    precision = (d.min(dim=2).values < radius).float().mean()
    recall = (d.min(dim=1).values < radius).float().mean()
    return (2 * precision * recall / (precision + recall + 1e-8)).item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--objects", type=int, default=240)
    p.add_argument("--points", type=int, default=512)
    p.add_argument("--view-points", type=int, default=256)
    p.add_argument("--batch", type=int, default=6)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()

    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    full, view = build_objects(args.objects + args.batch, args.points, args.view_points, rng)
    val_full, val_view = full[-args.batch:], view[-args.batch:]
    full, view = full[:-args.batch], view[:-args.batch]
    model = CompletionNet(args.points)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    coarse_target = torch.arange(0, args.points, 4)

    steps = 0
    t0 = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        running = 0.0
        for idx in torch.randperm(len(full)).split(args.batch):
            seeds, dense = model(view[idx])
            target = full[idx]
            loss = chamfer(dense, target) + 0.5 * chamfer(seeds, target[:, coarse_target])
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            running += loss.item()
            steps += 1
        model.eval()
        with torch.no_grad():
            score = fscore(model(val_view)[1], val_full)
        print(f"epoch {epoch} chamfer {running * args.batch / len(full):.4f} f@0.1 {score:.3f}", flush=True)
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={steps}")


if __name__ == "__main__":
    main()
