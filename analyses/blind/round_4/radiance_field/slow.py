# A small NeRF on an analytic scene (three coloured soft spheres), rays from a ring of cameras.
import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

NEAR, FAR = 2.0, 6.0


def look_at(angle, elevation, radius=4.0):
    eye = radius * np.array([math.cos(angle) * math.cos(elevation), math.sin(angle) * math.cos(elevation),
                             math.sin(elevation)])
    z = eye / np.linalg.norm(eye)
    x = np.cross([0.0, 0.0, 1.0], z)
    x /= np.linalg.norm(x)
    return np.stack([x, np.cross(z, x), z, eye], 1)


def camera_rays(pose, h, w, focal):
    j, i = np.meshgrid(np.arange(h), np.arange(w), indexing="ij")
    d = np.stack([(i - w / 2) / focal, -(j - h / 2) / focal, -np.ones((h, w))], -1)
    d = d.reshape(-1, 3) @ pose[:, :3].T
    return np.broadcast_to(pose[:, 3], d.shape), d / np.linalg.norm(d, axis=-1, keepdims=True)


def shade(origins, dirs):
    """Ground truth colour: closed-form closest approach to every sphere, soft edges, back to front."""
    centres = np.array([[0.0, 0.0, 0.0], [0.9, 0.4, 0.2], [-0.7, -0.6, 0.4]])
    colours = np.array([[0.9, 0.2, 0.1], [0.1, 0.7, 0.3], [0.2, 0.3, 0.9]])
    radii = np.array([0.7, 0.4, 0.5])
    oc = centres - origins[:, None]
    depth = (oc * dirs[:, None]).sum(-1)
    gap = np.linalg.norm(oc - depth[..., None] * dirs[:, None], axis=-1)
    alpha = 1 / (1 + np.exp((gap - radii) * 20))
    rgb = np.ones_like(dirs)
    for k in np.argsort(-depth.mean(0)):
        rgb = alpha[:, k:k + 1] * colours[k] + (1 - alpha[:, k:k + 1]) * rgb
    return rgb


class RayBank:
    def __init__(self, n_views, size, seed):
        views = [camera_rays(look_at(2 * math.pi * v / n_views, 0.3 + 0.3 * (v % 3)), size, size, 1.2 * size)
                 for v in range(n_views)]
        self.o = np.concatenate([v[0] for v in views])
        self.d = np.concatenate([v[1] for v in views])
        self.rgb = shade(self.o, self.d)
        self.rng = np.random.default_rng(seed)

    def sample(self, n):
        pick = self.rng.integers(0, len(self.o), n)
        return tuple(torch.from_numpy(x[pick]).float() for x in (self.o, self.d, self.rgb))


class FourierFeatures(nn.Module):
    def __init__(self, n_freq):
        super().__init__()
        freqs = 2.0 ** np.linspace(0.0, n_freq - 1, n_freq)
        self.register_buffer("freqs", torch.from_numpy(freqs))
        self.out_dim = 3 + 6 * n_freq

    def forward(self, x):
        phase = (x.unsqueeze(-1) * self.freqs).flatten(-2)
        return torch.cat([x, phase.sin(), phase.cos()], -1).to(x.dtype)


class Field(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.enc_x, self.enc_d = FourierFeatures(10), FourierFeatures(4)
        self.trunk = nn.Sequential(
            nn.Linear(self.enc_x.out_dim, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, width), nn.ReLU())
        self.sigma = nn.Linear(width, 1)
        self.feature = nn.Linear(width, width)
        self.rgb = nn.Sequential(nn.Linear(width + self.enc_d.out_dim, 32), nn.ReLU(), nn.Linear(32, 3))

    def forward(self, pts, dirs):
        h = self.trunk(self.enc_x(pts))
        d = self.enc_d(dirs)[:, None].expand(-1, pts.shape[1], -1)
        rgb = torch.sigmoid(self.rgb(torch.cat([self.feature(h), d], -1)))
        return rgb, F.softplus(self.sigma(h).squeeze(-1) - 1.0)


def render(field, o, d, n_samples, gen):
    edges = torch.linspace(NEAR, FAR, n_samples + 1)
    t = edges[:-1] + (edges[1:] - edges[:-1]) * torch.rand(len(o), n_samples, generator=gen)
    pts = o[:, None] + d[:, None] * t.unsqueeze(-1)
    rgb, sigma = field(pts, d)
    delta = torch.cat([t[:, 1:] - t[:, :-1], torch.full_like(t[:, :1], 1e2)], 1)
    tau = sigma * delta
    trans = torch.exp(-(torch.cumsum(tau, 1) - tau))
    weights = trans * (1.0 - torch.exp(-tau))
    colour = (weights.unsqueeze(-1) * rgb).sum(1)
    return colour + (1.0 - weights.sum(1, keepdim=True))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rays", type=int, default=768)
    ap.add_argument("--samples", type=int, default=48)
    ap.add_argument("--views", type=int, default=24)
    ap.add_argument("--size", type=int, default=96)
    ap.add_argument("--iters", type=int, default=110)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(args.seed + 1)
    bank = RayBank(args.views, args.size, args.seed)
    field = Field()
    opt = torch.optim.Adam(field.parameters(), lr=args.lr, eps=1e-15, fused=True)

    def iterate():
        o, d, target = bank.sample(args.rays)
        loss = F.mse_loss(render(field, o, d, args.samples, gen), target)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        return loss.detach()

    for _ in range(3):
        iterate()
    start = time.perf_counter()
    for it in range(1, args.iters + 1):
        mse = iterate()
        if it % 20 == 0:
            print("iter %4d  psnr %.2f" % (it, -10 * math.log10(mse.item())))
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - start, args.iters))


if __name__ == "__main__":
    main()
