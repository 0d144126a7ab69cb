"""WGAN-GP that makes artificial haplotypes (0/1 at each variant site)."""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn


@dataclass
class Hyper:
    haplotypes: int = 4000
    sites: int = 805
    founders: int = 24
    latent: int = 128
    gen_width: int = 320
    critic_width: int = 512
    batch: int = 128
    iterations: int = 90
    n_critic: int = 5
    gp: float = 10.0
    lr: float = 2e-4
    report: int = 15
    seed: int = 21


def founder_mosaics(hp):
    rng = np.random.default_rng(hp.seed)
    freq = rng.beta(0.6, 1.2, hp.sites)
    panel = rng.random((hp.founders, hp.sites)) < freq
    cross = rng.random((hp.haplotypes, hp.sites)) < 0.02
    cross[:, 0] = True
    donor = rng.integers(0, hp.founders, cross.shape)
    site = np.arange(hp.sites)
    last = np.maximum.accumulate(np.where(cross, site, 0), axis=1)
    hap = panel[np.take_along_axis(donor, last, 1), site]
    hap ^= rng.random(hap.shape) < 0.005
    return torch.from_numpy(hap.astype(np.float32))


def perceptron(sizes, final=None):
    layers = []
    for i, (a, b) in enumerate(zip(sizes[:-1], sizes[1:])):
        if i:
            layers.append(nn.LeakyReLU(0.01))
        layers.append(nn.Linear(a, b))
    if final is not None:
        layers.append(final)
    return nn.Sequential(*layers)


def endless(data, batch):
    while True:
        order = torch.randperm(len(data))
        for i in range(0, len(order) - batch + 1, batch):
            yield data[order[i:i + batch]]


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    point = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(point).sum(), point, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean()


@torch.no_grad()
def compare(generator, data, hp):
    fake = (generator(torch.randn(1000, hp.latent)) > 0.5).float()
    real = data[:1000]
    freq = (fake.mean(0) - real.mean(0)).abs().mean().item()
    joint_fake = (fake[:, 1:] * fake[:, :-1]).mean(0)
    joint_real = (real[:, 1:] * real[:, :-1]).mean(0)
    return freq, (joint_fake - joint_real).abs().mean().item()


def main():
    hp = Hyper()
    torch.manual_seed(hp.seed)
    data = founder_mosaics(hp)
    w = hp.gen_width
    generator = perceptron([hp.latent, w, 2 * w, 2 * w, hp.sites], nn.Sigmoid())
    critic = perceptron([hp.sites, hp.critic_width, hp.critic_width // 2, 1])
    opt_g = torch.optim.Adam(generator.parameters(), lr=hp.lr, betas=(0.5, 0.9))
    opt_c = torch.optim.Adam(critic.parameters(), lr=hp.lr, betas=(0.5, 0.9))

    stream, updates = endless(data, hp.batch), 0
    gap_sum = gen_sum = 0.0
    begin = time.perf_counter()
    for it in range(1, hp.iterations + 1):
        for _ in range(hp.n_critic):
            real = next(stream)
            with torch.no_grad():
                fake = generator(torch.randn(hp.batch, hp.latent))
            gap = critic(real).mean() - critic(fake).mean()
            loss = hp.gp * gradient_penalty(critic, real, fake) - gap
            opt_c.zero_grad()
            loss.backward()
            opt_c.step()
            updates += 1
            gap_sum += gap.item()

        critic.requires_grad_(False)
        loss = -critic(generator(torch.randn(hp.batch, hp.latent))).mean()
        opt_g.zero_grad()
        loss.backward()
        opt_g.step()
        critic.requires_grad_(True)
        updates += 1
        gen_sum += loss.item()

        if it % hp.report == 0:
            freq, ld = compare(generator, data, hp)
            print(f"{it:4d}: gap {gap_sum / hp.report / hp.n_critic:.3f}, generator "
                  f"{gen_sum / hp.report:.3f}, frequency error {freq:.3f}, ld error {ld:.3f}")
            gap_sum = gen_sum = 0.0
    print(f"loop_s={time.perf_counter() - begin:.3f} steps={updates}")


if __name__ == "__main__":
    main()
