"""Gaze regression from an event camera.

Events arrive in bins of 2 ms.  Every pixel keeps a leaky count of its events (one plane per polarity);
a small ConvNet looks at the planes after each group of bins and predicts where the pupil is.  Recordings
are streamed: the planes live on from one optimisation step to the next, as they do on the head-set.
"""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=220)
    p.add_argument("--warm-bins", type=int, default=400, help="bins streamed before the first step")
    p.add_argument("--streams", type=int, default=8)
    p.add_argument("--bins-per-step", type=int, default=6)
    p.add_argument("--height", type=int, default=96)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--leak", type=float, default=0.72)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--report", type=int, default=40)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


class EyeStream:
    """A pupil that wanders about; its rim fires events.  One object holds all recordings of the batch."""

    def __init__(self, n, height, width, rng):
        self.n, self.h, self.w, self.rng = n, height, width, rng
        self.pos = np.stack([rng.uniform(0.4, 0.6, n) * height, rng.uniform(0.4, 0.6, n) * width], 1)
        self.vel = rng.normal(0, 0.4, (n, 2))
        self.home = self.pos.copy()
        self.radius = rng.uniform(7, 10, n)

    def next_bin(self, events=120):
        rng = self.rng
        self.vel = 0.9 * self.vel + rng.normal(0, 0.25, (self.n, 2)) - 0.02 * (self.pos - self.home)
        self.pos = self.pos + self.vel
        ang = rng.uniform(0, 2 * np.pi, (self.n, events))
        rad = self.radius[:, None] + rng.normal(0, 0.7, (self.n, events))
        y = np.clip(self.pos[:, :1] + rad * np.sin(ang), 0, self.h - 1).astype(np.int64)
        x = np.clip(self.pos[:, 1:] + rad * np.cos(ang), 0, self.w - 1).astype(np.int64)
        along = self.vel[:, :1] * np.sin(ang) + self.vel[:, 1:] * np.cos(ang)
        pol = (along > 0).astype(np.int64)
        # a noisy pixel somewhere, now and then
        k = max(1, events // 40)
        y[:, :k] = rng.integers(0, self.h, (self.n, k))
        x[:, :k] = rng.integers(0, self.w, (self.n, k))
        stream = np.arange(self.n)[:, None]
        flat = ((stream * 2 + pol) * self.h + y) * self.w + x
        return torch.from_numpy(flat.reshape(-1))

    def target(self):
        centre = np.array([self.h / 2, self.w / 2])
        return torch.from_numpy((self.pos - centre) / 16.0).float()


class LeakySurface:
    def __init__(self, n, height, width, leak):
        self.planes = torch.zeros(n, 2, height, width)
        self.leak = leak
        self.one = torch.ones(1)

    def advance(self, flat):
        self.planes.mul_(self.leak)
        F.threshold_(self.planes, 1e-6, 0.0)
        self.planes.view(-1).index_add_(0, flat, self.one.expand(flat.numel()))
        return self.planes


class GazeNet(nn.Module):
    def __init__(self, height, width):
        super().__init__()
        self.c1 = nn.Conv2d(2, 12, 5, stride=2, padding=2)
        self.c2 = nn.Conv2d(12, 24, 3, stride=2, padding=1)
        self.c3 = nn.Conv2d(24, 32, 3, stride=2, padding=1)
        flat = 32 * ((height + 7) // 8) * ((width + 7) // 8)
        self.f1 = nn.Linear(flat, 64)
        self.f2 = nn.Linear(64, 2)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.c2(x))
        x = F.relu(self.c3(x))
        return self.f2(F.relu(self.f1(x.flatten(1))))


def main():
    a = parse()
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    eyes = EyeStream(a.streams, a.height, a.width, np.random.default_rng(a.seed))
    surface = LeakySurface(a.streams, a.height, a.width, a.leak)
    bins = a.warm_bins + a.steps * a.bins_per_step
    recording = iter([(eyes.next_bin(), eyes.target()) for _ in range(bins)])
    for _ in range(a.warm_bins):
        surface.advance(next(recording)[0])

    net = GazeNet(a.height, a.width)
    opt = torch.optim.Adam(net.parameters(), lr=a.lr, fused=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, a.lr, total_steps=a.steps)
    running = None
    t0 = time.perf_counter()
    for step in range(1, a.steps + 1):
        views, targets = [], []
        for b in range(a.bins_per_step):
            events, gaze = next(recording)
            planes = surface.advance(events)
            if b % 2 == 1:
                views.append(planes.clone())
                targets.append(gaze)
        x, y = torch.cat(views), torch.cat(targets)
        loss = F.smooth_l1_loss(net(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        running = loss.detach() if running is None else 0.95 * running + 0.05 * loss.detach()
        if step % a.report == 0:
            print(f"step {step:4d}  smooth-l1 {running.item():.4f}  lr {sched.get_last_lr()[0]:.5f}", flush=True)
    wall = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (wall, a.steps))


if __name__ == "__main__":
    main()
