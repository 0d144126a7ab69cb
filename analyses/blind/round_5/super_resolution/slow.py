"""Single-image super-resolution (EDSR-like residual network, x2) on synthetic textures."""
import argparse
import json
import math
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class ResBlock(nn.Module):
    def __init__(self, ch, scale):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(ch, ch, 3, padding=1), nn.ReLU(inplace=True),
                                  nn.Conv2d(ch, ch, 3, padding=1))
        self.scale = scale

    def forward(self, x):
        return torch.add(x, self.body(x), alpha=self.scale)


class EDSR(nn.Module):
    def __init__(self, ch=32, blocks=5, factor=2):
        super().__init__()
        self.factor = factor
        self.head = nn.Conv2d(3, ch, 3, padding=1)
        self.body = nn.Sequential(*[ResBlock(ch, 0.3) for _ in range(blocks)],
                                  nn.Conv2d(ch, ch, 3, padding=1))
        self.tail = nn.Conv2d(ch, 3 * factor ** 2, 3, padding=1)

    def forward(self, low):
        base = F.interpolate(low, scale_factor=self.factor, mode="bicubic", align_corners=False)
        h = self.head(low)
        h = h + self.body(h)
        return base + F.pixel_shuffle(self.tail(h), self.factor)


class TextureBank:
    """A stack of large images made of oriented waves and blobs, from which patches are cut."""

    def __init__(self, n, size, seed):
        g = torch.Generator().manual_seed(seed)
        ax = torch.linspace(0, 1, size)
        yy, xx = torch.meshgrid(ax, ax, indexing="ij")
        images = []
        for _ in range(n):
            img = torch.zeros(3, size, size)
            for _ in range(12):
                angle, freq, phase = (torch.rand(3, generator=g) * torch.tensor([math.pi, 60.0, 6.28]))
                wave = torch.sin(2 * math.pi * freq * (xx * angle.cos() + yy * angle.sin()) + phase)
                cx, cy, w = torch.rand(3, generator=g)
                window = torch.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (0.05 + 0.2 * w))
                img += torch.rand(3, 1, 1, generator=g) * (wave.sign() * window)
            images.append(img)
        self.images = torch.stack(images)
        self.images = (self.images - self.images.mean()) / self.images.std() * 0.2 + 0.5
        self.g = g

    def patches(self, n, size):
        _, _, h, w = self.images.shape
        which = torch.randint(len(self.images), (n,), generator=self.g).tolist()
        top = torch.randint(h - size, (n,), generator=self.g).tolist()
        left = torch.randint(w - size, (n,), generator=self.g).tolist()
        high = torch.stack([self.images[k, :, a:a + size, b:b + size]
                            for k, a, b in zip(which, top, left)])
        return F.avg_pool2d(high, 2), high


class JsonLog:
    """One line per event, so that a run can be followed with tail -f."""

    def __init__(self, path):
        self.path = path
        open(path, "w").close()

    def write(self, **row):
        row["time"] = time.time()
        with open(self.path, "a") as f:
            f.write(json.dumps(row) + "\n")


def psnr(a, b):
    return -10 * torch.log10((a - b).square().mean())


def grad_norms(model):
    return {name: p.grad.norm().item() for name, p in model.named_parameters()
            if name.endswith("weight")}


@torch.no_grad()
def validate(model, low, high):
    model.eval()
    score = psnr(model(low).clamp(0, 1), high).item()
    model.train()
    return score


def train(args, log):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    bank = TextureBank(16, 256, args.seed)
    val_low, val_high = TextureBank(4, 256, args.seed + 1).patches(16, args.patch)
    model = EDSR(args.channels, args.blocks)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr, betas=(0.9, 0.99), fused=True)
    sched = torch.optim.lr_scheduler.StepLR(opt, 60, 0.5)

    def step(i):
        low, high = bank.patches(args.batch, args.patch)
        out = model(low)
        loss = F.l1_loss(out, high)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if i > 0 and i % 4 == 0:
            log.write(step=i, loss=loss.item(), psnr=psnr(out.detach(), high).item(),
                      lr=sched.get_last_lr()[0], grads=grad_norms(model))
        return loss

    for _ in range(3):
        step(0)
    begin = time.perf_counter()
    for i in range(1, args.steps + 1):
        loss = step(i)
        if i % args.val_every == 0:
            score = validate(model, val_low, val_high)
            print(f"step {i} l1 {loss.item():.4f} val psnr {score:.2f} dB", flush=True)
    return time.perf_counter() - begin


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--channels", type=int, default=32)
    p.add_argument("--blocks", type=int, default=5)
    p.add_argument("--patch", type=int, default=64)
    p.add_argument("--batch", type=int, default=12)
    p.add_argument("--steps", type=int, default=150)
    p.add_argument("--val-every", type=int, default=50)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=4)
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        took = train(args, JsonLog(os.path.join(folder, "train.jsonl")))
    print("loop_s=%.3f steps=%d" % (took, args.steps))


if __name__ == "__main__":
    main()
