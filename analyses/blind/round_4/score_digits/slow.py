"""Denoising score matching on stroke images (16x16), with EMA weights and Langevin samples at the end of each phase."""
import argparse
import json
import math
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


def strokes(n, seed):
    g = torch.Generator().manual_seed(seed)
    p = torch.rand(n, 3, 2, generator=g) * 1.6 - 0.8
    s = torch.linspace(0, 1, 12).view(1, 12, 1)
    curve = (1 - s) ** 2 * p[:, :1] + 2 * s * (1 - s) * p[:, 1:2] + s ** 2 * p[:, 2:]
    axis = torch.linspace(-1, 1, 16)
    gx = (-(curve[..., :1] - axis) ** 2 / 0.02).exp()
    gy = (-(curve[..., 1:] - axis) ** 2 / 0.02).exp()
    img = torch.einsum("nsx,nsy->nyx", gx, gy).clamp(max=1)
    return img[:, None] * 2 - 1


class TimeBlock(nn.Module):
    def __init__(self, c, emb):
        super().__init__()
        self.n1, self.n2 = nn.GroupNorm(8, c), nn.GroupNorm(8, c)
        self.c1, self.c2 = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)
        self.t = nn.Linear(emb, c)

    def forward(self, x, e):
        h = self.c1(F.silu(self.n1(x)))
        h = h + self.t(e)[:, :, None, None]
        return x + self.c2(F.silu(self.n2(h)))


class ScoreNet(nn.Module):
    def __init__(self, c=32, emb=64):
        super().__init__()
        self.register_buffer("freq", torch.exp(torch.linspace(0, math.log(200.0), emb // 2)))
        self.emb = nn.Sequential(nn.Linear(emb, emb), nn.SiLU(), nn.Linear(emb, emb))
        self.inp = nn.Conv2d(1, c, 3, padding=1)
        self.a = TimeBlock(c, emb)
        self.down = nn.Conv2d(c, 2 * c, 4, 2, 1)
        self.b1, self.b2 = TimeBlock(2 * c, emb), TimeBlock(2 * c, emb)
        self.up = nn.ConvTranspose2d(2 * c, c, 4, 2, 1)
        self.z = TimeBlock(c, emb)
        self.out = nn.Conv2d(c, 1, 3, padding=1)

    def forward(self, x, sigma):
        ang = sigma.log()[:, None] * self.freq
        e = self.emb(torch.cat([ang.sin(), ang.cos()], 1))
        h = self.a(self.inp(x), e)
        m = self.b2(self.b1(self.down(h), e), e)
        return self.out(self.z(self.up(m) + h, e)) / sigma[:, None, None, None]


class Ema:
    def __init__(self, model, decay=0.995):
        self.decay = decay
        self.live = list(model.parameters())
        self.shadow = [v.detach().clone() for v in self.live]

    @torch.no_grad()
    def update(self):
        torch._foreach_lerp_(self.shadow, self.live, 1 - self.decay)


class RunLog:
    """One JSON line per step, on disk as soon as it is known."""

    def __init__(self, path):
        self.path = path
        self.rows = 0

    def add(self, **row):
        with open(self.path, "a") as f:
            f.write(json.dumps(row) + "\n")
        self.rows += 1

    def close(self):
        pass


@torch.no_grad()
def langevin(net, sigmas, n=16, inner=2, eps=2e-5):
    x = torch.rand(n, 1, 16, 16) * 2 - 1
    for s in sigmas:
        step = eps * (s / sigmas[-1]) ** 2
        for _ in range(inner):
            x = x + step / 2 * net(x, s.expand(n)) + step.sqrt() * torch.randn_like(x)
    return x


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=220)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--levels", type=int, default=10)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=8)
    opt = p.parse_args()

    torch.manual_seed(opt.seed)
    data = strokes(4000, opt.seed)
    sigmas = torch.exp(torch.linspace(math.log(1.0), math.log(0.02), opt.levels))
    net = ScoreNet()
    ema = Ema(net)
    adam = torch.optim.Adam(net.parameters(), lr=opt.lr, fused=True)
    folder = tempfile.TemporaryDirectory()
    log = RunLog(os.path.join(folder.name, "train.jsonl"))

    tick = time.perf_counter()
    for step in range(1, opt.steps + 1):
        x = data[torch.randint(len(data), (opt.batch,))]
        sigma = sigmas[torch.randint(opt.levels, (opt.batch,))]
        noise = torch.randn_like(x)
        score = net(x + sigma[:, None, None, None] * noise, sigma)
        loss = 0.5 * (score * sigma[:, None, None, None] + noise).pow(2).sum((1, 2, 3)).mean()
        adam.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 20.0)
        adam.step()
        ema.update()
        value = loss.item()
        if not math.isfinite(value):
            raise RuntimeError(f"loss is {value} at step {step}")
        log.add(step=step, loss=value, norm=norm.item(), sigma=sigma.mean().item(),
                t=time.perf_counter() - tick)
        if step % 110 == 0:
            pics = langevin(net, sigmas)
            print(f"step {step} loss {value:.2f} sample mean {pics.mean():.3f} std {pics.std():.3f}", flush=True)
    total = time.perf_counter() - tick
    log.close()
    folder.cleanup()
    print("loop_s=%.3f steps=%d" % (total, opt.steps))


if __name__ == "__main__":
    main()
