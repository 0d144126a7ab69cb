"""MLP-Mixer on land-cover tiles, with a hand-written trainer."""
import argparse
import copy
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

COVER = 6


def write_tiles(path, n):
    rng = np.random.default_rng(40)
    y = rng.integers(0, COVER, n)
    yy, xx = np.mgrid[0:32, 0:32]
    x = np.empty((n, 4, 32, 32), dtype=np.uint8)
    for k in range(n):
        w = np.sin((xx * (y[k] + 1) + yy * (COVER - y[k])) / 6 + rng.uniform(0, 6))
        x[k] = ((w + rng.normal(0, 0.8, (4, 32, 32))) * 30 + 128).clip(0, 255)
    np.savez_compressed(path, x=x, y=y)


class MixerLayer(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix = nn.Sequential(nn.Linear(tokens, 64), nn.GELU(), nn.Linear(64, tokens))
        self.ff = nn.Sequential(nn.Linear(dim, 256), nn.GELU(), nn.Linear(256, dim))

    def forward(self, x):
        x = x + self.mix(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.ff(self.n2(x))


class Mixer(nn.Module):
    def __init__(self, dim=128, depth=3):
        super().__init__()
        self.patch = nn.Conv2d(4, dim, 4, 4)
        self.layers = nn.Sequential(*[MixerLayer(64, dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, COVER)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.layers(x)).mean(1))


class Trainer:
    def __init__(self, model, x, y, batch):
        self.model, self.batch = model, batch
        cut = len(y) * 9 // 10
        self.train_set, self.val_set = (x[:cut], y[:cut]), (x[cut:], y[cut:])
        self.opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
        self.best_acc, self.best_state = -1.0, None
        self.steps = 0

    def prepare(self, x):
        return x.float().sub_(128).div_(40)

    def step(self, x, y):
        loss = F.cross_entropy(self.model(self.prepare(x)), y)
        self.opt.zero_grad()
        loss.backward()
        if not torch.isfinite(loss):
            raise RuntimeError("loss is not finite")
        for name, p in self.model.named_parameters():
            if not bool(torch.isfinite(p.grad).all()):
                raise RuntimeError(f"gradient of {name} is not finite")
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        x, y = self.val_set
        acc = (self.model(self.prepare(x)).argmax(1) == y).float().mean().item()
        self.model.train()
        if acc > self.best_acc:
            self.best_acc, self.best_state = acc, copy.deepcopy(self.model.state_dict())
        return acc

    def fit(self, epochs):
        x, y = self.train_set
        for e in range(epochs):
            losses = []
            for ix in torch.randperm(len(y)).split(self.batch):
                losses.append(self.step(x[ix], y[ix]))
                self.steps += 1
            print(f"epoch {e} loss {np.mean(losses):.3f} val acc {self.validate():.3f}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tiles", type=int, default=1280)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=24)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(40)
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "tiles.npz")
        write_tiles(path, args.tiles)
        z = np.load(path)
        x, y = torch.from_numpy(z["x"]), torch.from_numpy(z["y"])
    trainer = Trainer(Mixer(), x, y, args.batch)
    for _ in range(3):
        trainer.step(x[:args.batch], y[:args.batch])
    t0 = time.perf_counter()
    trainer.fit(args.epochs)
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={trainer.steps}")


if __name__ == "__main__":
    main()
