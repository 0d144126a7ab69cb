"""Vessel / lumen segmentation in micro-CT volumes, trained on random rotated patches.

    python slow.py [--steps N]

The volumes stay in memory; a DataLoader worker cuts the patches.
"""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy import ndimage
from torch.utils.data import DataLoader, Dataset


def synth_volume(shape, rng):
    """Crossing bright tubes in a noisy soft background; label 1 inside a tube, 2 on its wall."""
    zz, yy, xx = np.meshgrid(*[np.arange(s, dtype=np.float32) for s in shape], indexing="ij")
    pts = np.stack([zz, yy, xx], -1)
    image = ndimage.gaussian_filter(rng.normal(0, 1, shape).astype(np.float32), 3) * 2
    label = np.zeros(shape, np.uint8)
    for _ in range(9):
        p = rng.uniform(0.2, 0.8, 3).astype(np.float32) * np.array(shape, np.float32)
        d = rng.normal(size=3).astype(np.float32)
        d /= np.linalg.norm(d)
        rel = pts - p
        dist = np.linalg.norm(rel - (rel @ d)[..., None] * d, axis=-1)
        r = rng.uniform(2.5, 5)
        label[(dist < r + 1.5) & (label == 0)] = 2
        label[dist < r] = 1
    image += (label == 1) * 1.0 + (label == 2) * -0.5 + rng.normal(0, 0.3, shape).astype(np.float32)
    return image.astype(np.float32), label


def rotation(rng, max_angle):
    a, b, c = rng.uniform(-max_angle, max_angle, 3)
    rz = np.array([[1, 0, 0], [0, math.cos(a), -math.sin(a)], [0, math.sin(a), math.cos(a)]])
    ry = np.array([[math.cos(b), 0, math.sin(b)], [0, 1, 0], [-math.sin(b), 0, math.cos(b)]])
    rx = np.array([[math.cos(c), -math.sin(c), 0], [math.sin(c), math.cos(c), 0], [0, 0, 1]])
    return rz @ ry @ rx * rng.uniform(0.9, 1.1)


class PatchSet(Dataset):
    def __init__(self, volumes, patch, length, seed, max_angle=0.5):
        self.volumes, self.patch, self.length, self.seed = volumes, patch, length, seed
        self.max_angle = max_angle

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        rng = np.random.default_rng((self.seed, index))
        image, label = self.volumes[rng.integers(len(self.volumes))]
        matrix = rotation(rng, self.max_angle)
        centre = (np.array(image.shape) - 1) / 2
        offset = centre - matrix @ centre
        start = np.array([rng.integers(0, s - self.patch + 1) for s in image.shape])
        image = ndimage.affine_transform(image, matrix, offset, order=1, mode="reflect")
        label = ndimage.affine_transform(label, matrix, offset, order=0, mode="reflect")
        crop = tuple(slice(s, s + self.patch) for s in start)
        image = image[crop] * rng.uniform(0.8, 1.2) + rng.normal(0, 0.1)
        return torch.from_numpy(np.ascontiguousarray(image, np.float32))[None], \
            torch.from_numpy(label[crop].astype(np.int64))


class Double(nn.Sequential):
    def __init__(self, i, o):
        super().__init__(nn.Conv3d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.LeakyReLU(0.1),
                         nn.Conv3d(o, o, 3, padding=1), nn.GroupNorm(4, o), nn.LeakyReLU(0.1))


class VesselNet(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.stem = Double(1, ch)
        self.low = Double(ch, 2 * ch)
        self.deep = Double(2 * ch, 4 * ch)
        self.merge1 = Double(6 * ch, 2 * ch)
        self.merge0 = Double(3 * ch, ch)
        self.out = nn.Conv3d(ch, 3, 1)

    def forward(self, x):
        a = self.stem(x)
        b = self.low(F.max_pool3d(a, 2))
        c = self.deep(F.max_pool3d(b, 2))
        b = self.merge1(torch.cat([F.interpolate(c, scale_factor=2), b], 1))
        a = self.merge0(torch.cat([F.interpolate(b, scale_factor=2), a], 1))
        return self.out(a)


def dice_ce(logits, y):
    ce = F.cross_entropy(logits, y, weight=torch.tensor([0.4, 1.0, 1.0]))
    p = logits.softmax(1)
    hot = F.one_hot(y, 3).movedim(-1, 1).float()
    inter = (p * hot).sum((0, 2, 3, 4))
    dice = 2 * inter / (p.sum((0, 2, 3, 4)) + hot.sum((0, 2, 3, 4)) + 1)
    return ce + 1 - dice[1:].mean(), dice.detach()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=56)
    ap.add_argument("--batch", type=int, default=2)
    ap.add_argument("--patch", type=int, default=32)
    ap.add_argument("--volumes", type=int, default=3)
    ap.add_argument("--side", type=int, default=120)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=7)
    args = ap.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    volumes = [synth_volume((args.side,) * 3, rng) for _ in range(args.volumes)]
    data = PatchSet(volumes, args.patch, args.batch * (args.steps + 1), args.seed)
    loader = DataLoader(data, batch_size=args.batch, num_workers=1, prefetch_factor=2)
    net = VesselNet()
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr, fused=True)
    batches = iter(loader)
    x, y = next(batches)
    dice_ce(net(x), y)[0].backward()  # warm up
    t0, steps = time.perf_counter(), 0
    for x, y in batches:
        opt.zero_grad()
        loss, dice = dice_ce(net(x), y)
        loss.backward()
        opt.step()
        steps += 1
        if steps % 10 == 0:
            print(f"[{steps:3d}] loss {loss.item():.3f} dice tube {dice[1].item():.3f} wall {dice[2].item():.3f}")
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - t0, steps))


if __name__ == "__main__":
    main()
