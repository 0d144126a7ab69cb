"""Predict the expression response to double gene knock-outs, trained with Accelerate."""
import argparse
import csv
import tempfile
import time
from pathlib import Path

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--genes", type=int, default=600)
    p.add_argument("--readout", type=int, default=60)
    p.add_argument("--screens", type=int, default=28_160)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--dim", type=int, default=192)
    p.add_argument("--hidden", type=int, default=1024)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--max-norm", type=float, default=1.0)
    p.add_argument("--seed", type=int, default=17)
    return p.parse_args()


def knockouts(a, n, seed):
    rule = torch.Generator().manual_seed(1000)
    weight = torch.randn(a.genes, a.readout, generator=rule)
    weight = weight * (torch.rand(a.genes, a.readout, generator=rule) < 0.08)
    g = torch.Generator().manual_seed(seed)
    pair = torch.randint(0, a.genes, (n, 2), generator=g)
    state = torch.randn(n, a.readout, generator=g)
    response = torch.tanh(weight[pair].sum(1)) * (1 + 0.3 * state)
    response = response + 0.1 * torch.randn(n, a.readout, generator=g)
    return TensorDataset(pair, state, response)


class ResponseModel(nn.Module):
    def __init__(self, genes, readout, dim, hidden):
        super().__init__()
        self.gene = nn.Embedding(genes, dim)
        self.state = nn.Sequential(nn.Linear(readout, dim), nn.GELU())
        self.mlp = nn.Sequential(
            nn.Linear(2 * dim, hidden), nn.GELU(), nn.LayerNorm(hidden),
            nn.Linear(hidden, hidden), nn.GELU(), nn.LayerNorm(hidden),
            nn.Linear(hidden, readout))

    def forward(self, pair, state):
        return self.mlp(torch.cat([self.gene(pair).sum(1), self.state(state)], 1))


class CsvLog:
    def __init__(self, path, readout):
        self.file = open(path, "w", newline="")
        self.writer = csv.writer(self.file)
        self.writer.writerow(["step", "loss", "lr"] + [f"mse_g{i:03d}" for i in range(readout)])

    def row(self, *values):
        self.writer.writerow(values)
        self.file.flush()

    def close(self):
        self.file.close()


def r_squared(model, loader, accelerator):
    model.eval()
    outs, truths = [], []
    with torch.no_grad():
        for pair, state, response in loader:
            out, truth = accelerator.gather_for_metrics((model(pair, state), response))
            outs.append(out)
            truths.append(truth)
    model.train()
    out, truth = torch.cat(outs), torch.cat(truths)
    unexplained = (out - truth).square().sum(0) / (truth - truth.mean(0)).square().sum(0)
    return (1 - unexplained).mean().item()


def train(a, folder):
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(knockouts(a, a.screens, 1), a.batch, shuffle=True, drop_last=True)
    val_loader = DataLoader(knockouts(a, 1024, 2), 256)
    model = ResponseModel(a.genes, a.readout, a.dim, a.hidden)
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, a.lr, total_steps=a.epochs * len(loader))
    model, opt, loader, val_loader, sched = accelerator.prepare(
        model, opt, loader, val_loader, sched)
    log = CsvLog(Path(folder, "history.csv"), a.readout)

    begin = time.perf_counter()
    step = 0
    for epoch in range(a.epochs):
        for pair, state, response in loader:
            error = (model(pair, state) - response).square()
            loss = error.mean()
            opt.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), a.max_norm)
            lr = sched.get_last_lr()[0]
            opt.step()
            sched.step()
            step += 1
            log.row(step, loss.item(), lr, *error.detach().mean(0).tolist())
        score = r_squared(model, val_loader, accelerator)
        accelerator.print(f"epoch {epoch}: loss {loss.item():.4f}  validation r2 {score:.4f}")
    log.close()
    return time.perf_counter() - begin, step


if __name__ == "__main__":
    arguments = parse()
    set_seed(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="perturb_") as tmp:
        seconds, steps = train(arguments, tmp)
    print(f"loop_s={seconds:.3f} steps={steps}")
