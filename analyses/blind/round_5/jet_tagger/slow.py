"""Jet tagging with a deep-sets network on variable numbers of particles."""
import math
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SEED = 5
BATCH = 64
N_JETS = 6400
EPOCHS = 3
MAX_PART = 36  # the leading ones


class JetDataset(Dataset):
    """Toy parton showers. Each jet has kinematics and particle types of its constituents."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.label = rng.integers(0, 2, size=n)
        mean = np.where(self.label == 1, 44, 35)
        self.size = np.clip(rng.poisson(mean), 6, MAX_PART)
        self.start = np.concatenate([[0], np.cumsum(self.size)])
        total = int(self.start[-1])
        width = np.repeat(np.where(self.label == 1, 0.28, 0.18), self.size)
        pt = rng.exponential(1.0, total)
        eta, phi = rng.normal(0, 1, (2, total)) * width
        d0 = rng.normal(0, 0.05, total)
        self.kin = np.stack([np.log1p(pt), eta, phi, np.hypot(eta, phi), d0], 1).astype(np.float32)
        self.pid = rng.choice(5, size=total, p=[0.55, 0.2, 0.15, 0.06, 0.04])

    def __len__(self):
        return len(self.size)

    def __getitem__(self, i):
        a, b = self.start[i], self.start[i + 1]
        kin = self.kin[a:b]
        # rotate around the axis, a symmetry of the problem
        angle = np.random.uniform(0, 2 * math.pi)
        c, s = np.float32(math.cos(angle)), np.float32(math.sin(angle))
        out = kin.copy()
        out[:, 1] = c * kin[:, 1] - s * kin[:, 2]
        out[:, 2] = s * kin[:, 1] + c * kin[:, 2]
        return {"kin": torch.from_numpy(out),
                "pid": torch.from_numpy(self.pid[a:b]),
                "label": int(self.label[i])}


def pad_jets(jets):
    n = len(jets)
    kin = torch.zeros(n, MAX_PART, 5)
    pid = torch.zeros(n, MAX_PART, dtype=torch.long)
    mask = torch.zeros(n, MAX_PART)
    for k, jet in enumerate(jets):
        m = jet["kin"].shape[0]
        kin[k, :m] = jet["kin"]
        pid[k, :m] = jet["pid"]
        mask[k, :m] = 1
    label = torch.tensor([jet["label"] for jet in jets])
    return kin, pid, mask, label


def keep_list(jets):
    return jets


class DeepSet(nn.Module):
    def __init__(self, width=128, classes=2):
        super().__init__()
        self.pid = nn.Embedding(5, 8)
        self.phi = nn.Sequential(nn.Linear(13, width), nn.ReLU(),
                                 nn.Linear(width, width), nn.ReLU())
        self.mix = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(),
                                 nn.Linear(width, width), nn.ReLU())
        self.rho = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(),
                                 nn.Dropout(0.1), nn.Linear(width, classes))

    @staticmethod
    def mean(h, mask):
        return (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    def forward(self, kin, pid, mask):
        h = self.phi(torch.cat([kin, self.pid(pid)], -1))
        context = self.mean(h, mask)[:, None].expand_as(h)
        h = self.mix(torch.cat([h, context], -1))
        peak = h.masked_fill(mask[..., None] == 0, 0.0).amax(1)
        return self.rho(torch.cat([self.mean(h, mask), peak], -1))


class Meter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.loss, self.hit, self.n = 0.0, 0, 0

    def update(self, loss, logits, label):
        self.loss += loss.item() * len(label)
        self.hit += (logits.argmax(1) == label).sum().item()
        self.n += len(label)

    def __str__(self):
        return f"loss {self.loss / self.n:.4f} acc {self.hit / self.n:.3f}"


def seed_worker(worker_id):
    np.random.seed(torch.initial_seed() % 2 ** 32)


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    train_set = JetDataset(N_JETS, SEED)
    loader = DataLoader(train_set, batch_size=BATCH, shuffle=True, num_workers=1,
                        collate_fn=keep_list, persistent_workers=True, prefetch_factor=4,
                        worker_init_fn=seed_worker, drop_last=True)
    val_set = JetDataset(512, SEED + 1)
    val = pad_jets([val_set[i] for i in range(len(val_set))])

    model = DeepSet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    criterion = nn.CrossEntropyLoss()
    meter = Meter()
    steps = 0
    begin = None
    for epoch in range(EPOCHS):
        model.train()
        meter.reset()
        for jets in loader:
            if begin is None:  # the worker has started
                begin = time.perf_counter()
            kin, pid, mask, label = pad_jets(jets)
            logits = model(kin, pid, mask)
            loss = criterion(logits, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            meter.update(loss, logits, label)
            steps += 1
        model.eval()
        with torch.no_grad():
            logits = model(*val[:3])
            acc = (logits.argmax(1) == val[3]).float().mean().item()
        print(f"epoch {epoch}: train {meter} | val acc {acc:.3f}", flush=True)
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - begin, steps))


if __name__ == "__main__":
    main()
