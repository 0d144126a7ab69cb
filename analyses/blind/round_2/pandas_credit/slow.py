import os
import shutil
import tempfile
import time

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

NUMERIC = ["income", "age", "debt", "n_loans", "utilisation", "months_job", "limit", "balance"]
CATEGORICAL = ["region", "product", "channel"]


def make_csv(path, n):
    rng = np.random.default_rng(11)
    df = pd.DataFrame({c: rng.lognormal(0, 1, n) for c in NUMERIC})
    df["region"] = rng.choice([f"R{i}" for i in range(20)], n)
    df["product"] = rng.choice(["card", "auto", "home", "cash"], n)
    df["channel"] = rng.choice(["web", "branch", "phone"], n)
    risk = df["debt"] - df["income"] + (df["product"] == "cash") * 0.8 + rng.normal(0, 0.5, n)
    df["default"] = (risk > 0.4).astype(int)
    df.to_csv(path, index=False)


def load(path):
    df = pd.read_csv(path)
    df[NUMERIC] = np.log1p(df[NUMERIC])
    df[NUMERIC] = (df[NUMERIC] - df[NUMERIC].mean()) / df[NUMERIC].std()
    sizes = []
    for c in CATEGORICAL:
        df[c] = df[c].astype("category").cat.codes.astype("int64")
        sizes.append(int(df[c].max()) + 1)
    return df, sizes


class CreditData(Dataset):
    def __init__(self, df):
        self.df = df.reset_index(drop=True)

    def __len__(self):
        return len(self.df)

    def __getitem__(self, i):
        row = self.df.iloc[i]
        num = torch.tensor(row[NUMERIC].to_numpy(dtype=np.float32))
        cat = torch.tensor(row[CATEGORICAL].to_numpy(dtype=np.int64))
        return num, cat, torch.tensor(float(row["default"]))


class TabularNet(nn.Module):
    def __init__(self, sizes, hidden=512):
        super().__init__()
        self.embs = nn.ModuleList(nn.Embedding(s, 12) for s in sizes)
        width = len(NUMERIC) + 12 * len(sizes)
        layers = []
        for _ in range(4):
            layers += [nn.Linear(width, hidden), nn.BatchNorm1d(hidden), nn.SiLU(), nn.Dropout(0.1)]
            width = hidden
        self.mlp = nn.Sequential(*layers, nn.Linear(width, 1))

    def forward(self, num, cat):
        parts = [num] + [e(cat[:, j]) for j, e in enumerate(self.embs)]
        return self.mlp(torch.cat(parts, 1)).squeeze(1)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    hits = total = 0
    for num, cat, y in loader:
        hits += ((model(num, cat) > 0) == (y > 0.5)).sum().item()
        total += len(y)
    model.train()
    return hits / total


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    tmp = tempfile.mkdtemp()
    try:
        path = os.path.join(tmp, "loans.csv")
        make_csv(path, 5000)
        df, sizes = load(path)
        cut = int(len(df) * 0.9)
        train = DataLoader(CreditData(df[:cut]), batch_size=64, shuffle=True, drop_last=True)
        valid = DataLoader(CreditData(df[cut:]), batch_size=250)
        model = TabularNet(sizes)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
        loss_fn = nn.BCEWithLogitsLoss()
        model(torch.zeros(8, len(NUMERIC)), torch.zeros(8, len(CATEGORICAL), dtype=torch.long)).sum().backward()

        steps = 0
        start = time.perf_counter()
        for epoch in range(2):
            for num, cat, y in train:
                opt.zero_grad()
                loss = loss_fn(model(num, cat), y)
                loss.backward()
                opt.step()
                steps += 1
            print(f"epoch {epoch} loss {loss.item():.4f} val acc {validate(model, valid):.4f}")
        seconds = time.perf_counter() - start
    finally:
        shutil.rmtree(tmp)
    print(f"loop_s={seconds:.3f} steps={steps}")


if __name__ == "__main__":
    main()
