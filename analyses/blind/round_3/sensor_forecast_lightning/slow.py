"""Multi-horizon load forecasting for a fleet of sensors (N-BEATS style, Lightning)."""
import argparse
import logging
import time
import warnings

import lightning as L
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def simulate_fleet(n_sensors, n_hours, seed):
    rng = np.random.default_rng(seed)
    t = np.arange(n_hours)
    index = pd.date_range("2022-01-01", periods=n_hours, freq="h")
    frames = []
    for sensor in range(n_sensors):
        daily = rng.uniform(0.5, 2.0) * np.sin(2 * np.pi * t / 24 + rng.uniform(0, 6))
        weekly = rng.uniform(0.1, 1.0) * np.sin(2 * np.pi * t / 168 + rng.uniform(0, 6))
        walk = np.cumsum(rng.normal(0, 0.03, n_hours))
        load = daily + weekly + walk + rng.normal(0, 0.2, n_hours)
        frames.append(pd.DataFrame({"sensor": sensor, "time": index, "load": load}))
    return pd.concat(frames, ignore_index=True)


def make_windows(df, lookback, horizon, stride):
    """Scale every sensor robustly, cut (lookback, horizon) windows, drop flat ones."""
    xs, ys = [], []
    for _, group in df.groupby("sensor"):
        s = group.set_index("time")["load"]
        centre = s.rolling("28D", min_periods=24).median().bfill()
        spread = s.rolling("28D", min_periods=24).std().bfill()
        z = ((s - centre) / (spread + 1e-3)).clip(-6, 6).to_numpy(np.float32)
        w = np.lib.stride_tricks.sliding_window_view(z, lookback + horizon)[::stride]
        w = w[w.std(axis=1) > 1e-3]
        xs.append(w[:, :lookback])
        ys.append(w[:, lookback:])
    return torch.from_numpy(np.concatenate(xs)), torch.from_numpy(np.concatenate(ys))


class Windows(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.x)

    def __getitems__(self, idx):
        idx = torch.as_tensor(idx)
        return self.x[idx], self.y[idx]


class FleetData(L.LightningDataModule):
    def __init__(self, args):
        super().__init__()
        self.args = args

    def setup(self, stage=None):
        a = self.args
        df = simulate_fleet(a.sensors, a.hours, a.seed)
        cut = df["time"].iloc[int(a.hours * 0.85)]
        self.train_df = df[df["time"] < cut]
        self.val_df = df[df["time"] >= cut]
        self.val_set = Windows(*make_windows(self.val_df, a.lookback, a.horizon, a.horizon))

    def _loader(self, dataset, shuffle):
        return DataLoader(dataset, batch_size=self.args.batch_size, shuffle=shuffle,
                          drop_last=shuffle, collate_fn=lambda b: b)

    def train_dataloader(self):
        a = self.args
        train_set = Windows(*make_windows(self.train_df, a.lookback, a.horizon, a.stride))
        return self._loader(train_set, shuffle=True)

    def val_dataloader(self):
        return self._loader(self.val_set, shuffle=False)


class Block(nn.Module):
    def __init__(self, lookback, horizon, width, depth=4):
        super().__init__()
        dims = [lookback] + [width] * depth
        layers = []
        for i, o in zip(dims[:-1], dims[1:]):
            layers += [nn.Linear(i, o), nn.ReLU(inplace=True)]
        self.trunk = nn.Sequential(*layers)
        self.backcast = nn.Linear(width, lookback)
        self.forecast = nn.Linear(width, horizon)

    def forward(self, x):
        h = self.trunk(x)
        return x - self.backcast(h), self.forecast(h)


class NBeats(L.LightningModule):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.blocks = nn.ModuleList(
            Block(args.lookback, args.horizon, args.width) for _ in range(args.blocks))

    def forward(self, x):
        out = 0
        for block in self.blocks:
            x, f = block(x)
            out = out + f
        return out

    def training_step(self, batch, _):
        x, y = batch
        loss = F.smooth_l1_loss(self(x), y)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, _):
        x, y = batch
        self.log("val_mae", F.l1_loss(self(x), y), batch_size=len(x))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.args.lr, fused=True)


class Clock(Callback):
    def on_train_start(self, trainer, module):
        self.t0 = time.perf_counter()

    def on_validation_epoch_end(self, trainer, module):
        if not trainer.sanity_checking:
            mae = trainer.callback_metrics["val_mae"].item()
            print(f"epoch {trainer.current_epoch} step {trainer.global_step} val_mae {mae:.4f}")

    def on_train_end(self, trainer, module):
        self.seconds = time.perf_counter() - self.t0
        self.steps = trainer.global_step


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sensors", type=int, default=40)
    p.add_argument("--hours", type=int, default=24 * 300)
    p.add_argument("--lookback", type=int, default=168)
    p.add_argument("--horizon", type=int, default=24)
    p.add_argument("--stride", type=int, default=24)
    p.add_argument("--batch-size", type=int, default=512)
    p.add_argument("--width", type=int, default=224)
    p.add_argument("--blocks", type=int, default=4)
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=3)
    args = p.parse_args()

    torch.set_num_threads(1)
    L.seed_everything(args.seed, verbose=False)
    data, model, clock = FleetData(args), NBeats(args), Clock()
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_epochs=args.epochs,
        reload_dataloaders_every_n_epochs=1, log_every_n_steps=20,
        gradient_clip_val=1.0, num_sanity_val_steps=0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[clock])
    trainer.fit(model, datamodule=data)
    print(f"loop_s={clock.seconds:.3f} steps={clock.steps}")


if __name__ == "__main__":
    main()
