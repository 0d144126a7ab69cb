"""Land cover from multispectral scenes: random windows of scenes on disk, small fully convolutional net."""
import pathlib
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SEED = 21
N_SCENES = 24
SIDE = 112
BANDS = 6
CLASSES = 5
WINDOW = 32
BATCH = 16
STEPS = 120
LR = 2e-3


def write_scenes(folder):
    """One .npz for each scene: reflectances as uint16 (bands, y, x) and the class map (y, x)."""
    rng = np.random.default_rng(SEED)
    signature = rng.uniform(500, 4000, (CLASSES, BANDS))
    for i in range(N_SCENES):
        coarse = rng.normal(size=(CLASSES, SIDE // 14, SIDE // 14))
        smooth = F.interpolate(torch.from_numpy(coarse)[None], size=(SIDE, SIDE), mode="bicubic")[0]
        cover = smooth.argmax(0).numpy().astype(np.uint8)
        light = rng.uniform(0.8, 1.2)
        bands = signature[cover].transpose(2, 0, 1) * light + rng.normal(scale=250, size=(BANDS, SIDE, SIDE))
        bands = np.clip(bands, 0, 10000).astype(np.uint16)
        np.savez_compressed(folder / f"scene_{i:03d}.npz", bands=bands, cover=cover)


class SceneWindows(Dataset):
    def __init__(self, folder, length):
        self.files = sorted(folder.glob("scene_*.npz"))
        self.length = length
        self.mean = np.float32(2250.0)
        self.scale = np.float32(1 / 1100.0)

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        rng = np.random.default_rng((SEED, i))
        scene = np.load(self.files[rng.integers(len(self.files))])
        y, x = rng.integers(0, SIDE - WINDOW, 2)
        bands = scene["bands"][:, y:y + WINDOW, x:x + WINDOW]
        cover = scene["cover"][y:y + WINDOW, x:x + WINDOW]
        turn = rng.integers(4)
        bands = np.rot90(bands, turn, (1, 2)).astype(np.float32)
        bands -= self.mean
        bands *= self.scale
        cover = np.rot90(cover, turn).astype(np.int64)
        return torch.from_numpy(bands), torch.from_numpy(cover)


def conv(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class CoverNet(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.stem = conv(BANDS, width)
        self.body = nn.ModuleList(conv(width, width) for _ in range(3))
        self.fuse = conv(2 * width, width)
        self.out = nn.Conv2d(width, CLASSES, 1)

    def forward(self, x):
        stem = self.stem(x)
        h = stem
        for layer in self.body:
            h = h + layer(h)
        return self.out(self.fuse(torch.cat([stem, h], 1)))


class Confusion:
    def __init__(self):
        self.table = torch.zeros(CLASSES, CLASSES, dtype=torch.long)

    def add(self, logits, cover):
        index = cover.flatten() * CLASSES + logits.argmax(1).flatten()
        self.table += torch.bincount(index, minlength=CLASSES ** 2).view(CLASSES, CLASSES)

    def mean_iou(self):
        hit = self.table.diag().float()
        union = self.table.sum(0) + self.table.sum(1) - self.table.diag()
        return (hit / union.clamp(min=1)).mean().item()


def train(folder):
    torch.manual_seed(SEED)
    loader = DataLoader(SceneWindows(folder, STEPS * BATCH), batch_size=BATCH)
    net = CoverNet()
    opt = torch.optim.AdamW(net.parameters(), lr=LR)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    confusion = Confusion()
    for step, (bands, cover) in enumerate(loader, 1):
        logits = net(bands)
        loss = F.cross_entropy(logits, cover)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 15 == 0:
            confusion.add(logits.detach(), cover)
            print(f"step {step}: loss {loss.item():.4f}, mIoU {confusion.mean_iou():.3f}")
            confusion = Confusion()
    return step


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="scenes_") as tmp:
        tmp = pathlib.Path(tmp)
        write_scenes(tmp)
        t0 = time.perf_counter()
        steps = train(tmp)
        seconds = time.perf_counter() - t0
    print(f"loop_s={seconds:.3f} steps={steps}")
