"""Hand gestures from a wrist IMU with Lightning.

A callback keeps the embeddings of the last training windows in a ring and writes a small
snapshot from time to time, which the embedding viewer of the lab reads.
"""
import argparse
import logging
import tempfile
import time
import warnings
from pathlib import Path

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")


def make_windows(n, classes, length, gen):
    t = torch.arange(length) / 50.0
    label = torch.randint(0, classes, (n,), generator=gen)
    freq = 0.6 + 0.25 * torch.arange(classes)
    phase = torch.linspace(0, 3, classes * 6).view(classes, 6)
    speed = 0.85 + 0.3 * torch.rand(n, 1, 1, generator=gen)
    start = 6.28 * torch.rand(n, 1, 1, generator=gen)
    wave = torch.sin(6.28 * freq[label].view(n, 1, 1) * speed * t + start + phase[label][..., None])
    gravity = torch.randn(n, 6, 1, generator=gen)
    return wave + 0.5 * gravity + 0.7 * torch.randn(n, 6, length, generator=gen), label


class TemporalBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.conv1 = nn.Conv1d(cin, cout, 5, stride=stride, padding=2)
        self.conv2 = nn.Conv1d(cout, cout, 5, padding=2)
        self.n1, self.n2 = nn.BatchNorm1d(cout), nn.BatchNorm1d(cout)
        self.skip = nn.Conv1d(cin, cout, 1, stride=stride)

    def forward(self, x):
        h = F.relu(self.n1(self.conv1(x)))
        return F.relu(self.n2(self.conv2(h)) + self.skip(x))


class GestureModule(L.LightningModule):
    def __init__(self, classes=12, dim=192, lr=2e-3):
        super().__init__()
        self.save_hyperparameters()
        self.body = nn.Sequential(TemporalBlock(6, 48, 1), TemporalBlock(48, 96, 2), TemporalBlock(96, dim, 2))
        self.head = nn.Linear(dim, classes)

    def embed(self, x):
        return self.body(x).mean(-1)

    def training_step(self, batch, idx):
        x, y = batch
        z = self.embed(x)
        loss = F.cross_entropy(self.head(z), y)
        return {"loss": loss, "z": z.detach(), "y": y}

    def validation_step(self, batch, idx):
        x, y = batch
        acc = (self.head(self.embed(x)).argmax(1) == y).float().mean()
        self.log("val_acc", acc, prog_bar=False)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, fused=True)


class EmbeddingSnapshots(L.Callback):
    def __init__(self, folder, dim, capacity=65536, newest=512, every=4):
        self.folder, self.newest, self.every = Path(folder), newest, every
        self.z = torch.zeros(capacity, dim)
        self.y = torch.zeros(capacity, dtype=torch.long)
        self.at = 0

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        n = len(outputs["y"])
        if self.at + n > len(self.y):
            self.at = 0
        self.z[self.at:self.at + n] = outputs["z"]
        self.y[self.at:self.at + n] = outputs["y"]
        self.at += n
        if trainer.global_step % self.every == 0 and self.at >= self.newest:
            recent = slice(self.at - self.newest, self.at)
            snapshot = {"step": trainer.global_step, "z": self.z[recent].clone(), "y": self.y[recent].clone()}
            torch.save(snapshot, self.folder / "newest.pt")


class Clock(L.Callback):
    def on_train_start(self, trainer, module):
        self.t0 = time.perf_counter()

    def on_train_end(self, trainer, module):
        self.wall = time.perf_counter() - self.t0


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--windows", type=int, default=4864)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--seed", type=int, default=42)
    args = ap.parse_args()

    L.seed_everything(args.seed, verbose=False)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(args.seed)
    x, y = make_windows(args.windows + 1024, 12, 100, gen)
    train = DataLoader(TensorDataset(x[:-1024], y[:-1024]), batch_size=args.batch, shuffle=True)
    val = DataLoader(TensorDataset(x[-1024:], y[-1024:]), batch_size=512)
    module = GestureModule()
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        trainer = L.Trainer(max_epochs=args.epochs, accelerator="cpu", devices=1, logger=False,
                            enable_checkpointing=False, enable_progress_bar=False,
                            enable_model_summary=False, num_sanity_val_steps=0,
                            callbacks=[EmbeddingSnapshots(folder, module.hparams.dim), clock])
        trainer.fit(module, train, val)
    print("validation accuracy %.3f" % trainer.callback_metrics["val_acc"].item())
    print("loop_s=%.3f steps=%d" % (clock.wall, trainer.global_step))


if __name__ == "__main__":
    main()
