"""Inpainting of damaged image regions: encoder-decoder with L1 and perceptual loss."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    images: int = 400
    source_size: int = 80
    crop: int = 64
    batch_size: int = 10
    steps: int = 70
    lr: float = 1e-3
    perceptual_weight: float = 0.5
    log_every: int = 15
    seed: int = 21


def draw_scenes(n, size, rng):
    """Landscapes of smooth gradients, stripes and discs, uint8, NCHW."""
    yy, xx = np.mgrid[:size, :size].astype(np.float32) / size
    out = np.empty((n, 3, size, size), dtype=np.uint8)
    for i in range(n):
        a, b = rng.uniform(-1, 1, 2)
        base = rng.uniform(0.2, 0.6, (3, 1, 1)) + rng.uniform(-0.3, 0.3, (3, 1, 1)) * (a * xx + b * yy)
        f, t = rng.uniform(4, 14), rng.uniform(0, np.pi)
        img = base + 0.12 * np.sin(2 * np.pi * f * (xx * np.cos(t) + yy * np.sin(t)))
        for _ in range(rng.integers(2, 6)):
            cy, cx, r = rng.uniform(0, 1), rng.uniform(0, 1), rng.uniform(0.05, 0.25)
            inside = (yy - cy) ** 2 + (xx - cx) ** 2 < r * r
            img[:, inside] = rng.uniform(0, 1, (3, 1))
        out[i] = np.clip(img * 255, 0, 255)
    return torch.from_numpy(out)


class CropsWithHoles:
    """Random crops and random rectangular holes."""

    def __init__(self, images, conf):
        self.images, self.conf = images, conf
        self.gen = torch.Generator().manual_seed(conf.seed)

    def _rand(self, hi, n):
        return torch.randint(0, hi, (n,), generator=self.gen).tolist()

    def __iter__(self):
        c, n = self.conf.crop, self.conf.batch_size
        for _ in range(self.conf.steps):
            pick = torch.randint(0, len(self.images), (n,), generator=self.gen)
            span = self.conf.source_size - c + 1
            ys, xs = self._rand(span, n), self._rand(span, n)
            clean = torch.stack([self.images[i, :, y:y + c, x:x + c]
                                 for i, y, x in zip(pick.tolist(), ys, xs)]).float() / 255
            hole = torch.zeros(n, 1, c, c)
            for k, (hy, hx, hh, hw) in enumerate(zip(self._rand(c - 28, n), self._rand(c - 28, n),
                                                     self._rand(16, n), self._rand(16, n))):
                hole[k, :, hy:hy + 12 + hh, hx:hx + 12 + hw] = 1
            yield clean, hole


class GatedConv(nn.Module):
    def __init__(self, cin, cout, stride=1, dilation=1):
        super().__init__()
        self.conv = nn.Conv2d(cin, 2 * cout, 3, stride, dilation, dilation)

    def forward(self, x):
        f, g = self.conv(x).chunk(2, 1)
        return F.elu(f) * torch.sigmoid(g)


class GatedUNet(nn.Module):
    def __init__(self, w=20):
        super().__init__()
        self.down1 = GatedConv(4, w, 2)
        self.down2 = GatedConv(w, 2 * w, 2)
        self.body = nn.Sequential(*[GatedConv(2 * w, 2 * w, dilation=d) for d in (1, 2, 4)])
        self.up1 = GatedConv(3 * w, w)
        self.up2 = nn.Conv2d(w + 4, 3, 3, padding=1)

    def forward(self, clean, hole):
        x = torch.cat([clean * (1 - hole), hole], 1)
        d1 = self.down1(x)
        d2 = self.body(self.down2(d1))
        u1 = self.up1(torch.cat([F.interpolate(d2, scale_factor=2), d1], 1))
        out = torch.sigmoid(self.up2(torch.cat([F.interpolate(u1, scale_factor=2), x], 1)))
        return clean * (1 - hole) + out * hole


class FixedFeatures(nn.Module):
    """Stack of convolutions with fixed orthogonal filters, features taken at three depths."""

    def __init__(self, widths=(24, 48, 96)):
        super().__init__()
        self.blocks = nn.ModuleList()
        cin = 3
        for w in widths:
            self.blocks.append(nn.Sequential(
                nn.Conv2d(cin, w, 3, padding=1), nn.ReLU(), nn.Conv2d(w, w, 3, padding=1), nn.ReLU()))
            cin = w
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.orthogonal_(m.weight, 1.4)
                nn.init.zeros_(m.bias)

    def forward(self, x):
        feats = []
        x = x * 2 - 1
        for i, block in enumerate(self.blocks):
            x = block(x if i == 0 else F.avg_pool2d(x, 2))
            feats.append(x)
        return feats


class PerceptualLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = FixedFeatures()
        self.features.eval()
        self.features.requires_grad_(False)

    def forward(self, output, target):
        with torch.no_grad():
            wanted = self.features(target)
        got = self.features(output)
        return sum(F.l1_loss(g, w) for g, w in zip(got, wanted))


def main(conf=Config()):
    torch.manual_seed(conf.seed)
    images = draw_scenes(conf.images, conf.source_size, np.random.default_rng(conf.seed))
    model = GatedUNet()
    feature_loss = PerceptualLoss()
    opt = torch.optim.AdamW(model.parameters(), lr=conf.lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, conf.steps)

    begin = time.perf_counter()
    for step, (clean, hole) in enumerate(CropsWithHoles(images, conf), start=1):
        restored = model(clean, hole)
        l1 = ((restored - clean).abs() * hole).sum() / hole.sum() / 3
        feat_loss = feature_loss(restored, clean)
        loss = l1 + conf.perceptual_weight * feat_loss
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % conf.log_every == 0:
            print(f"[{step}/{conf.steps}] l1 {l1.item():.4f} feature_loss {feat_loss.item():.4f}")
    took = time.perf_counter() - begin
    print(f"loop_s={took:.3f} steps={conf.steps}")


if __name__ == "__main__":
    main()
