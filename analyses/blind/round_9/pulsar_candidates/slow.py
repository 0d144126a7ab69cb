"""Sort pulsar candidates from interference: folded profile, sub-integrations and DM curve (Lightning)."""
import argparse
import logging
import time
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision, BinaryRecallAtFixedPrecision

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

BINS, SUBINTS, DMS = 64, 24, 48


def make_candidates(n, seed):
    rng = np.random.default_rng(seed)
    label = (rng.random(n) < 0.25).astype(np.float32)
    phase = np.linspace(0, 1, BINS, endpoint=False)
    centre, width = rng.random(n), rng.uniform(0.01, 0.08, n)
    dist = np.abs(phase[None] - centre[:, None])
    dist = np.minimum(dist, 1 - dist)
    pulse = np.exp(-0.5 * (dist / width[:, None]) ** 2)
    strength = rng.uniform(0.2, 1.2, n)
    steady = rng.random((n, SUBINTS)) * 0.3 + 0.7
    burst = (rng.random((n, SUBINTS)) < 0.2) * 3.0
    envelope = np.where(label[:, None] > 0, steady, burst)
    subints = strength[:, None, None] * envelope[:, :, None] * pulse[:, None, :]
    subints = subints + rng.standard_normal((n, SUBINTS, BINS), dtype=np.float32)
    trial = np.linspace(-1, 1, DMS)
    peak = np.where(label > 0, rng.uniform(-0.3, 0.3, n), rng.uniform(-1.0, 1.0, n))
    dm = strength[:, None] * np.exp(-0.5 * ((trial[None] - peak[:, None]) / 0.2) ** 2)
    dm = dm + 0.3 * rng.standard_normal((n, DMS))
    profile = subints.mean(1)
    arrays = (profile, subints[:, None], dm, label)
    return TensorDataset(*(torch.from_numpy(np.ascontiguousarray(a, dtype=np.float32)) for a in arrays))


class CandidateNet(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.profile = nn.Sequential(
            nn.Conv1d(1, width, 5, padding=2), nn.ReLU(), nn.MaxPool1d(4),
            nn.Conv1d(width, width, 5, padding=2), nn.ReLU(), nn.Flatten())
        self.subints = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d((6, 8)), nn.Flatten())
        self.dm = nn.Sequential(nn.Linear(DMS, 64), nn.ReLU())
        size = width * BINS // 4 + width * 48 + 64
        self.head = nn.Sequential(nn.Linear(size, 96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, 1))

    def forward(self, profile, subints, dm):
        parts = [self.profile(profile[:, None]), self.subints(subints), self.dm(dm)]
        return self.head(torch.cat(parts, 1)).squeeze(1)


def curve_metrics(prefix):
    return MetricCollection({
        "auroc": BinaryAUROC(),
        "ap": BinaryAveragePrecision(),
        "recall_p90": BinaryRecallAtFixedPrecision(min_precision=0.9),
    }, prefix=prefix)


def scalars(results):
    return {k: v[0] if isinstance(v, tuple) else v for k, v in results.items()}


class PulsarModule(L.LightningModule):
    def __init__(self, lr):
        super().__init__()
        self.lr = lr
        self.net = CandidateNet()
        self.train_metrics = curve_metrics("train/")
        self.val_metrics = curve_metrics("val/")

    def training_step(self, batch, batch_idx):
        profile, subints, dm, label = batch
        logit = self.net(profile, subints, dm)
        loss = F.binary_cross_entropy_with_logits(logit, label)
        self.train_metrics.update(logit.detach().sigmoid(), label.long())
        self.log("train/loss", loss)
        self.log_dict(scalars(self.train_metrics.compute()))
        return loss

    def on_train_epoch_end(self):
        self.train_metrics.reset()

    def validation_step(self, batch, batch_idx):
        profile, subints, dm, label = batch
        self.val_metrics.update(self.net(profile, subints, dm).sigmoid(), label.long())

    def on_validation_epoch_end(self):
        self.log_dict(scalars(self.val_metrics.compute()))
        self.val_metrics.reset()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class Report(L.Callback):
    def on_train_epoch_end(self, trainer, module):
        shown = {k: round(float(v), 3) for k, v in trainer.callback_metrics.items()}
        print(f"epoch {trainer.current_epoch}", shown, flush=True)


class ArrayLoader(DataLoader):
    """Batches by index lists, so that the tensors are cut once a batch."""

    def __init__(self, data, batch, shuffle):
        base = torch.utils.data.RandomSampler(data) if shuffle else torch.utils.data.SequentialSampler(data)
        sampler = torch.utils.data.BatchSampler(base, batch, drop_last=shuffle)
        super().__init__(data, sampler=sampler, batch_size=None)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--train", type=int, default=15360)
    ap.add_argument("--val", type=int, default=1024)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=8)
    args = ap.parse_args()

    L.seed_everything(args.seed, verbose=False)
    train = ArrayLoader(make_candidates(args.train, args.seed), args.batch, True)
    val = ArrayLoader(make_candidates(args.val, args.seed + 1), args.batch, False)
    trainer = L.Trainer(
        max_epochs=args.epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, callbacks=[Report()])
    t0 = time.perf_counter()
    trainer.fit(PulsarModule(args.lr), train, val)
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={trainer.global_step}")


if __name__ == "__main__":
    main()
