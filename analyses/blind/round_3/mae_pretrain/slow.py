# Masked autoencoder pre-training on procedurally drawn images, plain PyTorch loop.
import math
import random
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    image: int = 64
    patch: int = 8
    channels: int = 3
    enc_dim: int = 160
    enc_depth: int = 4
    enc_heads: int = 5
    dec_dim: int = 96
    dec_depth: int = 1
    dec_heads: int = 4
    mask_ratio: float = 0.75
    batch: int = 16
    images: int = 1024
    steps: int = 80
    warmup_steps: int = 8
    lr: float = 1.5e-3
    weight_decay: float = 0.05
    eval_every: int = 40
    seed: int = 11

    @property
    def tokens(self):
        return (self.image // self.patch) ** 2


def draw_images(cfg, n, gen):
    """Random sums of plane waves and soft discs: enough structure to in-paint."""
    axis = torch.linspace(-1, 1, cfg.image)
    yy, xx = torch.meshgrid(axis, axis, indexing="ij")
    k = torch.randn(n, cfg.channels, 2, 1, 1, generator=gen) * 4
    phase = torch.rand(n, cfg.channels, 1, 1, generator=gen) * 6.28
    waves = torch.sin(k[:, :, 0] * xx + k[:, :, 1] * yy + phase)
    c = torch.rand(n, 1, 2, 1, 1, generator=gen) * 2 - 1
    r2 = (xx - c[:, :, 0]) ** 2 + (yy - c[:, :, 1]) ** 2
    return waves + torch.sigmoid((0.15 - r2) * 30) * torch.randn(n, cfg.channels, 1, 1, generator=gen)


def patchify(x, p):
    b, c, h, w = x.shape
    x = x.view(b, c, h // p, p, w // p, p)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(b, (h // p) * (w // p), p * p * c)


def sincos(n_side, dim):
    pos = torch.arange(n_side, dtype=torch.float32)
    freq = torch.exp(-math.log(10000.0) * torch.arange(dim // 4) / (dim // 4))
    ang = pos[:, None] * freq[None]
    one = torch.cat([ang.sin(), ang.cos()], dim=1)
    rows = one[:, None].expand(n_side, n_side, -1)
    cols = one[None].expand(n_side, n_side, -1)
    return torch.cat([rows, cols], dim=-1).reshape(1, n_side * n_side, dim)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, dim * 3)
        self.proj = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, dim * 4), nn.GELU(), nn.Linear(dim * 4, dim))

    def forward(self, x, mask=None):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class MAE(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        side = cfg.image // cfg.patch
        pdim = cfg.patch ** 2 * cfg.channels
        self.embed = nn.Linear(pdim, cfg.enc_dim)
        self.register_buffer("enc_pos", sincos(side, cfg.enc_dim))
        self.register_buffer("dec_pos", sincos(side, cfg.dec_dim))
        self.encoder = nn.ModuleList(Layer(cfg.enc_dim, cfg.enc_heads) for _ in range(cfg.enc_depth))
        self.enc_norm = nn.LayerNorm(cfg.enc_dim)
        self.bridge = nn.Linear(cfg.enc_dim, cfg.dec_dim)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, cfg.dec_dim))
        self.decoder = nn.ModuleList(Layer(cfg.dec_dim, cfg.dec_heads) for _ in range(cfg.dec_depth))
        self.head = nn.Linear(cfg.dec_dim, pdim)

    def encode(self, patches, keep):
        x = self.embed(patches) + self.enc_pos
        visible = torch.zeros(patches.shape[:2], dtype=torch.bool).scatter_(1, keep, True)
        for layer in self.encoder:
            x = layer(x, visible[:, None, None, :])
        return self.enc_norm(x)

    def forward(self, patches, noise):
        cfg = self.cfg
        b, n, _ = patches.shape
        n_keep = int(n * (1 - cfg.mask_ratio))
        order = noise.argsort(1)
        restore = order.argsort(1)
        keep, hidden = order[:, :n_keep], order[:, n_keep:]
        z = self.bridge(self.encode(patches, keep))
        z = z.gather(1, keep[..., None].expand(-1, -1, z.size(-1)))
        full = torch.cat([z, self.mask_token.expand(b, n - n_keep, -1)], dim=1)
        full = full.gather(1, restore[..., None].expand(-1, -1, full.size(-1))) + self.dec_pos
        for layer in self.decoder:
            full = layer(full)
        pick = hidden[..., None]
        pred = self.head(full.gather(1, pick.expand(-1, -1, full.size(-1))))
        target = patches.gather(1, pick.expand(-1, -1, patches.size(-1)))
        target = F.layer_norm(target, target.shape[-1:])
        return F.mse_loss(pred, target)


def lr_at(step, cfg):
    if step < cfg.warmup_steps:
        return cfg.lr * (step + 1) / cfg.warmup_steps
    u = (step - cfg.warmup_steps) / max(1, cfg.steps - cfg.warmup_steps)
    return cfg.lr * 0.5 * (1 + math.cos(math.pi * u))


def main(cfg=Config()):
    torch.set_num_threads(1)
    random.seed(cfg.seed)
    np.random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    gen = torch.Generator().manual_seed(cfg.seed)
    train = patchify(draw_images(cfg, cfg.images, gen), cfg.patch)
    held = patchify(draw_images(cfg, 64, gen), cfg.patch)
    held_noise = torch.rand(64, cfg.tokens, generator=gen)

    model = MAE(cfg)
    decay = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": cfg.weight_decay},
                             {"params": rest, "weight_decay": 0.0}],
                            lr=cfg.lr, betas=(0.9, 0.95), fused=True)

    start = time.perf_counter()
    running = 0.0
    for step in range(cfg.steps):
        for group in opt.param_groups:
            group["lr"] = lr_at(step, cfg)
        idx = torch.randint(cfg.images, (cfg.batch,), generator=gen)
        noise = torch.rand(cfg.batch, cfg.tokens, generator=gen)
        loss = model(train[idx], noise)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 3.0)
        opt.step()
        running += loss.item()
        if (step + 1) % cfg.eval_every == 0:
            model.eval()
            with torch.no_grad():
                val = model(held, held_noise).item()
            model.train()
            print(f"[{step + 1:4d}] train {running / cfg.eval_every:.4f}  held-out {val:.4f}")
            running = 0.0
    seconds = time.perf_counter() - start
    print(f"loop_s={seconds:.3f} steps={cfg.steps}")


if __name__ == "__main__":
    main()
