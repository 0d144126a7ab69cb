"""Keypoint regression on synthetic stick figures kept in sharded archives."""
import argparse
import os
import tempfile
import time
from collections import OrderedDict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

JOINTS, SIDE = 6, 64


def draw_figure(rng):
    pts = np.cumsum(rng.normal(scale=0.12, size=(JOINTS, 2)), axis=0)
    pts = np.clip(pts - pts.mean(0) + 0.5 + rng.uniform(-0.15, 0.15, size=2), 0.03, 0.97)
    img = rng.integers(0, 40, size=(SIDE, SIDE)).astype(np.uint8)
    for a, b in zip(pts[:-1], pts[1:]):
        for w in np.linspace(0, 1, 40):
            x, y = ((1 - w) * a + w * b) * (SIDE - 1)
            img[int(y), int(x)] = 150
    for k, (x, y) in enumerate(pts * (SIDE - 1)):
        img[max(0, int(y) - 1):int(y) + 2, max(0, int(x) - 1):int(x) + 2] = 170 + 15 * k
    return img, pts.astype(np.float32)


def write_shards(root, n_shards, per_shard, seed):
    rng = np.random.default_rng(seed)
    paths = []
    for s in range(n_shards):
        drawn = [draw_figure(rng) for _ in range(per_shard)]
        path = os.path.join(root, f"figures-{s:03d}.npz")
        np.savez_compressed(path, images=np.stack([d[0] for d in drawn]), points=np.stack([d[1] for d in drawn]))
        paths.append(path)
    return paths


class FigureShards(Dataset):
    def __init__(self, paths, per_shard, augment, open_shards=4):
        self.paths, self.per_shard, self.augment = paths, per_shard, augment
        self.open_shards = open_shards
        self.cache = OrderedDict()

    def __len__(self):
        return len(self.paths) * self.per_shard

    def shard(self, s):
        if s in self.cache:
            self.cache.move_to_end(s)
            return self.cache[s]
        with np.load(self.paths[s]) as z:
            self.cache[s] = (z["images"], z["points"])
        if len(self.cache) > self.open_shards:
            self.cache.popitem(last=False)
        return self.cache[s]

    def __getitem__(self, i):
        images, points = self.shard(i // self.per_shard)
        img = images[i % self.per_shard].astype(np.float32) / 255.0
        pts = points[i % self.per_shard].copy()
        if self.augment:
            gain = 0.8 + 0.4 * torch.rand(()).item()
            img = img * gain
            if torch.rand(()).item() < 0.5:
                img = img[:, ::-1].copy()
                pts[:, 0] = 1.0 - pts[:, 0]
        return torch.from_numpy(img)[None], torch.from_numpy(pts)


class KeypointNet(nn.Module):
    """Small conv net with a soft-argmax head."""

    def __init__(self, width):
        super().__init__()

        def block(i, o, stride):
            return nn.Sequential(nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))

        self.trunk = nn.Sequential(block(1, width, 2), block(width, width, 1), block(width, 2 * width, 2),
                                   block(2 * width, 2 * width, 1), block(2 * width, 2 * width, 1))
        self.head = nn.Conv2d(2 * width, JOINTS, 1)
        self.register_buffer("axis", torch.linspace(0, 1, SIDE // 4))

    def forward(self, x):
        heat = self.head(self.trunk(x))
        p = heat.flatten(2).softmax(-1).view_as(heat)
        return torch.stack([p.sum(2) @ self.axis, p.sum(3) @ self.axis], dim=-1)


@torch.inference_mode()
def pck(model, loader, thr=0.08):
    model.eval()
    ok = total = 0
    for img, pts in loader:
        d = (model(img) - pts).norm(dim=-1)
        ok += int((d < thr).sum())
        total += d.numel()
    model.train()
    return ok / total


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--shards", type=int, default=16)
    ap.add_argument("--per-shard", type=int, default=100)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--width", type=int, default=16)
    ap.add_argument("--workers", type=int, default=1)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=4)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as root:
        paths = write_shards(root, args.shards + 1, args.per_shard, args.seed)
        train = DataLoader(FigureShards(paths[:-1], args.per_shard, True), args.batch_size, shuffle=True,
                           num_workers=args.workers, persistent_workers=True, prefetch_factor=4, drop_last=True)
        val = DataLoader(FigureShards(paths[-1:], args.per_shard, False), 80)
        model = KeypointNet(args.width).to(memory_format=torch.channels_last)
        opt = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, total_steps=args.epochs * len(train))
        steps, t0 = 0, time.perf_counter()
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for img, pts in train:
                loss = F.smooth_l1_loss(model(img), pts, beta=0.05)
                opt.zero_grad()
                loss.backward()
                opt.step()
                sched.step()
                total += loss.detach()
                steps += 1
            print(f"epoch {epoch} loss {total.item() / len(train):.4f} pck {pck(model, val):.3f}", flush=True)
        loop_s = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (loop_s, steps))


if __name__ == "__main__":
    main()
