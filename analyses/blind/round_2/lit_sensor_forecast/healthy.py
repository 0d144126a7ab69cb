import logging
import shutil
import tempfile
import time
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, Dataset, random_split

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)


class Windows(Dataset):
    def __init__(self, series, length, horizon):
        self.series, self.length, self.horizon = series, length, horizon

    def __len__(self):
        return len(self.series) - self.length - self.horizon

    def __getitem__(self, i):
        x = self.series[i : i + self.length]
        y = self.series[i + self.length : i + self.length + self.horizon, 0]
        return torch.from_numpy(x), torch.from_numpy(y)


class Forecaster(L.LightningModule):
    def __init__(self, channels=6, hidden=96, horizon=8, lr=1e-3):
        super().__init__()
        self.save_hyperparameters()
        self.conv = nn.Sequential(
            nn.Conv1d(channels, hidden, 5, padding=2), nn.ReLU(),
            nn.Conv1d(hidden, hidden, 5, padding=2, stride=2), nn.ReLU(),
            nn.Conv1d(hidden, hidden, 5, padding=2, stride=2), nn.ReLU(),
        )
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.head = nn.Sequential(nn.Linear(hidden, 128), nn.ReLU(), nn.Linear(128, horizon))

    def forward(self, x):
        z = self.conv(x.transpose(1, 2)).transpose(1, 2)
        out, _ = self.rnn(z)
        return self.head(out[:, -1])

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = F.smooth_l1_loss(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_loss", F.l1_loss(self(x), y), prog_bar=True)

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return {"optimizer": opt, "lr_scheduler": torch.optim.lr_scheduler.StepLR(opt, 1, 0.7)}


class GradientReport(Callback):
    """Keeps the distribution of the gradients per layer for the run report."""

    def __init__(self, bins=64, every=50):
        self.bins = bins
        self.every = every
        self.rows = []

    def on_after_backward(self, trainer, module):
        if trainer.global_step % self.every:
            return
        for name, p in module.named_parameters():
            if p.grad is None:
                continue
            g = p.grad.detach().flatten().numpy()
            counts, _ = np.histogram(g, bins=self.bins)
            q = np.percentile(g, [1, 25, 50, 75, 99])
            self.rows.append((trainer.global_step, name, counts, q))


class Clock(Callback):
    def on_train_start(self, trainer, module):
        self.start = time.perf_counter()

    def on_train_end(self, trainer, module):
        self.seconds = time.perf_counter() - self.start
        self.steps = trainer.global_step


def synthetic_plant(n, rng):
    t = np.arange(n)[:, None]
    base = np.sin(t / np.array([[11, 23, 37, 50, 71, 90]]))
    return (base + 0.2 * rng.standard_normal((n, 6)).cumsum(0) / np.sqrt(n)).astype(np.float32)


def main():
    L.seed_everything(5, verbose=False)
    tmp = tempfile.mkdtemp()
    try:
        data = Windows(synthetic_plant(4500, np.random.default_rng(0)), 96, 8)
        train, val = random_split(data, [3840, len(data) - 3840], torch.Generator().manual_seed(1))
        clock, report = Clock(), GradientReport()
        trainer = L.Trainer(
            max_epochs=2, accelerator="cpu", devices=1, default_root_dir=tmp,
            logger=CSVLogger(tmp), log_every_n_steps=20, num_sanity_val_steps=0,
            enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=1.0,
            callbacks=[clock, report, ModelCheckpoint(dirpath=tmp, monitor="val_loss")],
        )
        trainer.fit(
            Forecaster(),
            DataLoader(train, batch_size=64, shuffle=True, drop_last=True),
            DataLoader(val, batch_size=128),
        )
        print("report rows", len(report.rows), "val", float(trainer.callback_metrics["val_loss"]))
    finally:
        shutil.rmtree(tmp)
    print(f"loop_s={clock.seconds:.3f} steps={clock.steps}")


if __name__ == "__main__":
    main()
