"""Will an account charge back? GRU over the last purchases of an account."""
import argparse
import csv
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

N_SHOPS, N_COUNTRIES, HISTORY = 800, 40, 48


def make_accounts(n, seed):
    rng = np.random.default_rng(seed)
    shop = rng.integers(0, N_SHOPS, (n, HISTORY))
    country = rng.integers(0, N_COUNTRIES, (n, HISTORY))
    amount = rng.lognormal(3.0, 1.0, (n, HISTORY))
    gap = rng.exponential(1.0, (n, HISTORY))
    shady = rng.normal(size=N_SHOPS)
    score = (shady[shop] * np.log1p(amount) * np.linspace(0, 1, HISTORY)).mean(1)
    score += 0.5 * (gap[:, -6:].mean(1) < 0.6)
    label = score + rng.normal(scale=0.15, size=n) > np.quantile(score, 0.8)
    numeric = np.stack([np.log1p(amount) - 3, gap - 1], 2)
    return TensorDataset(torch.from_numpy(shop), torch.from_numpy(country),
                         torch.from_numpy(numeric.astype(np.float32)),
                         torch.from_numpy(label.astype(np.float32)))


class AccountNet(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.shop = nn.Embedding(N_SHOPS, 24)
        self.country = nn.Embedding(N_COUNTRIES, 8)
        self.gru = nn.GRU(24 + 8 + 2, hidden, num_layers=2, batch_first=True)
        self.head = nn.Sequential(nn.Linear(2 * hidden, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, shop, country, numeric):
        x = torch.cat([self.shop(shop), self.country(country), numeric], 2)
        h, last = self.gru(x)
        return self.head(torch.cat([last[-1], h.mean(1)], 1)).squeeze(1)


class CsvLog:
    fields = ["step", "loss", "accuracy", "positives", "grad_norm", "lr", "seconds"]

    def __init__(self, path):
        self.path = path
        with open(path, "w", newline="") as f:
            csv.DictWriter(f, self.fields).writeheader()

    def write(self, **row):
        with open(self.path, "a", newline="") as f:
            csv.DictWriter(f, self.fields).writerow(row)
            f.flush()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=190)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--accounts", type=int, default=6000)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=13)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    loader = DataLoader(make_accounts(args.accounts, args.seed), batch_size=args.batch, shuffle=True,
                        drop_last=True, num_workers=0)
    model = AccountNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 40, 0.5)

    with tempfile.TemporaryDirectory() as tmp:
        log = CsvLog(os.path.join(tmp, "training.csv"))
        step = 0
        start = time.perf_counter()
        while step < args.steps:
            for shop, country, numeric, label in loader:
                optimizer.zero_grad(set_to_none=False)
                logit = model(shop, country, numeric)
                loss = F.binary_cross_entropy_with_logits(logit, label)
                loss.backward()
                norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                scheduler.step()
                step += 1
                hits = ((logit > 0).float() == label).float().mean().item()
                log.write(step=step, loss=loss.item(), accuracy=hits, positives=label.sum().item(),
                          grad_norm=norm.item(), lr=scheduler.get_last_lr()[0],
                          seconds=round(time.perf_counter() - start, 3))
                print(f"step {step}: loss {loss.item():.4f}, accuracy {hits:.3f}", flush=True)
                if step == args.steps:
                    break
        elapsed = time.perf_counter() - start
    print(f"loop_s={elapsed:.3f} steps={step}")


if __name__ == "__main__":
    main()
