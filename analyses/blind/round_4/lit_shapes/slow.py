"""Shape classifier on synthetic 32x32 images, trained with Lightning.

The callbacks watch the network for dead units and time the fit.
"""
import argparse
import logging
import math
import time
import warnings
from collections import defaultdict

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


def render(n, seed):
    """Discs, boxes, rings, crosses and stripes with noise."""
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 32), indexing="ij")
    labels = torch.randint(0, 5, (n,), generator=g)
    cx, cy = torch.rand(2, n, 1, 1, generator=g) * 0.8 - 0.4
    size = torch.rand(n, 1, 1, generator=g) * 0.3 + 0.25
    dx, dy = xx - cx, yy - cy
    r = (dx ** 2 + dy ** 2).sqrt()
    box = torch.maximum(dx.abs(), dy.abs())
    shapes = torch.stack([
        (r < size).float(),
        (box < size).float(),
        ((r - size).abs() < 0.08).float(),
        ((dx.abs() < 0.08) | (dy.abs() < 0.08)).float() * (box < size).float(),
        (torch.sin(dx * 12 / size * 0.4) > 0).float() * (box < size).float(),
    ], 1)
    gray = shapes[torch.arange(n), labels]
    colour = torch.rand(n, 3, 1, 1, generator=g) * 0.7 + 0.3
    img = gray[:, None] * colour + 0.25 * torch.randn(n, 3, 32, 32, generator=g)
    return img, labels


class ShapeSet(Dataset):
    """Indexed by a list of positions, so one read gives a whole batch."""

    def __init__(self, n, seed):
        self.x, self.y = render(n, seed)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, idx):
        idx = torch.as_tensor(idx)
        return self.x[idx], self.y[idx]


def loader(ds, batch_size, shuffle):
    order = RandomSampler(ds) if shuffle else SequentialSampler(ds)
    return DataLoader(ds, sampler=BatchSampler(order, batch_size, drop_last=shuffle), batch_size=None)


class ConvUnit(nn.Sequential):
    def __init__(self, cin, cout, stride=1):
        super().__init__(
            nn.Conv2d(cin, cout, 3, stride, 1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )


class ShapeNet(L.LightningModule):
    def __init__(self, lr, total_steps):
        super().__init__()
        self.lr, self.total_steps = lr, total_steps
        self.body = nn.Sequential(
            ConvUnit(3, 24), ConvUnit(24, 32, 2), ConvUnit(32, 32),
            ConvUnit(32, 64, 2), ConvUnit(64, 64), ConvUnit(64, 96, 2),
        )
        self.fc = nn.Linear(96, 5)

    def forward(self, x):
        return self.fc(self.body(x).mean((2, 3)))

    def training_step(self, batch, _):
        x, y = batch
        return F.cross_entropy(self(x), y, label_smoothing=0.05)

    def validation_step(self, batch, _):
        x, y = batch
        hit = (self(x).argmax(1) == y).float().mean()
        self.log("val_acc", hit, on_epoch=True, batch_size=len(y))

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.parameters(), lr=self.lr, momentum=0.9, weight_decay=5e-4, foreach=True)
        sched = torch.optim.lr_scheduler.LambdaLR(
            opt, lambda s: 0.5 * (1 + math.cos(math.pi * min(1.0, s / self.total_steps))))
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


class DeadUnitWatch(L.Callback):
    """Share of silent units and mean activation of every ReLU, over a few samples of each batch."""

    def __init__(self, samples=4, report_every=10):
        self.samples = samples
        self.report_every = report_every
        self.stats = defaultdict(list)

    def _hook(self, name):
        def fn(module, inputs, output):
            if not module.training:
                return
            a = output.detach()[:self.samples]
            dead = (a.amax((0, 2, 3)) <= 0).float().mean()
            self.stats[name].append(torch.stack([dead, a.mean(), a.std()]))
        return fn

    def on_train_epoch_start(self, trainer, pl_module):
        for name, m in pl_module.body.named_modules():
            if isinstance(m, nn.ReLU):
                m.register_forward_hook(self._hook(name))

    def on_train_epoch_end(self, trainer, pl_module):
        table = {k: torch.stack(v).mean(0).tolist() for k, v in self.stats.items()}
        self.stats.clear()
        if (trainer.current_epoch + 1) % self.report_every == 0:
            worst = max(table, key=lambda k: table[k][0])
            dead, mean, std = table[worst]
            print(f"epoch {trainer.current_epoch + 1:3d}  worst layer {worst}: dead {dead:.3f} "
                  f"mean {mean:.3f} std {std:.3f}", flush=True)


class FitClock(L.Callback):
    def on_train_start(self, trainer, pl_module):
        self.t0 = time.perf_counter()

    def on_validation_end(self, trainer, pl_module):
        acc = trainer.callback_metrics.get("val_acc")
        if acc is not None:
            print(f"epoch {trainer.current_epoch + 1:3d}  val_acc {acc:.3f}", flush=True)

    def on_train_end(self, trainer, pl_module):
        self.seconds = time.perf_counter() - self.t0


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=40)
    ap.add_argument("--train-size", type=int, default=300)
    ap.add_argument("--batch-size", type=int, default=48)
    ap.add_argument("--lr", type=float, default=0.08)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()

    L.seed_everything(args.seed, verbose=False)
    train = loader(ShapeSet(args.train_size, 1), args.batch_size, True)
    val = loader(ShapeSet(192, 2), 96, False)
    model = ShapeNet(args.lr, args.epochs * len(train))
    clock = FitClock()
    trainer = L.Trainer(
        max_epochs=args.epochs, accelerator="cpu", devices=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        check_val_every_n_epoch=10, num_sanity_val_steps=0, callbacks=[DeadUnitWatch(), clock],
    )
    trainer.fit(model, train, val)
    print("loop_s=%.3f steps=%d" % (clock.seconds, trainer.global_step))


if __name__ == "__main__":
    main()
