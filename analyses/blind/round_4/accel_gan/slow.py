"""Spectral-hinge GAN on 1-D waveforms, with Accelerate driving both networks."""
import argparse
import math
import time

import torch
from accelerate import Accelerator
from accelerate.utils import release_memory, set_seed
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Waves(Dataset):
    """Decaying chirps of 512 samples; takes a list of positions and gives one batch."""

    def __init__(self, n, length=512, seed=0):
        g = torch.Generator().manual_seed(seed)
        t = torch.linspace(0, 1, length)
        f0, f1 = torch.rand(2, n, 1, generator=g) * 20 + 4
        ph = torch.rand(n, 1, generator=g) * 2 * math.pi
        decay = torch.rand(n, 1, generator=g) * 4
        wave = torch.sin(2 * math.pi * (f0 * t + (f1 - f0) * t ** 2 / 2) + ph) * (-decay * t).exp()
        self.x = wave[:, None] + 0.02 * torch.randn(n, 1, length, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, idx):
        return self.x[torch.as_tensor(idx)]


class Generator(nn.Module):
    def __init__(self, z=64, c=96):
        super().__init__()
        self.c = c
        self.fc = nn.Linear(z, c * 16)
        layers, ch = [], c
        for _ in range(3):
            layers += [nn.ConvTranspose1d(ch, ch * 2 // 3, 8, 2, 3), nn.GroupNorm(1, ch * 2 // 3), nn.LeakyReLU(0.2)]
            ch = ch * 2 // 3
        layers += [nn.ConvTranspose1d(ch, 24, 8, 4, 2), nn.LeakyReLU(0.2), nn.Conv1d(24, 1, 9, padding=4), nn.Tanh()]
        self.net = nn.Sequential(*layers)

    def forward(self, z):
        return self.net(self.fc(z).view(len(z), self.c, 16))


class Critic(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        widths = [1, c, 2 * c, 3 * c, 4 * c]
        self.net = nn.Sequential(*[
            nn.Sequential(weight_norm(nn.Conv1d(i, o, 9, 2, 4)), nn.LeakyReLU(0.2))
            for i, o in zip(widths, widths[1:])
        ])
        self.out = nn.Linear(4 * c, 1)

    def forward(self, x):
        return self.out(self.net(x).mean(2)).squeeze(1)


def build_loader(args):
    ds = Waves(args.batch_size * 16, seed=args.seed)
    return DataLoader(ds, sampler=BatchSampler(RandomSampler(ds), args.batch_size, drop_last=True), batch_size=None)


def endless(loader):
    while True:
        yield from loader


@torch.no_grad()
def band_gap(fake, real):
    """Distance of the mean log spectra: a crude quality number."""
    a = torch.fft.rfft(fake[:, 0]).abs().clamp_min(1e-4).log().mean(0)
    b = torch.fft.rfft(real[:, 0]).abs().clamp_min(1e-4).log().mean(0)
    return (a - b).abs().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iterations", type=int, default=75)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--g-lr", type=float, default=3e-4)
    ap.add_argument("--d-lr", type=float, default=4e-4)
    ap.add_argument("--log-every", type=int, default=25)
    ap.add_argument("--seed", type=int, default=17)
    args = ap.parse_args()

    accelerator = Accelerator(cpu=True)
    set_seed(args.seed)
    gen, critic = Generator(), Critic()
    opt_g = torch.optim.Adam(gen.parameters(), lr=args.g_lr, betas=(0.0, 0.9), fused=True)
    opt_d = torch.optim.Adam(critic.parameters(), lr=args.d_lr, betas=(0.0, 0.9), fused=True)
    gen, critic, opt_g, opt_d = accelerator.prepare(gen, critic, opt_g, opt_d)
    batches = endless(build_loader(args))
    updates = 0

    accelerator.wait_for_everyone()
    t0 = time.perf_counter()
    for it in range(1, args.iterations + 1):
        real = next(batches).to(accelerator.device)
        z = torch.randn(len(real), 64, device=accelerator.device)

        # critic
        with torch.no_grad():
            fake = gen(z)
        s_real, s_fake = critic(torch.cat([real, fake])).chunk(2)
        loss_d = torch.relu(1 - s_real).mean() + torch.relu(1 + s_fake).mean()
        opt_d.zero_grad()
        accelerator.backward(loss_d)
        opt_d.step()
        updates += 1

        # generator
        critic.requires_grad_(False)
        fake = gen(torch.randn_like(z))
        score = critic(fake)
        loss_g = -score.mean()
        opt_g.zero_grad()
        accelerator.backward(loss_g)
        opt_g.step()
        critic.requires_grad_(True)
        updates += 1

        if it % args.log_every == 0:
            accelerator.print(f"it {it:4d} d {loss_d.item():.3f} g {loss_g.item():.3f} "
                              f"gap {band_gap(fake.detach(), real):.3f}", flush=True)
        # nothing of this iteration is needed any more
        fake, score, s_real, s_fake = release_memory(fake, score, s_real, s_fake)
    seconds = time.perf_counter() - t0
    accelerator.end_training()
    print("loop_s=%.3f steps=%d" % (seconds, updates))


if __name__ == "__main__":
    main()
