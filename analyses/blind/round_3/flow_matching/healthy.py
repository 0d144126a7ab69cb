"""Latent flow matching with minibatch couplings on toy sprites: latents from a fixed linear codec, MLP-conv velocity net."""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment

LATENT = (4, 12, 12)


def draw_sprites(n, rng):
    """Discs and bars on a 48x48 canvas."""
    yy, xx = np.mgrid[0:48, 0:48].astype(np.float32) / 47.0
    imgs = np.zeros((n, 48, 48), dtype=np.float32)
    for i in range(n):
        cx, cy, r = rng.uniform(0.25, 0.75, 2).tolist() + [rng.uniform(0.08, 0.22)]
        if rng.random() < 0.5:
            imgs[i] = ((xx - cx) ** 2 + (yy - cy) ** 2 < r * r)
        else:
            a = rng.uniform(0, math.pi)
            u, v = (xx - cx) * math.cos(a) + (yy - cy) * math.sin(a), (yy - cy) * math.cos(a) - (xx - cx) * math.sin(a)
            imgs[i] = (np.abs(u) < 2 * r) & (np.abs(v) < r / 3)
    return torch.from_numpy(imgs)[:, None]


class PatchCodec:
    """PCA of 4x4 patches: the stand-in for a pretrained autoencoder."""

    def __init__(self, imgs, n_comp=4):
        p = F.unfold(imgs, 4, stride=4).transpose(1, 2).reshape(-1, 16)
        self.mean = p.mean(0)
        _, s, v = torch.linalg.svd(p[::7] - self.mean, full_matrices=False)
        self.basis = v[:n_comp]
        self.scale = ((p - self.mean) @ self.basis.t()).std(0)

    def encode(self, imgs):
        p = F.unfold(imgs, 4, stride=4).transpose(1, 2)
        z = (p - self.mean) @ self.basis.t() / self.scale
        return z.transpose(1, 2).reshape(-1, *LATENT).contiguous()


class TimeEmbed(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("freq", torch.exp(torch.linspace(0, math.log(200.0), dim // 2)))
        self.lin = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, t):
        a = t[:, None] * self.freq
        return self.lin(torch.cat([a.sin(), a.cos()], dim=1))


class MixerBlock(nn.Module):
    """Token mixing and channel mixing over the 144 latent positions, modulated by time."""

    def __init__(self, dim, tokens, t_dim):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.tok = nn.Sequential(nn.Linear(tokens, tokens), nn.GELU(), nn.Linear(tokens, tokens))
        self.ch = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.mod = nn.Linear(t_dim, dim)

    def forward(self, x, t):
        x = x + self.tok(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.ch(self.n2(x) + self.mod(t)[:, None])


class Velocity(nn.Module):
    def __init__(self, dim=40, depth=3, t_dim=64):
        super().__init__()
        self.time = TimeEmbed(t_dim)
        self.inp = nn.Linear(LATENT[0], dim)
        self.pos = nn.Parameter(torch.zeros(1, LATENT[1] * LATENT[2], dim))
        self.blocks = nn.ModuleList([MixerBlock(dim, LATENT[1] * LATENT[2], t_dim) for _ in range(depth)])
        self.out = nn.Linear(dim, LATENT[0])
        nn.init.zeros_(self.out.weight)

    def forward(self, z, t):
        e = self.time(t)
        h = self.inp(z.flatten(2).transpose(1, 2)) + self.pos
        for b in self.blocks:
            h = b(h, e)
        return self.out(h).transpose(1, 2).reshape_as(z)


def couple(noise, data):
    """Pair every data latent with a noise draw so that the batch's transport cost is smallest."""
    a, b = noise.flatten(1), data.flatten(1)
    cost = torch.cdist(a, b, compute_mode="use_mm_for_euclid_dist").square()
    rows, cols = linear_sum_assignment(cost.numpy())
    return noise[torch.from_numpy(rows)], data[torch.from_numpy(cols)]


@torch.no_grad()
def sample(net, n, n_steps, gen):
    net.eval()
    z = torch.randn(n, *LATENT, generator=gen)
    for k in range(n_steps):
        z = z + net(z, torch.full((n,), k / n_steps)) / n_steps
    net.train()
    return z


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=60)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--images", type=int, default=1500)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=21)
    args = p.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    imgs = draw_sprites(args.images, np.random.default_rng(args.seed))
    codec = PatchCodec(imgs)
    latents = codec.encode(imgs)
    net = Velocity()
    ema = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98))
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    gen = torch.Generator().manual_seed(args.seed)

    start = time.perf_counter()
    run_loss = 0.0
    for step in range(1, args.steps + 1):
        z1 = latents[torch.randint(len(latents), (args.batch,), generator=gen)]
        z0, z1 = couple(torch.randn(z1.shape, generator=gen), z1)
        t = torch.rand(args.batch, generator=gen)
        zt = torch.lerp(z0, z1, t.view(-1, 1, 1, 1))
        loss = F.mse_loss(net(zt, t), z1 - z0)
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema.update_parameters(net)
        run_loss += loss.item()
        if step % 20 == 0:
            print(f"[{step:4d}] velocity mse {run_loss / 20:.4f}", flush=True)
            run_loss = 0.0
    elapsed = time.perf_counter() - start
    z = sample(ema.module, 16, 10, gen)
    print(f"samples: mean {z.mean():.3f} std {z.std():.3f} (data {latents.mean():.3f} {latents.std():.3f})")
    print("loop_s=%.3f steps=%d" % (elapsed, args.steps))


if __name__ == "__main__":
    main()
