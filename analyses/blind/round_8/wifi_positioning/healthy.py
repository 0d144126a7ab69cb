"""Indoor position from Wi-Fi fingerprints: each sample is a walk of scans, each scan hears some access points."""
import argparse
import logging
import time

import numpy as np
import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logger = logging.getLogger("wifi")


class Building:
    def __init__(self, n_ap=240, extent=(120.0, 60.0), seed=0):
        rng = np.random.default_rng(seed)
        self.extent = np.array(extent)
        self.ap = rng.uniform(0, 1, (n_ap, 2)) * self.extent
        self.power = rng.normal(-35, 4, n_ap)

    def scan(self, where, rng):
        dist = np.hypot(*(self.ap - where).T) + 1.0
        rssi = self.power - 27 * np.log10(dist) + rng.normal(0, 3.5, len(dist))
        heard = np.flatnonzero(rssi > -70)
        return heard, ((rssi[heard] + 55) / 10).astype(np.float32)


class Walks(Dataset):
    """A walk: `n_scans` scans along a straight line; the target is the end position."""

    def __init__(self, building, n, n_scans, seed):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(n):
            end = rng.uniform(0, 1, 2) * building.extent
            heading = rng.uniform(0, 2 * np.pi)
            pace = np.array([np.cos(heading), np.sin(heading)]) * rng.uniform(0.8, 1.6)
            scans = [building.scan(end - pace * (n_scans - 1 - k), rng) for k in range(n_scans)]
            self.items.append((np.concatenate([a for a, _ in scans]), np.concatenate([r for _, r in scans]),
                               np.array([len(a) for a, _ in scans]),
                               (end / building.extent * 2 - 1).astype(np.float32)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return tuple(torch.from_numpy(part) for part in self.items[i])


def collate(samples):
    """One long list of (access point, level), with the length of every scan."""
    ids, rssi, lengths, target = zip(*samples)
    return torch.cat(ids), torch.cat(rssi), torch.cat(lengths), torch.stack(target)


class Locator(nn.Module):
    def __init__(self, n_ap, n_scans, dim=96):
        super().__init__()
        self.ap = nn.Embedding(n_ap, dim)
        self.level = nn.Sequential(nn.Linear(1, 32), nn.ReLU(), nn.Linear(32, dim))
        self.point = nn.Sequential(nn.Linear(dim, dim), nn.GELU())
        self.walk = nn.GRU(dim, 128, batch_first=True)
        self.out = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2))
        self.n_scans = n_scans

    def forward(self, ids, rssi, lengths):
        h = self.point(self.ap(ids) * torch.sigmoid(self.level(rssi[:, None])))
        scan = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
        pooled = h.new_zeros(len(lengths), h.shape[1]).index_add_(0, scan, h)
        pooled = pooled / lengths.clamp(min=1).sqrt()[:, None]
        _, last = self.walk(pooled.view(-1, self.n_scans, pooled.shape[1]))
        return self.out(last[0])


@torch.no_grad()
def evaluate(model, batches, extent):
    model.eval()
    errors = []
    for ids, rssi, lengths, target in batches:
        gap = (model(ids, rssi, lengths) - target) * torch.tensor(extent / 2, dtype=torch.float32)
        errors.append(gap.norm(dim=1))
    model.train()
    return torch.cat(errors).median().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--walks", type=int, default=2048)
    p.add_argument("--scans", type=int, default=8)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--epochs", type=int, default=5)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=4)
    args = p.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    mp.set_sharing_strategy("file_system")

    building = Building(seed=args.seed)
    train = Walks(building, args.walks, args.scans, args.seed + 1)
    valid = Walks(building, 256, args.scans, args.seed + 2)
    loader = DataLoader(train, args.batch, shuffle=True, drop_last=True, num_workers=args.workers,
                        collate_fn=collate, persistent_workers=True, prefetch_factor=4)
    held_out = [collate([valid[i] for i in range(k, k + 64)]) for k in range(0, len(valid), 64)]
    model = Locator(len(building.ap), args.scans)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=args.epochs * len(loader) + 1)

    def train_on(ids, rssi, lengths, target):
        loss = F.smooth_l1_loss(model(ids, rssi, lengths), target)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        return loss.detach()

    train_on(*held_out[0])
    steps, t0 = 0, time.perf_counter()
    for epoch in range(args.epochs):
        total = torch.zeros(())
        for batch in loader:
            total += train_on(*batch)
            steps += 1
        logger.info("epoch %d loss %.4f median error %.2f m", epoch, total.item() / len(loader),
                    evaluate(model, held_out, building.extent))
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - t0, steps))


if __name__ == "__main__":
    main()
