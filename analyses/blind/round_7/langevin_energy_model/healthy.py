"""Energy-based model of small shape images, trained with short-run Langevin chains and a replay buffer."""
import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn

log = logging.getLogger("ebm")


def make_shapes(n, size, rng):
    """Rings, bars and blobs with soft edges, values in [-1, 1]."""
    yy, xx = np.mgrid[0:size, 0:size].astype(np.float32)
    images = np.empty((n, 1, size, size), dtype=np.float32)
    for i in range(n):
        cy, cx = rng.uniform(size * 0.35, size * 0.65, 2)
        kind = rng.integers(3)
        if kind == 0:
            radius = rng.uniform(size * 0.18, size * 0.3)
            d = np.abs(np.hypot(yy - cy, xx - cx) - radius) - 1.0
        elif kind == 1:
            a = rng.uniform(0, np.pi)
            d = np.abs((xx - cx) * np.sin(a) - (yy - cy) * np.cos(a)) - 1.2
        else:
            d = np.hypot(yy - cy, xx - cx) - rng.uniform(size * 0.15, size * 0.3)
        images[i, 0] = 2.0 / (1.0 + np.exp(2.0 * d)) - 1.0
    return torch.from_numpy(images)


class EnergyNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.SiLU(),
            nn.Conv2d(width, 2 * width, 4, stride=2, padding=1), nn.SiLU(),
            nn.Conv2d(2 * width, 4 * width, 4, stride=2, padding=1), nn.SiLU(),
            nn.Conv2d(4 * width, 4 * width, 4, stride=2, padding=1), nn.SiLU(),
        )
        self.head = nn.Linear(4 * width, 1)

    def forward(self, x):
        h = self.body(x).mean(dim=(2, 3))
        return self.head(h).squeeze(1)


class ReplayBuffer:
    def __init__(self, capacity, shape):
        self.samples = torch.rand(capacity, *shape) * 2 - 1

    def draw(self, n, fresh):
        idx = torch.randint(len(self.samples), (n,))
        x = self.samples[idx].clone()
        new = torch.rand(n) < fresh
        x[new] = torch.rand(int(new.sum()), *x.shape[1:]) * 2 - 1
        return idx, x

    def put(self, idx, x):
        self.samples[idx] = x


class Sampler:
    def __init__(self, net, n_steps, step_size, noise):
        self.net = net
        self.n_steps = n_steps
        self.step_size = step_size
        self.noise = noise

    def run(self, x):
        x = x.clone().requires_grad_(True)
        for _ in range(self.n_steps):
            energy = self.net(x).sum()
            (grad,) = torch.autograd.grad(energy, x)
            with torch.no_grad():
                x.add_(grad.clamp_(-0.03, 0.03), alpha=-self.step_size)
                x.add_(torch.randn_like(x), alpha=self.noise).clamp_(-1, 1)
        return x.detach()


def separation(net, real, buffer, n=256):
    """How well the energy tells held-out shapes from chain samples (AUC)."""
    with torch.no_grad():
        e_real = net(real[:n])
        e_fake = net(buffer.samples[:n])
    return (e_real[:, None] < e_fake[None, :]).float().mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=70)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--size", type=int, default=16)
    p.add_argument("--width", type=int, default=32)
    p.add_argument("--langevin-steps", type=int, default=12)
    p.add_argument("--step-size", type=float, default=10.0)
    p.add_argument("--noise", type=float, default=0.005)
    p.add_argument("--lr", type=float, default=2e-4)
    p.add_argument("--reg", type=float, default=0.1)
    p.add_argument("--eval-every", type=int, default=25)
    p.add_argument("--seed", type=int, default=5)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    train = make_shapes(3000, args.size, rng)
    held_out = make_shapes(256, args.size, rng)

    net = EnergyNet(args.width)
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr, betas=(0.0, 0.999))
    buffer = ReplayBuffer(4096, (1, args.size, args.size))
    sampler = Sampler(net, args.langevin_steps, args.step_size, args.noise)

    idx, x = buffer.draw(args.batch, 0.05)
    sampler.run(x)  # warm-up

    order = torch.randperm(len(train))
    cursor = 0
    t0 = time.perf_counter()
    for step in range(1, args.steps + 1):
        if cursor + args.batch > len(train):
            order, cursor = torch.randperm(len(train)), 0
        real = train[order[cursor:cursor + args.batch]]
        cursor += args.batch
        real = (real + 0.01 * torch.randn_like(real)).clamp_(-1, 1)

        idx, start = buffer.draw(args.batch, fresh=0.05)
        fake = sampler.run(start)
        buffer.put(idx, fake)

        e = net(torch.cat([real, fake]))
        e_real, e_fake = e.chunk(2)
        contrast = e_real.mean() - e_fake.mean()
        reg = (e_real ** 2).mean() + (e_fake ** 2).mean()
        loss = contrast + args.reg * reg
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()

        if step % args.eval_every == 0:
            auc = separation(net, held_out, buffer)
            log.info("step %d contrast %.4f reg %.4f auc %.3f", step, contrast.item(), reg.item(), auc)
    seconds = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (seconds, args.steps))


if __name__ == "__main__":
    main()
