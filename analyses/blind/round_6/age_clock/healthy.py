"""Epigenetic clock: predicts age from methylation (beta) values of CpG probes."""
import argparse
import time

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("--people", type=int, default=16000)
ap.add_argument("--probes", type=int, default=1000)
ap.add_argument("--batch-size", type=int, default=256)
ap.add_argument("--epochs", type=int, default=11)
ap.add_argument("--hidden", type=int, default=512)
ap.add_argument("--blocks", type=int, default=3)
ap.add_argument("--dropout", type=float, default=0.1)
ap.add_argument("--lr", type=float, default=1e-3)
ap.add_argument("--seed", type=int, default=3)
args = ap.parse_args()

rng = np.random.default_rng(args.seed)
torch.manual_seed(args.seed)


def load_cohort(people, probes):
    """One column per probe, as the array files give them, plus the clinical columns."""
    age = rng.gamma(12.0, 4.2, people).clip(18, 95).astype(np.float32)
    sex = rng.integers(0, 2, people)
    cols = {}
    for j in range(probes):
        base = rng.uniform(-2, 2)
        slope = rng.normal(0, 0.03) if j % 7 == 0 else 0.0
        noise = rng.standard_normal(people, dtype=np.float32)
        m = base + slope * (age - 50) + 0.6 * noise
        cols[f"cg{j:08d}"] = (1 / (1 + np.exp(-m))).astype(np.float32)
    beta = pd.DataFrame(cols)
    meta = pd.DataFrame({"age": age, "sex": sex, "site": rng.integers(0, 4, people)})
    return beta, meta


def transform_age(age, adult=20.0):
    """Horvath's transformation: logarithmic before adulthood, linear afterwards."""
    return np.where(age <= adult, np.log((age + 1) / (adult + 1)), (age - adult) / (adult + 1)).astype(np.float32)


def inverse_age(y, adult=20.0):
    return torch.where(y < 0, (adult + 1) * torch.exp(y) - 1, (adult + 1) * y + adult)


class Block(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.norm, self.lin, self.drop = nn.LayerNorm(width), nn.Linear(width, width), nn.Dropout(dropout)

    def forward(self, h):
        return h + self.drop(F.silu(self.lin(self.norm(h))))


class Clock(nn.Module):
    def __init__(self, n_probes, hidden, blocks, dropout):
        super().__init__()
        self.inp = nn.Linear(n_probes, hidden)
        self.blocks = nn.Sequential(*[Block(hidden, dropout) for _ in range(blocks)])
        self.mid = nn.Sequential(nn.LayerNorm(hidden), nn.Linear(hidden, 64), nn.SiLU())
        self.sex = nn.Embedding(2, 8)
        self.site = nn.Embedding(4, 8)
        self.out = nn.Linear(64 + 16, 1)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, sex, site):
        h = self.mid(self.blocks(self.inp(x)))
        return self.out(torch.cat([h, self.sex(sex), self.site(site)], dim=1)).squeeze(1)


beta, meta = load_cohort(args.people, args.probes)
m_values = np.log2((beta + 1e-3) / (1 - beta + 1e-3))
m_values = (m_values - m_values.mean()) / m_values.std()

X = torch.from_numpy(np.ascontiguousarray(m_values.to_numpy(dtype=np.float32)))
y = torch.from_numpy(transform_age(meta["age"].to_numpy()))
sex = torch.tensor(meta["sex"].to_numpy())
site = torch.tensor(meta["site"].to_numpy())
age = torch.tensor(meta["age"].to_numpy())
del beta, m_values

order = torch.randperm(args.people)
val_idx, train_idx = order[:1500], order[1500:]
val = (X[val_idx].contiguous(), sex[val_idx], site[val_idx])

model = Clock(args.probes, args.hidden, args.blocks, args.dropout)
opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-2, fused=True)
per_epoch = len(train_idx) // args.batch_size
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=args.lr, total_steps=per_epoch * args.epochs)
print(f"{args.people} people, {args.probes} probes, {per_epoch} steps an epoch")


def validate():
    model.eval()
    with torch.no_grad():
        guess = inverse_age(model(*val))
    model.train()
    err = (guess - age[val_idx]).abs()
    return err.mean().item(), err.median().item()


steps = 0
start = time.perf_counter()
for epoch in range(args.epochs):
    perm = train_idx[torch.randperm(len(train_idx))]
    total = 0.0
    for i in range(per_epoch):
        idx = perm[i * args.batch_size:(i + 1) * args.batch_size]
        xb = X[idx]
        pred = model(xb, sex[idx], site[idx])
        loss = F.huber_loss(pred, y[idx], delta=0.5)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        total += loss.item()
        steps += 1
    mae, med = validate()
    print(f"epoch {epoch}: loss {total / per_epoch:.4f}  validation MAE {mae:.2f} years, median {med:.2f}")
loop = time.perf_counter() - start
print("loop_s=%.3f steps=%d" % (loop, steps))
