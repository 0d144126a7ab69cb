"""Unsupervised deformable registration of 2-D slices (VoxelMorph style), trained on synthetic anatomy."""
import logging
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
logger = logging.getLogger("register")


@dataclass
class Options:
    size: int = 96
    n_images: int = 192
    batch: int = 8
    steps: int = 120
    lr: float = 4e-4
    smooth: float = 0.05
    integrate: int = 5
    log_every: int = 15
    seed: int = 21
    smoothing: float = 0.9
    enc: tuple = (24, 48, 96, 192)


def synth_slices(opt):
    """Smooth random blobs with a bright rim: enough structure to align."""
    rng = np.random.default_rng(opt.seed)
    yy, xx = np.mgrid[-1:1:opt.size * 1j, -1:1:opt.size * 1j].astype(np.float32)
    out = np.zeros((opt.n_images, 1, opt.size, opt.size), np.float32)
    for i in range(opt.n_images):
        a, b = rng.uniform(0.55, 0.8, 2)
        r = np.hypot(yy / a, xx / b)
        img = 0.6 / (1 + np.exp((r - 1) * 25)) + 0.4 * np.exp(-((r - 1) ** 2) * 120)
        for _ in range(5):
            cy, cx, s, w = *rng.uniform(-0.4, 0.4, 2), rng.uniform(0.05, 0.15), rng.uniform(-0.4, 0.4)
            img += w * np.exp(-((yy - cy) ** 2 + (xx - cx) ** 2) / (2 * s * s))
        out[i, 0] = img + rng.normal(0, 0.02, img.shape)
    return torch.from_numpy(out)


def block(cin, cout, stride=1):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, stride=stride, padding=1), nn.LeakyReLU(0.2))


class FieldNet(nn.Module):
    def __init__(self, enc):
        super().__init__()
        self.down = nn.ModuleList()
        cin = 2
        for c in enc:
            self.down.append(block(cin, c, stride=2))
            cin = c
        self.mid = nn.Sequential(block(cin, 768), block(768, cin))
        self.up = nn.ModuleList()
        for skip in reversed(enc[:-1]):
            self.up.append(block(cin + skip, skip))
            cin = skip
        self.head = nn.Conv2d(cin, 2, 3, padding=1)
        nn.init.normal_(self.head.weight, std=1e-4)
        nn.init.zeros_(self.head.bias)

    def forward(self, moving, fixed):
        x = torch.cat([moving, fixed], 1)
        skips = []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
        x = self.mid(x)
        skips.pop()
        for layer in self.up:
            x = F.interpolate(x, scale_factor=2, mode="nearest")
            x = layer(torch.cat([x, skips.pop()], 1))
        return self.head(x)


class Warp(nn.Module):
    def __init__(self, size, integrate):
        super().__init__()
        self.integrate = integrate
        self.register_buffer("grid", self.identity(size), persistent=False)
        self.register_buffer("coarse", self.identity(size // 2), persistent=False)

    @staticmethod
    def identity(n):
        lin = (torch.arange(n) + 0.5) * 2 / n - 1
        gy, gx = torch.meshgrid(lin, lin, indexing="ij")
        return torch.stack([gx, gy], -1)[None]

    @staticmethod
    def sample(img, where):
        return F.grid_sample(img, where, padding_mode="border", align_corners=False)

    def forward(self, image, velocity):
        flow = velocity / 2 ** self.integrate
        for _ in range(self.integrate):
            flow = flow + self.sample(flow, self.coarse + flow.permute(0, 2, 3, 1))
        full = F.interpolate(flow, scale_factor=2, mode="bilinear", align_corners=False)
        return self.sample(image, self.grid + full.permute(0, 2, 3, 1)), flow


def gradient_penalty(flow):
    dy = flow[:, :, 1:] - flow[:, :, :-1]
    dx = flow[:, :, :, 1:] - flow[:, :, :, :-1]
    return dy.square().mean() + dx.square().mean()


class Keeper:
    """Keeps the best state on disk, so that a job can be picked up from it."""

    def __init__(self, folder, model, optimizer, opt):
        self.path = os.path.join(folder, "best.pt")
        self.model, self.optimizer, self.opt = model, optimizer, opt
        self.best, self.average = float("inf"), None

    def update(self, step, value):
        a = self.opt.smoothing
        self.average = value if self.average is None else a * self.average + (1 - a) * value
        if self.average < self.best:
            self.best = self.average
            self.write(step)

    def write(self, step):
        state = {"step": step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                 "best": self.best}
        torch.save(state, self.path)


def main():
    opt = Options()
    torch.manual_seed(opt.seed)
    images = synth_slices(opt)
    net, warp = FieldNet(opt.enc), Warp(opt.size, opt.integrate)
    optimizer = torch.optim.Adam(net.parameters(), lr=opt.lr)
    gen = torch.Generator().manual_seed(opt.seed)
    logger.info("weights: %d", sum(p.numel() for p in net.parameters()))

    def step_once():
        pair = torch.randint(opt.n_images, (2, opt.batch), generator=gen)
        moving, fixed = images[pair[0]], images[pair[1]]
        moved, flow = warp(moving, net(moving, fixed))
        loss = F.mse_loss(moved, fixed) * 10 + opt.smooth * gradient_penalty(flow) * opt.size
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    with tempfile.TemporaryDirectory() as folder:
        keeper = Keeper(folder, net, optimizer, opt)
        step_once()
        start = time.perf_counter()
        for step in range(1, opt.steps + 1):
            loss = step_once()
            keeper.update(step, loss)
            if step % opt.log_every == 0:
                logger.info("step %d loss %.4f smoothed %.4f", step, loss, keeper.average)
        elapsed = time.perf_counter() - start
    print("loop_s=%.3f steps=%d" % (elapsed, opt.steps))


if __name__ == "__main__":
    main()
