"""CRISPR guide efficacy: does a guide RNA cut well?  Convolutions over 34 bases in Lightning."""
import argparse
import logging
import time
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore")

LENGTH = 34


def make_guides(n, seed):
    """Bases, chromatin tracks and a label from position effects, GC content and a motif."""
    rule = torch.Generator().manual_seed(99)
    effect = torch.randn(LENGTH, 4, generator=rule) * torch.linspace(0.1, 1.0, LENGTH)[:, None]
    pair = torch.randn(LENGTH - 1, 16, generator=rule) * 0.4
    gen = torch.Generator().manual_seed(seed)
    base = torch.randint(0, 4, (n, LENGTH), generator=gen)
    tracks = torch.randn(n, 4, LENGTH, generator=gen)
    pos = torch.arange(LENGTH)
    score = effect[pos, base].sum(1) + pair[pos[:-1], base[:, :-1] * 4 + base[:, 1:]].sum(1)
    gc = ((base == 1) | (base == 2)).float().mean(1)
    score = score - 30 * (gc - 0.5) ** 2 + tracks[:, 0].mean(1) * 4
    score = score + torch.randn(n, generator=gen)
    onehot = nn.functional.one_hot(base, 4).transpose(1, 2).float()
    return TensorDataset(torch.cat([onehot, tracks], 1), (score > score.median()).float())


class ResidualBlock(nn.Module):
    def __init__(self, width, kernel):
        super().__init__()
        self.conv1 = nn.Conv1d(width, width, kernel, padding=kernel // 2)
        self.conv2 = nn.Conv1d(width, width, kernel, padding=kernel // 2)
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x):
        return x + self.conv2(torch.relu(self.conv1(self.norm(x))))


class GuideModel(L.LightningModule):
    def __init__(self, width=28, blocks=2, lr=2e-3, total_steps=1000):
        super().__init__()
        self.save_hyperparameters()
        self.stem = nn.Conv1d(8, width, 5, padding=2)
        self.blocks = nn.Sequential(*[ResidualBlock(width, 5) for _ in range(blocks)])
        self.head = nn.Sequential(
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(width * LENGTH, 64), nn.ReLU(), nn.Linear(64, 1))
        self.loss = nn.BCEWithLogitsLoss()
        metrics = MetricCollection({"auroc": BinaryAUROC(), "ap": BinaryAveragePrecision()})
        self.train_metrics = metrics.clone(prefix="train_")
        self.val_metrics = metrics.clone(prefix="val_")

    def forward(self, x):
        return self.head(self.blocks(self.stem(x))).squeeze(-1)

    def training_step(self, batch, _):
        x, y = batch
        logits = self(x)
        loss = self.loss(logits, y)
        self.log("train_loss", loss, prog_bar=True)
        self.train_metrics.update(logits.detach(), y.long())
        self.log_dict(self.train_metrics.compute(), prog_bar=True)
        return loss

    def on_train_epoch_end(self):
        self.train_metrics.reset()

    def validation_step(self, batch, _):
        x, y = batch
        logits = self(x)
        self.log("val_loss", self.loss(logits, y))
        self.val_metrics.update(logits, y.long())

    def on_validation_epoch_end(self):
        self.log_dict(self.val_metrics.compute())
        self.val_metrics.reset()

    def configure_optimizers(self):
        opt = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr, weight_decay=1e-3)
        sched = torch.optim.lr_scheduler.OneCycleLR(
            opt, self.hparams.lr, total_steps=self.hparams.total_steps)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class Clock(L.Callback):
    def on_train_start(self, trainer, module):
        self.start = time.perf_counter()

    def on_train_end(self, trainer, module):
        self.seconds = time.perf_counter() - self.start

    def on_validation_end(self, trainer, module):
        m = trainer.callback_metrics
        print(f"step {trainer.global_step}: val loss {m['val_loss']:.4f} "
              f"auroc {m['val_auroc']:.4f} ap {m['val_ap']:.4f}")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--guides", type=int, default=81_920)
    ap.add_argument("--batch", type=int, default=256)
    ap.add_argument("--epochs", type=int, default=1)
    args = ap.parse_args()
    L.seed_everything(3, verbose=False)

    train = DataLoader(make_guides(args.guides, 1), args.batch, shuffle=True, drop_last=True)
    val = DataLoader(make_guides(4096, 2), 512)
    steps = args.epochs * len(train)
    clock = Clock()
    trainer = L.Trainer(
        max_epochs=args.epochs, val_check_interval=0.25, accelerator="cpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0, callbacks=[clock])
    trainer.fit(GuideModel(total_steps=steps), train, val)
    print(f"loop_s={clock.seconds:.3f} steps={trainer.global_step}")


if __name__ == "__main__":
    main()
