"""Artificial genomes: a Wasserstein GAN with gradient penalty on binary haplotypes."""
import argparse
import time

import numpy as np
import torch
from torch import nn


def mosaic_haplotypes(n, sites, founders, seed):
    """Haplotypes copied from a few founders with crossovers and rare mutations."""
    rng = np.random.default_rng(seed)
    freq = rng.beta(0.6, 1.2, sites)
    panel = rng.random((founders, sites)) < freq
    switch = rng.random((n, sites)) < 0.02
    switch[:, 0] = True
    source = rng.integers(0, founders, (n, sites))
    last = np.maximum.accumulate(np.where(switch, np.arange(sites), 0), axis=1)
    copied = np.take_along_axis(source, last, 1)
    hap = panel[copied, np.arange(sites)] ^ (rng.random((n, sites)) < 0.005)
    return torch.from_numpy(hap.astype(np.float32))


class Generator(nn.Module):
    def __init__(self, z_dim, sites, width):
        super().__init__()
        self.z_dim = z_dim
        self.net = nn.Sequential(
            nn.Linear(z_dim, width), nn.LeakyReLU(0.01),
            nn.Linear(width, 2 * width), nn.LeakyReLU(0.01),
            nn.Linear(2 * width, 2 * width), nn.LeakyReLU(0.01),
            nn.Linear(2 * width, sites), nn.Sigmoid())

    def forward(self, n):
        return self.net(torch.randn(n, self.z_dim))


class Critic(nn.Module):
    def __init__(self, sites, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(sites, width), nn.LeakyReLU(0.01),
            nn.Linear(width, width // 2), nn.LeakyReLU(0.01),
            nn.Linear(width // 2, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class Trainer:
    def __init__(self, data, args):
        self.data, self.args = data, args
        sites = data.shape[1]
        self.gen = Generator(args.latent, sites, args.gen_width)
        self.critic = Critic(sites, args.critic_width)
        self.opt_g = torch.optim.Adam(self.gen.parameters(), lr=args.lr, betas=(0.5, 0.9))
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=args.lr, betas=(0.5, 0.9))
        self.updates = 0

    def real_batches(self):
        while True:
            order = torch.randperm(len(self.data))
            for i in range(0, len(order) - self.args.batch + 1, self.args.batch):
                yield self.data[order[i:i + self.args.batch]]

    def penalty(self, real, fake):
        eps = torch.rand(len(real), 1)
        mixed = (eps * real + (1 - eps) * fake.detach()).requires_grad_(True)
        grad = torch.autograd.grad(self.critic(mixed).sum(), mixed, create_graph=True)[0]
        return (grad.norm(dim=1) - 1).square().mean()

    def critic_step(self, real):
        fake = self.gen(len(real))
        gap = self.critic(real).mean() - self.critic(fake).mean()
        loss = -gap + self.args.gp * self.penalty(real, fake)
        self.opt_c.zero_grad()
        loss.backward()
        self.opt_c.step()
        self.updates += 1
        return gap.item()

    def generator_step(self):
        self.critic.requires_grad_(False)
        loss = -self.critic(self.gen(self.args.batch)).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        self.critic.requires_grad_(True)
        self.updates += 1
        return loss.item()

    @torch.no_grad()
    def quality(self):
        """How well allele frequencies and the LD of neighbours are matched."""
        fake = (self.gen(1000) > 0.5).float()
        real = self.data[:1000]
        freq = (fake.mean(0) - real.mean(0)).abs().mean().item()
        ld = ((fake[:, 1:] * fake[:, :-1]).mean(0) - (real[:, 1:] * real[:, :-1]).mean(0))
        return freq, ld.abs().mean().item()

    def train(self):
        batches = self.real_batches()
        gaps, losses = [], []
        for it in range(1, self.args.iterations + 1):
            for _ in range(self.args.n_critic):
                gaps.append(self.critic_step(next(batches)))
            losses.append(self.generator_step())
            if it % self.args.report == 0:
                freq, ld = self.quality()
                print(f"iteration {it:4d}  gap {np.mean(gaps):.3f}  generator {np.mean(losses):.3f}  "
                      f"frequency error {freq:.3f}  ld error {ld:.3f}")
                gaps, losses = [], []


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--haplotypes", type=int, default=4000)
    ap.add_argument("--sites", type=int, default=805)
    ap.add_argument("--latent", type=int, default=128)
    ap.add_argument("--gen-width", type=int, default=320)
    ap.add_argument("--critic-width", type=int, default=512)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--iterations", type=int, default=90)
    ap.add_argument("--n-critic", type=int, default=5)
    ap.add_argument("--gp", type=float, default=10.0)
    ap.add_argument("--lr", type=float, default=2e-4)
    ap.add_argument("--report", type=int, default=15)
    args = ap.parse_args()
    torch.manual_seed(21)
    trainer = Trainer(mosaic_haplotypes(args.haplotypes, args.sites, 24, 21), args)
    t0 = time.perf_counter()
    trainer.train()
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={trainer.updates}")
