"""12-lead ECG, multi-label diagnosis with a Lightning module."""
import logging
import time
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MultilabelAUROC

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

DIAGNOSES = ["AFIB", "1AVB", "LBBB", "RBBB", "SB", "ST", "PVC", "MI"]


def synth_ecg(n, length=600, leads=12, seed=0):
    """Beats as sums of bumps (P, QRS, T); each diagnosis bends one property of them."""
    rng = np.random.default_rng(seed)
    y = rng.random((n, len(DIAGNOSES))) < 0.15
    t = np.arange(length, dtype=np.float32)
    x = rng.normal(0, 0.15, size=(n, leads, length)).astype(np.float32)
    lead = rng.normal(1, 0.3, size=(leads, 3)).astype(np.float32)
    for i in range(n):
        rr = 85.0 * (1.4 if y[i, 4] else 1) * (0.65 if y[i, 5] else 1)
        at = rng.uniform(0, rr)
        wave = np.zeros((3, length), dtype=np.float32)
        while at < length:
            qrs = 3.0 * (1.9 if y[i, 2] or y[i, 3] else 1)
            pr = 16 * (1.7 if y[i, 1] else 1)
            if not y[i, 0]:
                wave[0] += 0.2 * np.exp(-((t - at + pr) / 4) ** 2)
            wave[1] += np.exp(-((t - at) / qrs) ** 2) * (-1 if y[i, 6] and rng.random() < 0.3 else 1)
            wave[2] += (-0.3 if y[i, 7] else 0.35) * np.exp(-((t - at - 26) / 8) ** 2)
            at += rr * (rng.uniform(0.6, 1.5) if y[i, 0] else rng.uniform(0.96, 1.04))
        x[i] += (lead * (1.5 if y[i, 3] else 1)) @ wave
    return torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))


class Encoder(nn.Module):
    def __init__(self, leads, patch, dim, depth, length):
        super().__init__()
        self.patch = patch
        self.embed = nn.Linear(leads * patch, dim)
        self.pos = nn.Parameter(torch.randn(length // patch, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, dim * 3, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        b, c, t = x.shape
        x = x.view(b, c, t // self.patch, self.patch).transpose(1, 2).reshape(b, t // self.patch, c * self.patch)
        return self.norm(self.layers(self.embed(x) + self.pos)).mean(1)


class ECGModule(L.LightningModule):
    def __init__(self, dim=128, depth=2, patch=12, lr=8e-4):
        super().__init__()
        self.save_hyperparameters()
        self.encoder = Encoder(12, patch, dim, depth, 600)
        self.head = nn.Linear(dim, len(DIAGNOSES))
        self.criterion = nn.BCEWithLogitsLoss()
        self.train_auc = MultilabelAUROC(num_labels=len(DIAGNOSES), average="macro")
        self.val_auc = MultilabelAUROC(num_labels=len(DIAGNOSES), average="macro")

    def forward(self, x):
        return self.head(self.encoder(x))

    def training_step(self, batch, _):
        x, y = batch
        logits = self(x)
        loss = self.criterion(logits, y.float())
        self.train_auc.update(logits.detach(), y)
        self.log("train_loss", loss)
        return loss

    def on_train_epoch_end(self):
        self.log("train_auc", self.train_auc.compute())
        self.train_auc.reset()

    def validation_step(self, batch, _):
        x, y = batch
        logits = self(x)
        self.val_auc.update(logits, y)
        self.log("val_loss", self.criterion(logits, y.float()))

    def on_validation_epoch_end(self):
        self.log("val_auc", self.val_auc.compute())
        self.val_auc.reset()

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=0.02, fused=True)
        steps = int(self.trainer.estimated_stepping_batches)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, self.hparams.lr, total_steps=steps)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class Report(L.Callback):
    def on_train_start(self, trainer, module):
        self.t0 = time.perf_counter()

    def on_train_epoch_end(self, trainer, module):
        m = {k: round(float(v), 4) for k, v in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch}: {m}", flush=True)

    def on_train_end(self, trainer, module):
        self.seconds = time.perf_counter() - self.t0


def main():
    L.seed_everything(17, verbose=False)
    torch.set_num_threads(1)
    train = TensorDataset(*synth_ecg(3840, seed=0))
    val = TensorDataset(*synth_ecg(480, seed=1))
    train_loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
    val_loader = DataLoader(val, batch_size=96)
    report = Report()
    trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, callbacks=[report],
                        num_sanity_val_steps=0, gradient_clip_val=1.0)
    trainer.fit(ECGModule(), train_loader, val_loader)
    print("loop_s=%.3f steps=%d" % (report.seconds, trainer.global_step))


if __name__ == "__main__":
    main()
