"""In-hospital mortality from the first 48 hours in intensive care (vital signs and laboratory), Lightning."""
import argparse
import logging
import time
import warnings

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")


def make_stays(n, hours, channels, rng):
    """Autoregressive channels whose drift depends on a hidden severity; gaps are filled forward."""
    severity = rng.standard_normal(n).astype(np.float32)
    direction = rng.standard_normal(channels).astype(np.float32) * 0.04
    x = np.empty((n, hours, channels), dtype=np.float32)
    level = rng.standard_normal((n, channels)).astype(np.float32)
    seen = level.copy()
    for t in range(hours):
        level = 0.92 * level + severity[:, None] * direction
        level += 0.35 * rng.standard_normal((n, channels), dtype=np.float32)
        observed = rng.random((n, channels), dtype=np.float32) < 0.6
        seen = np.where(observed, level, seen)
        x[:, t] = seen
    risk = 1 / (1 + np.exp(-(1.6 * severity - 2.0)))
    y = (rng.random(n) < risk).astype(np.float32)
    return torch.from_numpy(x), torch.from_numpy(y)


class DilatedBlock(nn.Module):
    def __init__(self, cin, cout, dilation):
        super().__init__()
        self.conv = nn.Conv1d(cin, cout, 3, padding=dilation, dilation=dilation)
        self.norm = nn.GroupNorm(4, cout)
        self.skip = nn.Conv1d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)) + self.skip(x))


class MortalityNet(L.LightningModule):
    def __init__(self, channels, width=48, lr=1e-3, pos_weight=4.0):
        super().__init__()
        self.lr = lr
        self.net = nn.Sequential(
            DilatedBlock(channels, width, 1), DilatedBlock(width, width, 2), DilatedBlock(width, width, 4))
        self.head = nn.Linear(2 * width, 1)
        self.loss = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(pos_weight))
        self.train_auroc = BinaryAUROC()
        self.train_auprc = BinaryAveragePrecision()
        self.val_auroc = BinaryAUROC()

    def forward(self, x):
        features = self.net(x.transpose(1, 2))
        return self.head(torch.cat([features.mean(2), features.amax(2)], 1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        loss = self.loss(logits, y)
        prob, target = logits.detach().sigmoid(), y.long()
        self.train_auroc.update(prob, target)
        self.train_auprc.update(prob, target)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def on_train_epoch_end(self):
        self.log("train_auroc", self.train_auroc.compute(), prog_bar=True)
        self.log("train_auprc", self.train_auprc.compute(), prog_bar=True)
        self.train_auroc.reset()
        self.train_auprc.reset()

    def validation_step(self, batch, batch_idx):
        x, y = batch
        logits = self(x)
        self.val_auroc.update(logits.sigmoid(), y.long())
        self.log("val_loss", self.loss(logits, y))

    def on_validation_epoch_end(self):
        self.log("val_auroc", self.val_auroc.compute())
        self.val_auroc.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=1e-3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stays", type=int, default=26000)
    parser.add_argument("--hours", type=int, default=48)
    parser.add_argument("--channels", type=int, default=16)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=3)
    args = parser.parse_args()

    L.seed_everything(args.seed, verbose=False)
    x, y = make_stays(args.stays, args.hours, args.channels, np.random.default_rng(args.seed))
    n_val = 1024
    train = TensorDataset(x[n_val:], y[n_val:])
    val = TensorDataset(x[:n_val], y[:n_val])
    train_loader = DataLoader(train, batch_size=args.batch_size, shuffle=True, drop_last=True)
    val_loader = DataLoader(val, batch_size=256)

    model = MortalityNet(args.channels)
    trainer = L.Trainer(
        max_epochs=args.epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, gradient_clip_val=1.0)
    began = time.perf_counter()
    trainer.fit(model, train_loader, val_loader)
    took = time.perf_counter() - began

    scores = {k: round(float(v), 4) for k, v in trainer.callback_metrics.items()}
    print(scores)
    print(f"loop_s={took:.3f} steps={trainer.global_step}")


if __name__ == "__main__":
    main()
