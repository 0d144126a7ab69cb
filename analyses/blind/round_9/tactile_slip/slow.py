"""Predict slip of a grasped object from two tactile pads (8 x 8 taxels each) and the gripper's force."""
import argparse
import csv
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

PAD = 8


def make_grasps(n, frames, seed):
    """A contact blob on each pad; where it slips it drifts and trembles for some frames before the end."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:PAD, 0:PAD].astype(np.float32)
    slip = rng.random(n) < 0.5
    t = np.arange(frames)
    centre = rng.uniform(2.5, 4.5, (n, 1, 2, 2))
    onset = rng.integers(frames // 2, frames - 4, n)[:, None]
    moved = np.clip(t[None] - onset, 0, None) * slip[:, None] * rng.uniform(0.03, 0.12, (n, 1))
    tremble = 0.1 * rng.standard_normal((n, frames)) * (moved > 0)
    pos = centre + (moved + tremble)[:, :, None, None] * np.array([1.0, -0.3])
    force = rng.uniform(0.5, 2.0, (n, 1)) + 0.05 * rng.standard_normal((n, frames))
    dx = xx[None, None, None] - pos[..., 0][..., None, None]
    dy = yy[None, None, None] - pos[..., 1][..., None, None]
    press = force[:, :, None, None, None] * np.exp(-(dx ** 2 + dy ** 2) / 4)
    press = press + 0.05 * rng.standard_normal(press.shape)
    return (torch.from_numpy(press.astype(np.float32)),
            torch.from_numpy(force[..., None].astype(np.float32)),
            torch.from_numpy(slip.astype(np.float32)))


class SlipNet(nn.Module):
    def __init__(self, channels=24, hidden=64):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(2, channels, 3, padding=1), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Flatten())
        self.mix = nn.Linear(channels * 16 + 1, hidden)
        self.temporal = nn.GRU(hidden, hidden, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, press, force):
        b, t = press.shape[:2]
        h = self.conv(press.flatten(0, 1)).view(b, t, -1)
        h = F.relu(self.mix(torch.cat([h, force], -1)))
        h, _ = self.temporal(h)
        return self.out(h[:, -1]).squeeze(-1)


def gradient_norms(model):
    norms = {}
    for name, p in model.named_parameters():
        norms[name] = p.grad.norm().item()
    return norms


def write_row(path, row):
    new = not os.path.exists(path)
    with open(path, "a", newline="") as f:
        writer = csv.writer(f)
        if new:
            writer.writerow(row.keys())
        writer.writerow(row.values())


def evaluate(model, data, batch):
    press, force, slip = data
    model.eval()
    with torch.no_grad():
        logits = torch.cat([model(p, f) for p, f in zip(press.split(batch), force.split(batch))])
    model.train()
    return ((logits > 0) == (slip > 0.5)).float().mean().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--grasps", type=int, default=1600)
    ap.add_argument("--frames", type=int, default=32)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=12)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    press, force, slip = make_grasps(args.grasps, args.frames, args.seed)
    held_out = make_grasps(160, args.frames, args.seed + 1)
    model = SlipNet()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)

    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "train.csv")
        steps = 0
        t0 = time.perf_counter()
        for epoch in range(args.epochs):
            losses, correct = [], 0
            for idx in torch.randperm(args.grasps).split(args.batch):
                logits = model(press[idx], force[idx])
                loss = F.binary_cross_entropy_with_logits(logits, slip[idx])
                opt.zero_grad()
                loss.backward()
                norms = gradient_norms(model)
                opt.step()
                steps += 1
                losses.append(loss.item())
                for guess, truth in zip(logits.tolist(), slip[idx].tolist()):
                    correct += (guess > 0) == (truth > 0.5)
                write_row(log, {"step": steps, "loss": loss.item(), **norms})
            acc = evaluate(model, held_out, args.batch)
            print(f"epoch {epoch} loss {np.mean(losses):.4f} train acc {correct / args.grasps:.3f} "
                  f"held-out acc {acc:.3f}", flush=True)
        elapsed = time.perf_counter() - t0
    print(f"loop_s={elapsed:.3f} steps={steps}")


if __name__ == "__main__":
    main()
