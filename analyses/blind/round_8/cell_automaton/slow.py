"""Neural cellular automaton that grows a pattern from a seed cell, with a pool of states."""
import time
from types import SimpleNamespace

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

cfg = SimpleNamespace(
    size=36,
    channels=16,
    hidden=96,
    batch=6,
    pool=256,
    min_iter=16,
    max_iter=24,
    fire=0.5,
    lr=2e-3,
    steps=42,
    threads=3,
    seed=77,
)

torch.set_num_threads(cfg.threads)
torch.manual_seed(cfg.seed)
np.random.seed(cfg.seed)


def draw_target(n):
    """A lizard-like blob: RGBA in [0, 1]."""
    y, x = np.mgrid[-1:1:n * 1j, -1:1:n * 1j]
    r, a = np.hypot(x, y), np.arctan2(y, x)
    alpha = (r < 0.55 + 0.15 * np.cos(5 * a)).astype(np.float32)
    rgb = np.stack([0.5 + 0.5 * np.sin(4 * x), 0.5 + 0.5 * np.cos(6 * r), 0.5 + 0.5 * np.sin(5 * y)])
    return torch.from_numpy(np.concatenate([rgb * alpha, alpha[None]]).astype(np.float32))


class Automaton(nn.Module):
    def __init__(self, channels, hidden, fire):
        super().__init__()
        sobel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]]) / 8
        ident = torch.zeros(3, 3)
        ident[1, 1] = 1
        bank = torch.stack([ident, sobel, sobel.T])
        self.register_buffer("bank", bank.repeat(channels, 1, 1).unsqueeze(1))
        self.update = nn.Sequential(nn.Conv2d(3 * channels, hidden, 1), nn.ReLU(), nn.Conv2d(hidden, channels, 1))
        nn.init.zeros_(self.update[-1].weight)
        nn.init.zeros_(self.update[-1].bias)
        self.channels, self.fire = channels, fire

    @staticmethod
    def alive(x):
        return F.max_pool2d(x[:, 3:4], 3, 1, 1) > 0.1

    def forward(self, x):
        before = self.alive(x)
        seen = F.conv2d(x, self.bank, padding=1, groups=self.channels)
        mask = torch.rand(x.shape[0], 1, *x.shape[2:]) < self.fire
        x = x + self.update(seen) * mask
        return x * (before & self.alive(x))


class Pool:
    def __init__(self, n, seed_state):
        self.states = seed_state.repeat(n, 1, 1, 1)
        self.seed_state = seed_state

    def draw(self, k, target):
        idx = torch.randint(0, len(self.states), (k,))
        x = self.states[idx].clone()
        worst = (x[:, :4] - target).square().mean((1, 2, 3)).argmax()
        x[worst] = self.seed_state
        return idx, x

    def put(self, idx, x):
        self.states[idx] = x.detach()


def grow(model, x, iters):
    for _ in range(iters):
        x = model(x)
    return x


def main():
    target = draw_target(cfg.size)
    seed_state = torch.zeros(cfg.channels, cfg.size, cfg.size)
    seed_state[3:, cfg.size // 2, cfg.size // 2] = 1.0
    pool = Pool(cfg.pool, seed_state)
    model = Automaton(cfg.channels, cfg.hidden, cfg.fire)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr, fused=True)
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, [30], 0.3)

    _, x = pool.draw(cfg.batch, target)
    (grow(model, x, 4)[:, :4] - target).square().mean().backward()
    opt.zero_grad(set_to_none=True)

    losses = []
    tic = time.perf_counter()
    for step in range(cfg.steps):
        idx, x = pool.draw(cfg.batch, target)
        x = grow(model, x, int(np.random.randint(cfg.min_iter, cfg.max_iter)))
        loss = (x[:, :4] - target).square().mean() + 0.01 * (x.abs() - 2).clamp_min(0).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        pool.put(idx, x)
        losses.append(loss.detach())
        if (step + 1) % 14 == 0:
            print("step %d loss %.5f" % (step + 1, torch.stack(losses[-14:]).mean()))
    seconds = time.perf_counter() - tic
    print("loop_s=%.3f steps=%d" % (seconds, cfg.steps))


if __name__ == "__main__":
    main()
