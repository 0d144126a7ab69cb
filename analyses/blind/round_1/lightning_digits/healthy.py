"""Seven-segment digit recognition with Lightning."""
import logging
import tempfile
import time
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassAccuracy

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

SEGMENTS = ["abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg"]
PLACES = {"a": (slice(2, 4), slice(6, 14)), "b": (slice(4, 10), slice(13, 15)), "c": (slice(11, 17), slice(13, 15)),
          "d": (slice(17, 19), slice(6, 14)), "e": (slice(11, 17), slice(5, 7)), "f": (slice(4, 10), slice(5, 7)),
          "g": (slice(10, 12), slice(6, 14))}


def digits(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 10, size=n)
    x = rng.normal(0, 0.4, size=(n, 1, 20, 20)).astype(np.float32)
    for k, d in enumerate(y):
        for s in SEGMENTS[d]:
            x[k, 0][PLACES[s]] += 1
        x[k, 0] = np.roll(x[k, 0], rng.integers(-1, 2, size=2), (0, 1))
    return TensorDataset(torch.from_numpy(x), torch.from_numpy(y))


class Digits(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(3200, 400), nn.ReLU(), nn.Linear(400, 10))
        self.acc = MulticlassAccuracy(10)

    def training_step(self, batch, _):
        x, y = batch
        loss = F.cross_entropy(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.acc(self.net(x), y)
        self.log("val_acc", self.acc)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


class Stopwatch(Callback):
    def __init__(self, warm=4):
        self.warm = warm

    def on_train_batch_end(self, trainer, module, *a):
        if trainer.global_step == self.warm:
            self.start = time.perf_counter()

    def on_train_end(self, trainer, module):
        self.took = time.perf_counter() - self.start
        self.steps = trainer.global_step - self.warm


def main():
    torch.set_num_threads(1)
    L.seed_everything(5, verbose=False)
    train, val = digits(3200, 0), digits(320, 1)
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as tmp:
        keep = ModelCheckpoint(dirpath=tmp, filename="digits-{step}", every_n_epochs=1, save_top_k=1, monitor=None)
        trainer = L.Trainer(max_epochs=2, accelerator="cpu", callbacks=[keep, watch], logger=False,
                            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
        trainer.fit(Digits(), DataLoader(train, batch_size=32, shuffle=True), DataLoader(val, batch_size=64))
        print(f"val acc {trainer.callback_metrics['val_acc'].item():.3f}")
    print(f"loop_s={watch.took:.3f} steps={watch.steps}")


if __name__ == "__main__":
    main()
