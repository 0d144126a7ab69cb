"""Denoising diffusion on 16x16 sprites."""
import math
import os
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

STEPS_T = 200


def paint(root, n):
    rng = np.random.default_rng(14)
    out = np.zeros((n, 3, 16, 16), dtype=np.uint8)
    for k in range(n):
        half = rng.random((3, 16, 8)) < 0.35
        out[k] = np.concatenate([half, half[:, :, ::-1]], 2) * rng.integers(80, 256, size=(3, 1, 1))
    path = os.path.join(root, "sprites.npy")
    np.save(path, out)
    return path


def time_features(t, dim=32):
    f = torch.exp(-math.log(1000.0) * torch.arange(dim // 2) / (dim // 2))
    a = t[:, None].float() * f[None]
    return torch.cat([a.sin(), a.cos()], 1)


class UNet(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.temb = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, c))
        self.inp = nn.Conv2d(3, c, 3, padding=1)
        self.down = nn.Conv2d(c, 2 * c, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(2 * c, 2 * c, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.out = nn.Conv2d(2 * c, 3, 3, padding=1)

    def forward(self, x, t):
        h = F.silu(self.inp(x) + self.temb(time_features(t))[:, :, None, None])
        d = F.silu(self.down(h))
        d = F.silu(self.mid(d))
        return self.out(torch.cat([h, F.silu(self.up(d))], 1))


class ErrorRecord:
    """Mean squared noise error by time bucket, over the whole run."""

    def __init__(self, buckets=10):
        self.buckets = buckets
        self.err = torch.zeros(0, 3 * 16 * 16)
        self.t = torch.zeros(0, dtype=torch.long)

    def add(self, err, t):
        self.err = torch.cat([self.err, err.flatten(1)])
        self.t = torch.cat([self.t, t])

    def summary(self):
        b = self.t * self.buckets // STEPS_T
        s = torch.zeros(self.buckets).index_add_(0, b, self.err.square().mean(1))
        return s / torch.bincount(b, minlength=self.buckets).clamp(min=1)


class Ema:
    def __init__(self, model, decay=0.99):
        self.decay = decay
        self.shadow = [p.detach().clone() for p in model.parameters()]

    @torch.no_grad()
    def update(self, model):
        torch._foreach_lerp_(self.shadow, list(model.parameters()), 1 - self.decay)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(14)
    root = tempfile.mkdtemp()
    try:
        images = np.load(paint(root, 1024))
    finally:
        shutil.rmtree(root)
    betas = torch.linspace(1e-4, 0.04, STEPS_T)
    alpha = torch.cumprod(1 - betas, 0)
    net = UNet()
    ema = Ema(net)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
    rng = np.random.default_rng(1)

    def step(record):
        x = torch.from_numpy(images[rng.integers(0, len(images), size=64)]).float().div_(127.5).sub_(1)
        t = torch.randint(0, STEPS_T, (64,))
        eps = torch.randn_like(x)
        a = alpha[t][:, None, None, None]
        pred = net(a.sqrt() * x + (1 - a).sqrt() * eps, t)
        diff = pred - eps
        loss = diff.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update(net)
        record.add(diff.detach(), t)
        return loss

    warm = ErrorRecord()
    for _ in range(3):
        step(warm)
    record = ErrorRecord()
    n = 200
    t0 = time.perf_counter()
    for it in range(n):
        loss = step(record)
        if it % 50 == 49:
            print(it + 1, f"{loss.item():.4f}", " ".join(f"{v:.2f}" for v in record.summary().tolist()))
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={n}")


if __name__ == "__main__":
    main()
