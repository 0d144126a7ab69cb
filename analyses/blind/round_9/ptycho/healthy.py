"""Multislice electron ptychography with an untrained convolutional network as image prior.

A decoder maps a fixed noise map onto the phase and the absorption of every slice of a thin
crystal; the loss compares simulated diffraction amplitudes with the observed ones.
"""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--field", type=int, default=160, help="side of the reconstructed field, pixels")
    p.add_argument("--window", type=int, default=48, help="side of probe and detector, pixels")
    p.add_argument("--slices", type=int, default=5)
    p.add_argument("--scan", type=int, default=20, help="scan points per side")
    p.add_argument("--batch", type=int, default=80)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--dose", type=float, default=4e4)
    p.add_argument("--report-every", type=int, default=20)
    p.add_argument("--seed", type=int, default=4)
    return p.parse_args()


def make_probe(n, defocus=0.02, aperture=0.28):
    """Convergent probe: circular aperture with a quadratic phase, at the sample."""
    k = np.fft.fftfreq(n)
    k2 = k[:, None] ** 2 + k[None, :] ** 2
    lens = (np.sqrt(k2) < aperture) * np.exp(-1j * np.pi * defocus * n * n * k2)
    probe = np.fft.fftshift(np.fft.ifft2(lens))
    return probe / np.sqrt((np.abs(probe) ** 2).sum())


def make_propagator(n, dz=6.0):
    k = np.fft.fftfreq(n)
    return np.exp(-1j * np.pi * dz * (k[:, None] ** 2 + k[None, :] ** 2))


def build_crystal(field, slices, rng):
    """Phase of each slice: a lattice of atoms with some vacancies and a tilt."""
    yy, xx = np.mgrid[:field, :field].astype(np.float64)
    out = np.zeros((slices, field, field))
    a = 11.0
    for s in range(slices):
        for i in range(int(field / a) + 2):
            for j in range(int(field / a) + 2):
                if rng.random() < 0.08:
                    continue
                cy, cx = i * a + 0.8 * s, j * a + (a / 2 if i % 2 else 0) - 0.5 * s
                y0, y1 = max(int(cy) - 7, 0), min(int(cy) + 8, field)
                x0, x1 = max(int(cx) - 7, 0), min(int(cx) + 8, field)
                if y0 >= y1 or x0 >= x1:
                    continue
                r2 = (yy[y0:y1, x0:x1] - cy) ** 2 + (xx[y0:y1, x0:x1] - cx) ** 2
                out[s, y0:y1, x0:x1] += rng.uniform(0.3, 0.5) * np.exp(-r2 / 4.5)
    return out


def measure(phase, probe, propagator, positions, dose, rng):
    n = probe.shape[0]
    amplitudes = np.empty((len(positions), n, n), dtype=np.float32)
    for k, (y, x) in enumerate(positions):
        wave = probe
        for s in range(len(phase)):
            wave = wave * np.exp(1j * phase[s, y:y + n, x:x + n])
            if s + 1 < len(phase):
                wave = np.fft.ifft2(np.fft.fft2(wave) * propagator)
        intensity = np.abs(np.fft.fft2(wave, norm="ortho")) ** 2
        amplitudes[k] = np.sqrt(rng.poisson(intensity * dose) / dose)
    return amplitudes


class ObjectPrior(nn.Module):
    def __init__(self, slices, width=10):
        super().__init__()
        self.stem = nn.Conv2d(8, width, 3, padding=1)
        self.mid = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.LeakyReLU(0.1),
            nn.Conv2d(width, width, 3, padding=1), nn.LeakyReLU(0.1))
        self.fine = nn.Sequential(nn.Conv2d(width, 16, 3, padding=1), nn.LeakyReLU(0.1))
        self.head = nn.Conv2d(16, 2 * slices, 3, padding=1)
        nn.init.zeros_(self.head.bias)
        self.slices = slices

    def forward(self, z):
        x = F.leaky_relu(self.stem(z), 0.1)
        x = x + self.mid(x)
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        x = self.head(self.fine(x))[0]
        phase, absorb = x[: self.slices], x[self.slices:]
        return torch.polar(torch.exp(-F.softplus(absorb - 4.0)), phase)


class ForwardModel(nn.Module):
    """Multislice forward model from the transmission of the slices to far-field amplitudes."""

    def __init__(self, probe, propagator):
        super().__init__()
        self.register_buffer("probe", torch.from_numpy(probe).to(torch.complex64))
        self.register_buffer("propagator", torch.from_numpy(propagator).to(torch.complex64))
        self.n = probe.shape[0]

    def forward(self, transmission, pos):
        ar = torch.arange(self.n)
        rows = pos[:, 0, None, None] + ar[None, :, None]
        cols = pos[:, 1, None, None] + ar[None, None, :]
        patches = transmission[:, rows, cols]
        wave = self.probe.expand(len(pos), -1, -1)
        for s in range(len(patches)):
            wave = wave * patches[s]
            if s + 1 < len(patches):
                wave = torch.fft.ifft2(torch.fft.fft2(wave) * self.propagator)
        return torch.fft.fft2(wave, norm="ortho").abs()


def main():
    args = parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)

    probe = make_probe(args.window)
    propagator = make_propagator(args.window)
    phase = build_crystal(args.field, args.slices, rng)
    axis = np.linspace(0, args.field - args.window, args.scan).round().astype(int)
    positions = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    observed = torch.from_numpy(measure(phase, probe, propagator, positions, args.dose, rng))
    positions = torch.from_numpy(positions)

    prior = ObjectPrior(args.slices)
    forward_model = ForwardModel(probe, propagator)
    code = torch.rand(1, 8, args.field // 2, args.field // 2) * 0.5
    optimizer = torch.optim.Adam(prior.parameters(), lr=args.lr)
    scale = observed.square().mean()

    start = time.perf_counter()
    perm, cursor = torch.randperm(len(positions)), 0
    for step in range(1, args.steps + 1):
        if cursor + args.batch > len(perm):
            perm, cursor = torch.randperm(len(positions)), 0
        idx = perm[cursor:cursor + args.batch]
        cursor += args.batch
        amplitude = forward_model(prior(code), positions[idx])
        loss = (amplitude - observed[idx]).square().mean() / scale
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % args.report_every == 0:
            print(f"step {step:4d}  misfit {loss.item():.4f}", flush=True)
    print(f"loop_s={time.perf_counter() - start:.3f} steps={args.steps}")


if __name__ == "__main__":
    main()
