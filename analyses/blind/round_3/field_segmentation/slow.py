"""Field-boundary segmentation of aerial tiles with a small U-Net."""
import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from scipy import ndimage
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = ("soil", "crop", "road", "water")
COLOURS = np.array([[0.55, 0.42, 0.30], [0.28, 0.52, 0.22], [0.60, 0.60, 0.62], [0.15, 0.28, 0.45]], np.float32)


def draw_tile(size, rng):
    """Voronoi fields, one road, one pond; uint8 RGB and class map."""
    yy, xx = np.mgrid[:size, :size].astype(np.float32)
    seeds = rng.uniform(0, size, (14, 2)).astype(np.float32)
    dist = np.stack([(yy - a) ** 2 + (xx - b) ** 2 for a, b in seeds])
    label = rng.integers(0, 2, len(seeds))[dist.argmin(0)]
    slope, offset = rng.uniform(-1, 1), rng.uniform(0.2, 0.8) * size
    label[np.abs(yy - slope * (xx - size / 2) - offset) < size * 0.02] = 2
    cy, cx = rng.uniform(0.2, 0.8, 2) * size
    label[(yy - cy) ** 2 + (xx - cx) ** 2 < (size * rng.uniform(0.05, 0.12)) ** 2] = 3
    texture = ndimage.gaussian_filter(rng.normal(0, 1, (size, size)), 2).astype(np.float32)
    rgb = COLOURS[label] + 0.25 * texture[..., None] + rng.normal(0, 0.03, (size, size, 3))
    return (rgb.clip(0, 1) * 255).astype(np.uint8), label.astype(np.uint8)


class Augment:
    def __init__(self, crop, seed):
        self.crop = crop
        self.rng = np.random.default_rng(seed)

    def photometric(self, img, gain, gamma, mix):
        img = img.astype(np.float32) / 255.0
        img = np.power(img * gain, gamma, dtype=np.float32)
        grey = img @ np.array([0.299, 0.587, 0.114], np.float32)
        img = mix * img + (1 - mix) * grey[..., None]
        return (img - 0.4) / 0.2

    def __call__(self, img, mask):
        r, c = self.rng, self.crop
        gain = r.uniform(0.8, 1.2, 3).astype(np.float32)
        gamma, mix = r.uniform(0.8, 1.25), np.float32(r.uniform(0.5, 1.3))
        top, left = r.integers(0, img.shape[0] - c + 1), r.integers(0, img.shape[1] - c + 1)
        turns, flip = r.integers(4), r.random() < 0.5

        img = self.photometric(img, gain, gamma, mix)
        if flip:
            img, mask = img[:, ::-1], mask[:, ::-1]
            left = img.shape[1] - c - left
        img = img[top:top + c, left:left + c]
        mask = mask[top:top + c, left:left + c]
        img, mask = np.rot90(img, turns), np.rot90(mask, turns)
        return np.ascontiguousarray(img.transpose(2, 0, 1)), np.ascontiguousarray(mask)


class Tiles(Dataset):
    def __init__(self, count, size, seed, transform=None, repeat=1):
        rng = np.random.default_rng(seed)
        self.tiles = [draw_tile(size, rng) for _ in range(count)]
        self.transform = transform
        self.repeat = repeat

    def __len__(self):
        return len(self.tiles) * self.repeat

    def __getitem__(self, i):
        img, mask = self.tiles[i % len(self.tiles)]
        img, mask = self.transform(img, mask)
        return torch.from_numpy(img), torch.from_numpy(mask).long()


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        w = width
        self.d1, self.d2 = nn.Sequential(conv(3, w), conv(w, w)), nn.Sequential(conv(w, 2 * w), conv(2 * w, 2 * w))
        self.mid = nn.Sequential(conv(2 * w, 4 * w), conv(4 * w, 4 * w))
        self.u2, self.u1 = conv(6 * w, 2 * w), conv(3 * w, w)
        self.head = nn.Conv2d(w, classes, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([F.interpolate(m, scale_factor=2.0, mode="nearest"), b], 1))
        y = self.u1(torch.cat([F.interpolate(y, scale_factor=2.0, mode="nearest"), a], 1))
        return self.head(y)


def mean_iou(confusion):
    inter = confusion.diag().float()
    union = confusion.sum(0) + confusion.sum(1) - confusion.diag()
    return (inter / union.clamp(min=1)).mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--tile", type=int, default=768)
    p.add_argument("--crop", type=int, default=96)
    p.add_argument("--tiles", type=int, default=16)
    p.add_argument("--repeat", type=int, default=10)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--width", type=int, default=16)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--lr", type=float, default=3e-3)
    p.add_argument("--seed", type=int, default=21)
    args = p.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    data = Tiles(args.tiles, args.tile, args.seed, Augment(args.crop, args.seed), args.repeat)
    loader = DataLoader(data, batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = UNet(args.width, len(CLASSES)).to(memory_format=torch.channels_last)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2, fused=True)
    total = args.epochs * len(loader)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, total_steps=total)
    balance = torch.tensor([1.0, 1.0, 2.0, 2.0])

    steps = 0
    t0 = time.perf_counter()
    for epoch in range(args.epochs):
        confusion = torch.zeros(len(CLASSES), len(CLASSES), dtype=torch.long)
        running = 0.0
        for img, mask in loader:
            logits = model(img.to(memory_format=torch.channels_last))
            loss = F.cross_entropy(logits, mask, weight=balance)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            steps += 1
            running += loss.item()
            if steps % 5 == 0:
                pair = mask.flatten() * len(CLASSES) + logits.detach().argmax(1).flatten()
                confusion += torch.bincount(pair, minlength=len(CLASSES) ** 2).view_as(confusion)
        print(f"epoch {epoch}  loss {running / len(loader):.4f}  train mIoU {mean_iou(confusion):.3f}")
    seconds = time.perf_counter() - t0
    print(f"loop_s={seconds:.3f} steps={steps}")


if __name__ == "__main__":
    main()
