"""Growing neural cellular automata: learn a local rule that grows a picture from one seed cell."""
import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("nca")


def make_target(size, channels_last=4):
    """A small RGBA picture: a ring with three coloured petals."""
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
    c = (size - 1) / 2
    r = np.hypot(yy - c, xx - c) / (size / 2)
    phi = np.arctan2(yy - c, xx - c)
    petal = 0.45 + 0.18 * np.cos(3 * phi)
    alpha = 1.0 / (1.0 + np.exp((r - petal) * 40))
    rgb = np.stack([0.5 + 0.5 * np.cos(phi), 0.5 + 0.5 * np.cos(phi - 2.1), 0.5 + 0.5 * np.cos(phi + 2.1)])
    return torch.from_numpy(np.concatenate([rgb * alpha, alpha[None]]).astype(np.float32))


class Automaton(nn.Module):
    def __init__(self, channels=16, hidden=96, fire_rate=0.5):
        super().__init__()
        self.channels = channels
        self.fire_rate = fire_rate
        sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8
        ident = torch.zeros(3, 3)
        ident[1, 1] = 1.0
        kernel = torch.stack([ident, sobel, sobel.t()])
        self.register_buffer("kernel", kernel.repeat(channels, 1, 1)[:, None].contiguous())
        self.fc1 = nn.Conv2d(channels * 3, hidden, 1)
        self.fc2 = nn.Conv2d(hidden, channels, 1, bias=False)
        nn.init.zeros_(self.fc2.weight)

    @staticmethod
    def alive(x):
        return F.max_pool2d(x[:, 3:4], 3, stride=1, padding=1) > 0.1

    def update(self, x):
        before = self.alive(x)
        y = F.conv2d(x, self.kernel, padding=1, groups=self.channels)
        dx = self.fc2(F.relu(self.fc1(y)))
        fire = (torch.rand_like(x[:, :1]) < self.fire_rate).float()
        x = x + dx * fire
        return x * (before & self.alive(x)).float()

    def forward(self, x, n_iter):
        for _ in range(n_iter):
            x = self.update(x)
        return x


class SamplePool:
    """Pool of grown states; the worst state in a batch is replaced by a seed."""

    def __init__(self, seed, n):
        self.seed = seed
        self.states = seed.repeat(n, 1, 1, 1)

    def sample(self, k, gen):
        idx = torch.randperm(len(self.states), generator=gen)[:k]
        return idx, self.states[idx]

    def commit(self, idx, states):
        self.states[idx] = states


def pixel_loss(x, target):
    return (x[:, :4] - target).square().mean(dim=(1, 2, 3))


def damage(x, gen):
    size = x.shape[-1]
    yy, xx = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    cy, cx = torch.randint(size // 4, 3 * size // 4, (2, len(x), 1, 1), generator=gen)
    hole = ((yy - cy) ** 2 + (xx - cx) ** 2 < (size // 6) ** 2)[:, None]
    return x * (~hole).float()


@torch.no_grad()
def evaluate(model, seed, target, n_iter):
    model.eval()
    x = model(seed, n_iter)
    model.train()
    return pixel_loss(x, target).mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--size", type=int, default=40)
    p.add_argument("--steps", type=int, default=56)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--pool", type=int, default=128)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--eval-every", type=int, default=20)
    p.add_argument("--seed", type=int, default=5)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)

    model = Automaton()
    target = make_target(args.size)
    seed = torch.zeros(1, model.channels, args.size, args.size)
    seed[:, 3:, args.size // 2, args.size // 2] = 1.0
    pool = SamplePool(seed, args.pool)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.MultiStepLR(opt, [args.steps * 2 // 3], gamma=0.3)
    log.info("parameters: %d", sum(q.numel() for q in model.parameters()))

    def train_step():
        idx, x = pool.sample(args.batch, gen)
        worst = pixel_loss(x, target).argmax()
        x[worst] = seed[0]
        x[-2:] = damage(x[-2:], gen)
        n_iter = int(torch.randint(20, 29, (1,), generator=gen))
        out = model(x, n_iter)
        loss = pixel_loss(out, target).mean() + 1e-3 * (out - out.clamp(-2, 2)).abs().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        pool.commit(idx, out.detach())
        return loss.detach()

    train_step()
    t0 = time.perf_counter()
    running = torch.zeros(())
    for step in range(1, args.steps + 1):
        running += train_step()
        if step % args.eval_every == 0:
            err = evaluate(model, seed, target, 24)
            log.info("step %d loss %.4f grown from seed %.4f", step, running.item() / args.eval_every, err)
            running.zero_()
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - t0, args.steps))


if __name__ == "__main__":
    main()
