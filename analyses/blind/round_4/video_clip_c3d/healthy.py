import argparse
import logging
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(format="[%(levelname)s] %(message)s", level=logging.INFO)
logger = logging.getLogger(__name__)


class MovingShapes(Dataset):
    """Clips of a bright blob that moves in one of eight directions over a textured background."""

    def __init__(self, n_clips, split_seed, frames=16, size=64, crop=56, stride=2, train=True):
        self.n, self.seed, self.train = n_clips, split_seed, train
        self.frames, self.size, self.crop, self.stride = frames, size, crop, stride
        rng = np.random.default_rng(split_seed)
        self.labels = rng.integers(0, 8, n_clips)
        self.backgrounds = rng.integers(0, 120, (32, size, size, 3), dtype=np.uint8)
        self.yy, self.xx = np.mgrid[:size, :size]

    def __len__(self):
        return self.n

    def _decode(self, idx, rng):
        angle = self.labels[idx] * np.pi / 4
        cy, cx = rng.uniform(24, 40, 2)
        clip = np.repeat(self.backgrounds[idx % 32][None], self.frames, 0)
        for t in range(self.frames):
            y = cy + np.sin(angle) * (t - self.frames / 2)
            x = cx + np.cos(angle) * (t - self.frames / 2)
            mask = (self.yy - y) ** 2 + (self.xx - x) ** 2 < 36
            clip[t][mask] = 230
        return clip

    def __getitem__(self, idx):
        rng = np.random.default_rng((self.seed, idx))
        clip = self._decode(idx, rng)[::self.stride]
        m = self.size - self.crop
        top, left = rng.integers(0, m + 1, 2) if self.train else (m // 2, m // 2)
        clip = clip[:, top:top + self.crop, left:left + self.crop]
        return torch.from_numpy(np.ascontiguousarray(clip.transpose(3, 0, 1, 2))), int(self.labels[idx])


class C3D(nn.Module):
    def __init__(self, classes=8, width=16):
        super().__init__()

        def unit(cin, cout, pool):
            return nn.Sequential(nn.Conv3d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm3d(cout),
                                 nn.ReLU(inplace=True), nn.MaxPool3d(pool))

        self.stem = unit(3, width, (1, 2, 2))
        self.body = nn.Sequential(unit(width, 2 * width, 2), unit(2 * width, 4 * width, 2))
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, clip):
        x = clip.float().sub_(110.0).div_(60.0)
        x = self.body(self.stem(x))
        return self.fc(x.mean((2, 3, 4)))


def accuracy(logits, y):
    return (logits.argmax(1) == y).float().mean().item()


@torch.no_grad()
def spot_check(model, batch):
    model.eval()
    clips, y = batch
    acc = accuracy(model(clips), y)
    model.train()
    return acc


def main(cfg):
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(1)  # the second core is for the loader
    train_loader = DataLoader(
        MovingShapes(4096, 1), batch_size=cfg.batch_size, shuffle=True, drop_last=True, num_workers=cfg.workers,
        persistent_workers=True, generator=torch.Generator().manual_seed(cfg.seed))
    val_loader = DataLoader(
        MovingShapes(512, 2, train=False), batch_size=cfg.batch_size, num_workers=cfg.workers,
        generator=torch.Generator().manual_seed(cfg.seed))
    model = C3D()
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9, weight_decay=5e-4, fused=True)
    criterion = nn.CrossEntropyLoss()

    def optimize(clips, y):
        logits = model(clips)
        loss = criterion(logits, y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        return loss.item(), accuracy(logits, y)

    val_batch = next(iter(val_loader))
    batches = iter(train_loader)
    for _ in range(3):
        optimize(*next(batches))

    t0 = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        loss, acc = optimize(*next(batches))
        if step % cfg.check_every == 0:
            val_acc = spot_check(model, val_batch)
            logger.info("step %d loss %.3f acc %.2f val_acc %.2f", step, loss, acc, val_acc)
    t1 = time.perf_counter()
    print("loop_s=%.3f steps=%d" % (t1 - t0, cfg.steps))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--check-every", type=int, default=6)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    main(parser.parse_args())
