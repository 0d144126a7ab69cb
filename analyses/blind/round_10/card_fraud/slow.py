"""Fraud score for card payments: wide embeddings + MLP, LightningModule."""
import argparse
import logging
import tempfile
import time
import warnings

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torchmetrics.classification import BinaryAUROC

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

CARDINALITIES = [24, 7, 300, 1200, 60, 15]
N_NUMERIC = 20


def make_payments(n, seed):
    rng = np.random.default_rng(seed)
    cats = np.stack([rng.integers(0, c, n) for c in CARDINALITIES], 1)
    nums = rng.normal(size=(n, N_NUMERIC)).astype(np.float32)
    risky_shop = rng.normal(size=CARDINALITIES[3])
    logit = 1.2 * nums[:, 0] + risky_shop[cats[:, 3]] + 0.8 * (cats[:, 0] < 5) * nums[:, 1] - 4.0
    fraud = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype(np.float32)
    return torch.from_numpy(cats), torch.from_numpy(nums), torch.from_numpy(fraud)


class Batches(torch.utils.data.IterableDataset):
    """Ready batches from tensors in memory, in a new order each epoch."""

    def __init__(self, cats, nums, fraud, batch, seed):
        self.columns = (cats, nums, fraud)
        self.batch = batch
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self):
        return len(self.columns[0]) // self.batch

    def __iter__(self):
        order = torch.randperm(len(self.columns[0]), generator=self.generator)
        for i in range(len(self)):
            rows = order[i * self.batch: (i + 1) * self.batch]
            yield tuple(c[rows] for c in self.columns)


class FraudNet(L.LightningModule):
    def __init__(self, hidden=288, lr=1e-3, epoch_steps=1, epochs=1):
        super().__init__()
        self.save_hyperparameters()
        dims = [min(16, 4 + c // 40) for c in CARDINALITIES]
        self.tables = nn.ModuleList(nn.Embedding(c, d) for c, d in zip(CARDINALITIES, dims))
        self.net = nn.Sequential(
            nn.Linear(sum(dims) + N_NUMERIC, hidden), nn.LayerNorm(hidden), nn.GELU(),
            nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.GELU(),
            nn.Linear(hidden, hidden), nn.GELU(),
            nn.Linear(hidden, 1))
        self.auroc = BinaryAUROC()
        self.register_buffer("pos_weight", torch.tensor(4.0))

    def forward(self, cats, nums):
        parts = [t(cats[:, i]) for i, t in enumerate(self.tables)]
        return self.net(torch.cat(parts + [nums], 1)).squeeze(1)

    def training_step(self, batch, batch_idx):
        cats, nums, fraud = batch
        logit = self(cats, nums)
        loss = F.binary_cross_entropy_with_logits(logit, fraud, pos_weight=self.pos_weight)
        self.auroc.update(torch.sigmoid(logit.detach()), fraud.int())
        self.log("loss", loss)
        self.log("auroc", self.auroc.compute())
        return loss

    def on_train_epoch_end(self):
        area = self.auroc.compute()
        print(f"epoch {self.current_epoch}: loss {self.trainer.callback_metrics['loss']:.4f} "
              f"auroc {area:.4f}")
        self.auroc.reset()

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-4)
        sched = torch.optim.lr_scheduler.OneCycleLR(
            opt, max_lr=3 * self.hparams.lr,
            total_steps=self.hparams.epoch_steps * self.hparams.epochs)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class Timing(L.Callback):
    def on_train_start(self, trainer, module):
        self.start = time.perf_counter()

    def on_train_end(self, trainer, module):
        self.seconds = time.perf_counter() - self.start


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rows", type=int, default=150_000)
    p.add_argument("--batch", type=int, default=1000)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--seed", type=int, default=17)
    a = p.parse_args()
    L.seed_everything(a.seed, verbose=False)

    data = Batches(*make_payments(a.rows, a.seed), a.batch, a.seed)
    loader = torch.utils.data.DataLoader(data, batch_size=None)
    module = FraudNet(epoch_steps=len(data), epochs=a.epochs)
    timing = Timing()
    with tempfile.TemporaryDirectory() as root:
        trainer = L.Trainer(max_epochs=a.epochs, accelerator="cpu", logger=False, callbacks=[timing],
                            enable_checkpointing=False, enable_progress_bar=False,
                            enable_model_summary=False, gradient_clip_val=1.0, default_root_dir=root)
        trainer.fit(module, loader)
    print(f"loop_s={timing.seconds:.3f} steps={trainer.global_step}")


if __name__ == "__main__":
    main()
