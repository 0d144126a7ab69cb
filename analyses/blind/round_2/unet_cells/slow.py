import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)
CLASSES = 4


def draw_scene(rng, size):
    yy, xx = np.mgrid[:size, :size]
    mask = np.zeros((size, size), np.uint8)
    img = rng.normal(0.3, 0.05, (size, size)).astype(np.float32)
    for _ in range(rng.integers(4, 9)):
        cls = int(rng.integers(1, CLASSES))
        cx, cy, r = rng.integers(0, size), rng.integers(0, size), rng.integers(4, 12)
        inside = (xx - cx) ** 2 + (yy - cy) ** 2 < r * r
        mask[inside] = cls
        img[inside] = 0.25 * cls + rng.normal(0, 0.08, inside.sum())
    return img, mask


class CellImages(Dataset):
    def __init__(self, folder):
        self.folder = folder
        self.names = sorted(os.listdir(folder))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, i):
        with np.load(os.path.join(self.folder, self.names[i])) as f:
            img, mask = f["img"], f["mask"]
        return torch.from_numpy(img)[None], torch.from_numpy(mask).long()


def conv(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, w=4):
        super().__init__()
        self.d1, self.d2, self.d3 = conv(1, w), conv(w, 2 * w), conv(2 * w, 4 * w)
        self.u2, self.u1 = conv(6 * w, 2 * w), conv(3 * w, w)
        self.out = nn.Conv2d(w, CLASSES, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.d3(F.max_pool2d(b, 2))
        b = self.u2(torch.cat([b, F.interpolate(c, scale_factor=2)], 1))
        a = self.u1(torch.cat([a, F.interpolate(b, scale_factor=2)], 1))
        return self.out(a)


def confusion(logits, mask):
    k = mask.flatten() * CLASSES + logits.argmax(1).flatten()
    return torch.bincount(k, minlength=CLASSES ** 2).view(CLASSES, CLASSES)


def mean_iou(m):
    inter = m.diag().float()
    return (inter / (m.sum(0) + m.sum(1) - m.diag()).clamp(min=1)).mean().item()


class EpochScore:
    def __init__(self):
        self.logits = torch.empty(0)
        self.masks = torch.empty(0, dtype=torch.long)

    def update(self, logits, masks):
        self.logits = torch.cat([self.logits, logits.detach()]) if len(self.logits) else logits.detach()
        self.masks = torch.cat([self.masks, masks]) if len(self.masks) else masks

    def compute(self):
        return mean_iou(confusion(self.logits, self.masks))


def run(folder, epochs=1, batch=8):
    loader = DataLoader(CellImages(folder), batch_size=batch, shuffle=True, drop_last=True)
    net = UNet()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
    net(torch.zeros(2, 1, 80, 80)).sum().backward()
    steps = 0
    start = time.perf_counter()
    for epoch in range(epochs):
        score = EpochScore()
        for img, mask in loader:
            logits = net(img)
            loss = F.cross_entropy(logits, mask)
            opt.zero_grad()
            loss.backward()
            opt.step()
            score.update(logits, mask)
            steps += 1
        print(f"epoch {epoch}  loss {loss.item():.3f}  mIoU {score.compute():.3f}")
    return time.perf_counter() - start, steps


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as tmp:
        rng = np.random.default_rng(2)
        for i in range(880):
            img, mask = draw_scene(rng, 80)
            np.savez(os.path.join(tmp, f"{i:04d}.npz"), img=img, mask=mask)
        seconds, steps = run(tmp)
    print(f"loop_s={seconds:.3f} steps={steps}")
