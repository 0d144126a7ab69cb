"""Expression change after gene knock-outs: which genes go up or down?  (Accelerate loop)"""
import os
import tempfile
import time
from dataclasses import dataclass

import pandas as pd
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


@dataclass
class Config:
    genes: int = 600
    readout: int = 60          # genes that the assay measures
    screens: int = 28_160
    batch: int = 256
    dim: int = 192
    hidden: int = 1024
    epochs: int = 2
    lr: float = 1e-3
    clip: float = 1.0
    seed: int = 17


def simulate_screen(cfg, n, seed):
    """Double knock-outs in a sparse regulatory network, with basal state and noise."""
    net = torch.Generator().manual_seed(1000)
    strength = torch.randn(cfg.genes, cfg.readout, generator=net)
    strength = strength * (torch.rand(cfg.genes, cfg.readout, generator=net) < 0.08)
    gen = torch.Generator().manual_seed(seed)
    knocked = torch.randint(0, cfg.genes, (n, 2), generator=gen)
    basal = torch.randn(n, cfg.readout, generator=gen)
    joint = strength[knocked[:, 0]] + strength[knocked[:, 1]]
    change = torch.tanh(joint) * (1 + 0.3 * basal) + 0.1 * torch.randn(n, cfg.readout, generator=gen)
    return TensorDataset(knocked, basal, change)


class PerturbNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.gene = nn.Embedding(cfg.genes, cfg.dim)
        self.cell = nn.Sequential(nn.Linear(cfg.readout, cfg.dim), nn.GELU())
        self.body = nn.Sequential(
            nn.Linear(2 * cfg.dim, cfg.hidden), nn.GELU(), nn.LayerNorm(cfg.hidden),
            nn.Linear(cfg.hidden, cfg.hidden), nn.GELU(), nn.LayerNorm(cfg.hidden),
            nn.Linear(cfg.hidden, cfg.readout))

    def forward(self, knocked, basal):
        effect = self.gene(knocked).sum(1)
        return self.body(torch.cat([effect, self.cell(basal)], 1))


class History:
    """A table with one row a step: loss, rate and the error of every gene."""

    def __init__(self, path, gene_names):
        self.path = path
        self.columns = ["step", "loss", "lr"] + [f"mse_{g}" for g in gene_names]
        self.rows = []

    def add(self, step, loss, lr, per_gene):
        self.rows.append([step, loss, lr] + per_gene)
        pd.DataFrame(self.rows, columns=self.columns).to_csv(self.path, index=False)


@torch.no_grad()
def validate(model, loader, accelerator):
    model.eval()
    pred, true = [], []
    for knocked, basal, change in loader:
        out, change = accelerator.gather_for_metrics((model(knocked, basal), change))
        pred.append(out)
        true.append(change)
    model.train()
    pred, true = torch.cat(pred), torch.cat(true)
    residual = (pred - true).square().sum(0)
    return (1 - residual / (true - true.mean(0)).square().sum(0)).mean().item()


def main():
    cfg = Config()
    set_seed(cfg.seed)
    accelerator = Accelerator(cpu=True)
    train = DataLoader(simulate_screen(cfg, cfg.screens, 1), cfg.batch, shuffle=True, drop_last=True)
    val = DataLoader(simulate_screen(cfg, 1024, 2), 256)
    model = PerturbNet(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    total = cfg.epochs * len(train)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, total_steps=total)
    model, optimizer, train, val, scheduler = accelerator.prepare(
        model, optimizer, train, val, scheduler)

    with tempfile.TemporaryDirectory(prefix="perturb_") as folder:
        history = History(os.path.join(folder, "history.csv"), [f"g{i:03d}" for i in range(cfg.readout)])
        start = time.perf_counter()
        step = 0
        for epoch in range(cfg.epochs):
            for knocked, basal, change in train:
                square = (model(knocked, basal) - change).square()
                loss = square.mean()
                optimizer.zero_grad()
                accelerator.backward(loss)
                accelerator.clip_grad_norm_(model.parameters(), cfg.clip)
                lr = scheduler.get_last_lr()[0]
                optimizer.step()
                scheduler.step()
                step += 1
                history.add(step, loss.item(), lr, square.detach().mean(0).tolist())
            r2 = validate(model, val, accelerator)
            accelerator.print(f"epoch {epoch}: loss {loss.item():.4f}  validation r2 {r2:.4f}")
        seconds = time.perf_counter() - start
    accelerator.print(f"loop_s={seconds:.3f} steps={step}")


if __name__ == "__main__":
    main()
