"""Unrolled reconstruction of undersampled multi-coil MR images (2-D variable density masks)."""
import argparse
import logging
import math
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

log = logging.getLogger("mri")


def fft2c(x):
    x = torch.fft.ifftshift(x, dim=(-2, -1))
    x = torch.fft.fft2(x, norm="ortho")
    return torch.fft.fftshift(x, dim=(-2, -1))


def ifft2c(k):
    k = torch.fft.ifftshift(k, dim=(-2, -1))
    k = torch.fft.ifft2(k, norm="ortho")
    return torch.fft.fftshift(k, dim=(-2, -1))


@dataclass
class Slices:
    target: torch.Tensor   # n, h, w complex
    zero_filled: torch.Tensor   # n, h, w complex, A^H y
    sens: torch.Tensor     # n, c, h, w complex
    sens_conj: torch.Tensor
    mask: torch.Tensor     # n, 1, h, w, zero frequency first

    def batch(self, idx):
        return self.target[idx], self.zero_filled[idx], self.sens[idx], self.sens_conj[idx], self.mask[idx]

    def __len__(self):
        return self.target.shape[0]


def phantom(rng, size, yy, xx):
    img = np.zeros((size, size), dtype=np.float32)
    for k in range(14):
        cy, cx = rng.uniform(-0.45, 0.45, 2) if k else (0.0, 0.0)
        a, b = rng.uniform(0.04, 0.3, 2) if k else (0.85, 0.7)
        t = rng.uniform(0, math.pi)
        u = (xx - cx) * math.cos(t) + (yy - cy) * math.sin(t)
        v = (yy - cy) * math.cos(t) - (xx - cx) * math.sin(t)
        img[(u / a) ** 2 + (v / b) ** 2 < 1] += rng.uniform(-0.3, 0.4) if k else 0.5
    phase = rng.normal(0, 0.5) + rng.normal(0, 0.6) * xx + rng.normal(0, 0.6) * yy
    return img * np.exp(1j * phase)


def coil_maps(rng, coils, yy, xx):
    maps = []
    for c in range(coils):
        ang = 2 * math.pi * c / coils + rng.normal(0, 0.1)
        d2 = (yy - 1.1 * math.sin(ang)) ** 2 + (xx - 1.1 * math.cos(ang)) ** 2
        maps.append(np.exp(-d2 / 1.2) * np.exp(1j * (ang + rng.normal(0, 0.4) * xx)))
    maps = np.stack(maps)
    return maps / np.sqrt((np.abs(maps) ** 2).sum(0, keepdims=True))


def density_mask(rng, size, accel, yy, xx):
    p = np.exp(-(yy ** 2 + xx ** 2) / 0.25) + 0.05
    p *= size * size / accel / p.sum()
    mask = rng.random((size, size)) < p
    mid = slice(size // 2 - 8, size // 2 + 8)
    mask[mid, mid] = True
    return mask.astype(np.float32)


def simulate(n, size, coils, accel, seed):
    rng = np.random.default_rng(seed)
    yy, xx = np.meshgrid(*[np.linspace(-1, 1, size, dtype=np.float32)] * 2, indexing="ij")
    imgs = torch.from_numpy(np.stack([phantom(rng, size, yy, xx) for _ in range(n)])).to(torch.complex64)
    sens = torch.from_numpy(np.stack([coil_maps(rng, coils, yy, xx) for _ in range(n)])).to(torch.complex64)
    mask = torch.from_numpy(np.stack([density_mask(rng, size, accel, yy, xx) for _ in range(n)]))[:, None]
    gen = torch.Generator().manual_seed(seed)
    kspace = fft2c(sens * imgs[:, None])
    kspace = mask * (kspace + 0.01 * torch.randn(kspace.shape, generator=gen, dtype=torch.complex64))
    conj = sens.conj().resolve_conj()
    zero_filled = (conj * ifft2c(kspace)).sum(1)
    mask = torch.fft.ifftshift(mask, dim=(-2, -1))  # the centring phases cancel in A^H A
    return Slices(imgs, zero_filled, sens, conj, mask)


def normal_operator(x, sens, sens_conj, mask):
    k = torch.fft.fft2(sens * x[:, None], norm="ortho")
    k *= mask
    return (sens_conj * torch.fft.ifft2(k, norm="ortho")).sum(1)


class SenseNormal(torch.autograd.Function):
    """x -> A^H A x. The operator is Hermitian, so its backward is itself."""

    @staticmethod
    def forward(ctx, x, sens, sens_conj, mask):
        ctx.save_for_backward(sens, sens_conj, mask)
        return normal_operator(x, sens, sens_conj, mask)

    @staticmethod
    def backward(ctx, grad):
        return normal_operator(grad, *ctx.saved_tensors), None, None, None


class Regulariser(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inp = nn.Conv2d(2, width, 3, padding=1)
        self.mid = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, 2, 3, padding=1)

    def forward(self, x):
        r = torch.view_as_real(x).permute(0, 3, 1, 2).contiguous()
        h = F.relu(self.inp(r), inplace=True)
        h = F.relu(self.mid(h), inplace=True)
        h = self.out(h)
        return torch.view_as_complex(h.permute(0, 2, 3, 1).contiguous())


class UnrolledNet(nn.Module):
    def __init__(self, cascades, width):
        super().__init__()
        self.regs = nn.ModuleList(Regulariser(width) for _ in range(cascades))
        self.step = nn.Parameter(torch.full((cascades,), 0.8))

    def forward(self, zero_filled, sens, sens_conj, mask):
        x = zero_filled
        for i, reg in enumerate(self.regs):
            x = x + reg(x)
            x = x - self.step[i] * (SenseNormal.apply(x, sens, sens_conj, mask) - zero_filled)
        return x


def image_loss(pred, target):
    return F.l1_loss(torch.view_as_real(pred), torch.view_as_real(target))


@torch.no_grad()
def psnr(model, data, batch_size):
    model.eval()
    total = 0.0
    for start in range(0, len(data), batch_size):
        target, *inputs = data.batch(slice(start, start + batch_size))
        err = (model(*inputs).abs() - target.abs()).square().mean((1, 2))
        peak = target.abs().amax((1, 2))
        total += (10 * torch.log10(peak ** 2 / err)).sum().item()
    model.train()
    return total / len(data)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--size", type=int, default=128)
    ap.add_argument("--coils", type=int, default=8)
    ap.add_argument("--accel", type=float, default=6.0)
    ap.add_argument("--cascades", type=int, default=5)
    ap.add_argument("--width", type=int, default=16)
    ap.add_argument("--batch-size", type=int, default=2)
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--eval-every", type=int, default=50)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    train = simulate(40, args.size, args.coils, args.accel, args.seed)
    valid = simulate(4, args.size, args.coils, args.accel, args.seed + 1)
    model = UnrolledNet(args.cascades, args.width)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
    log.info("%d parameters, zero-filled loss %.4f", sum(p.numel() for p in model.parameters()),
             image_loss(valid.zero_filled, valid.target).item())

    def update(idx):
        target, *inputs = train.batch(idx)
        loss = image_loss(model(*inputs), target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    for _ in range(2):
        update(torch.arange(args.batch_size))

    order = torch.randperm(len(train)).split(args.batch_size)
    pos = 0
    t0 = time.perf_counter()
    for step in range(1, args.steps + 1):
        if pos == len(order):
            order, pos = torch.randperm(len(train)).split(args.batch_size), 0
        loss = update(order[pos])
        pos += 1
        if step % 20 == 0:
            log.info("step %d loss %.4f", step, loss.item())
        if step % args.eval_every == 0:
            log.info("step %d psnr %.2f dB", step, psnr(model, valid, args.batch_size))
    loop_s = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (loop_s, args.steps))


if __name__ == "__main__":
    main()
