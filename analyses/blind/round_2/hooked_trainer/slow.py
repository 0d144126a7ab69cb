import argparse
import os
import tempfile
import time
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Events:
    def __init__(self):
        self.table = defaultdict(list)

    def on(self, name, fn):
        self.table[name].append(fn)

    def fire(self, name, *args):
        for fn in self.table[name]:
            fn(*args)


class ResBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv1 = nn.Conv1d(c, c, 5, padding=2)
        self.conv2 = nn.Conv1d(c, c, 5, padding=2)
        self.norm = nn.GroupNorm(4, c)

    def forward(self, x):
        return F.relu(x + self.conv2(F.relu(self.norm(self.conv1(x)))))


class BeatNet(nn.Module):
    def __init__(self, c=32, blocks=4, classes=5):
        super().__init__()
        self.stem = nn.Conv1d(2, c, 7, stride=2, padding=3)
        self.blocks = nn.Sequential(*[ResBlock(c) for _ in range(blocks)])
        self.head = nn.Linear(c, classes)

    def forward(self, x):
        return self.head(self.blocks(F.relu(self.stem(x))).mean(-1))


class ActivationProbe:
    """Summary of what every layer puts out, for the validation report."""

    def __init__(self, model):
        self.stats = defaultdict(list)
        self.handles = []
        for name, layer in model.named_modules():
            if isinstance(layer, (nn.Conv1d, nn.GroupNorm, nn.Linear)):
                self.handles.append(layer.register_forward_hook(self.hook(name)))

    def hook(self, name):
        def fn(layer, inputs, output):
            o = output.detach()
            self.stats[name].append((o.mean().item(), o.std().item(), (o <= 0).float().mean().item()))
        return fn

    def report(self):
        return {k: np.mean(v, axis=0) for k, v in self.stats.items()}

    def close(self):
        for h in self.handles:
            h.remove()


class Trainer:
    def __init__(self, model, train, valid, lr, folder):
        self.model, self.train_loader, self.valid_loader = model, train, valid
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr)
        self.folder = folder
        self.events = Events()
        self.step = 0
        self.best = 0.0

    def fit(self, epochs):
        for self.epoch in range(epochs):
            self.events.fire("epoch_start", self)
            for x, y in self.train_loader:
                loss = F.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.step += 1
                self.events.fire("step_end", self, loss)
            self.events.fire("epoch_end", self)

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        probe = ActivationProbe(self.model)
        right = sum((self.model(x).argmax(1) == y).sum().item() for x, y in self.valid_loader)
        self.model.train()
        return right / len(self.valid_loader.dataset), probe.report()


def validate(trainer):
    acc, report = trainer.evaluate()
    dead = max(report.items(), key=lambda kv: kv[1][2])
    print(f"epoch {trainer.epoch} acc {acc:.3f} least active {dead[0]} {dead[1][2]:.2f}")
    if acc > trainer.best:
        trainer.best = acc
        torch.save(trainer.model.state_dict(), os.path.join(trainer.folder, "best.pt"))


def warm_lr(trainer, loss):
    for g in trainer.opt.param_groups:
        g["lr"] = 1e-3 * min(1.0, trainer.step / 20)


def heartbeats(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 5, n)
    t = np.linspace(0, 1, 128)
    x = np.stack([np.sin(2 * np.pi * (3 + y[:, None]) * t + rng.uniform(0, 6, (n, 1))), np.cos(9 * t) * (1 + y[:, None])], 1)
    x += rng.normal(0, 0.8, x.shape)
    return TensorDataset(torch.tensor(x, dtype=torch.float32), torch.tensor(y))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=10)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as tmp:
        train = DataLoader(heartbeats(640, 0), batch_size=32, shuffle=True)
        valid = DataLoader(heartbeats(96, 1), batch_size=48)
        trainer = Trainer(BeatNet(), train, valid, 1e-3, tmp)
        trainer.events.on("step_end", warm_lr)
        trainer.events.on("epoch_end", validate)
        F.cross_entropy(trainer.model(torch.zeros(4, 2, 128)), torch.zeros(4, dtype=torch.long)).backward()
        start = time.perf_counter()
        trainer.fit(args.epochs)
        seconds = time.perf_counter() - start
    print(f"loop_s={seconds:.3f} steps={trainer.step}")


if __name__ == "__main__":
    main()
