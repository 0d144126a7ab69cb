"""Normalizing flow (Glow-like: actnorm, learnt rotation, affine coupling) on calorimeter shower features, in Lightning."""
import logging
import math
import time
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", category=UserWarning)


class Showers(Dataset):
    """Energy fractions per calorimeter cell, as logits; 32 cells, particle type changes the profile."""

    def __init__(self, n, cells=32, seed=0):
        g = torch.Generator().manual_seed(seed)
        depth = torch.linspace(0, 1, cells)
        peak = 0.25 + 0.35 * torch.rand(n, 1, generator=g) + 0.15 * (torch.rand(n, 1, generator=g) > 0.5)
        width = 0.08 + 0.10 * torch.rand(n, 1, generator=g)
        profile = torch.exp(-0.5 * ((depth - peak) / width) ** 2)
        profile = profile * torch.exp(0.2 * torch.randn(n, cells, generator=g)) + 1e-3
        x = (profile / profile.sum(1, keepdim=True)).log()
        self.x = (x - x.mean(0)) / x.std(0)

    def __len__(self):
        return len(self.x)

    def __getitems__(self, ids):
        return self.x[ids]


class ActNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(dim))
        self.log_scale = nn.Parameter(torch.zeros(dim))
        self.register_buffer("ready", torch.tensor(False))

    def forward(self, x):
        if not self.ready:
            with torch.no_grad():
                self.shift.copy_(-x.mean(0))
                self.log_scale.copy_(-x.std(0).clamp_min(1e-3).log())
                self.ready.fill_(True)
        return (x + self.shift) * self.log_scale.exp(), self.log_scale.sum().expand(len(x))


class Rotation(nn.Module):
    """x -> x W with a dense learnt W, started at a random rotation."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.linalg.qr(torch.randn(dim, dim))[0])

    def forward(self, x):
        w = self.weight.expand(len(x), -1, -1)
        y = torch.bmm(x.unsqueeze(1), w).squeeze(1)
        return y, torch.linalg.slogdet(w).logabsdet


class Coupling(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.half = dim // 2
        self.net = nn.Sequential(nn.Linear(self.half, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(),
                                 nn.Linear(hidden, 2 * (dim - self.half)))
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x[:, :self.half], x[:, self.half:]
        log_s, t = self.net(a).chunk(2, -1)
        log_s = 1.5 * torch.tanh(log_s / 1.5)
        return torch.cat([a, b * log_s.exp() + t], -1), log_s.sum(-1)


class Flow(nn.Module):
    def __init__(self, dim, depth, hidden):
        super().__init__()
        self.dim = dim
        self.steps = nn.ModuleList()
        for _ in range(depth):
            self.steps += [ActNorm(dim), Rotation(dim), Coupling(dim, hidden)]

    def forward(self, x):
        logdet = x.new_zeros(len(x))
        for step in self.steps:
            x, ld = step(x)
            logdet = logdet + ld
        return x, logdet

    def log_prob(self, x):
        z, logdet = self(x)
        return -0.5 * (z * z).sum(-1) - 0.5 * self.dim * math.log(2 * math.pi) + logdet


class FlowModule(L.LightningModule):
    def __init__(self, dim=32, depth=5, hidden=448, lr=5e-4):
        super().__init__()
        self.save_hyperparameters()
        self.flow = Flow(dim, depth, hidden)
        self.began = None
        self.took = 0.0

    def on_train_batch_start(self, batch, batch_idx):
        if self.began is None:
            self.began = time.perf_counter()

    def training_step(self, batch, batch_idx):
        nll = -self.flow.log_prob(batch).mean() / self.hparams.dim
        self.log("train_nll", nll)
        return nll

    def validation_step(self, batch, batch_idx):
        self.log("valid_nll", -self.flow.log_prob(batch).mean() / self.hparams.dim)

    def on_train_end(self):
        self.took = time.perf_counter() - self.began

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            print(f"step {self.global_step:5d}  valid nll/dim {self.trainer.callback_metrics['valid_nll']:.4f}")

    def configure_optimizers(self):
        opt = torch.optim.Adam(self.parameters(), lr=self.hparams.lr, fused=True)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=2 * self.hparams.lr, total_steps=150)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "step"}}


def collate(x):
    return x


def main():
    L.seed_everything(17, verbose=False)
    train = DataLoader(Showers(160 * 512, seed=1), batch_size=512, shuffle=True, drop_last=True, collate_fn=collate)
    valid = DataLoader(Showers(2048, seed=2), batch_size=512, collate_fn=collate)
    module = FlowModule()
    trainer = L.Trainer(
        accelerator="cpu", devices=1, max_steps=150, val_check_interval=75, gradient_clip_val=5.0,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(module, train, valid)
    print("loop_s=%.3f steps=%d" % (module.took, trainer.global_step))


if __name__ == "__main__":
    main()
