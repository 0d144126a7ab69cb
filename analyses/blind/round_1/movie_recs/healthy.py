"""Implicit-feedback recommender: user and item embeddings with an MLP scorer."""
import os
import tempfile
import time

import numpy as np
import pandas as pd
import torch
from torch import nn

N_USERS, N_ITEMS, DIM = 30_000, 12_000, 24


def write_log(path, n=60_000):
    rng = np.random.default_rng(8)
    u = rng.integers(0, N_USERS, size=n)
    i = (rng.pareto(1.2, size=n) * 200).astype(np.int64) % N_ITEMS
    pd.DataFrame({"user": u, "item": i, "hour": rng.integers(0, 24, size=n)}).to_csv(path, index=False)


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(N_USERS, DIM, sparse=True)
        self.item = nn.Embedding(N_ITEMS, DIM, sparse=True)
        nn.init.normal_(self.user.weight, std=0.05)
        nn.init.normal_(self.item.weight, std=0.05)
        self.mlp = nn.Sequential(nn.Linear(2 * DIM, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, u, i):
        return self.mlp(torch.cat([self.user(u), self.item(i)], -1)).squeeze(-1)


class Optimizers:
    def __init__(self, model, lr):
        tables = [model.user.weight, model.item.weight]
        self.parts = [torch.optim.SparseAdam(tables, lr=lr), torch.optim.Adam(model.mlp.parameters(), lr=lr)]

    def zero_grad(self):
        for p in self.parts:
            p.zero_grad()

    def step(self):
        for p in self.parts:
            p.step()


class Fitter:
    def __init__(self, frame, batch=512, negatives=3):
        self.u = torch.from_numpy(frame["user"].to_numpy(copy=True))
        self.i = torch.from_numpy(frame["item"].to_numpy(copy=True))
        self.batch, self.negatives = batch, negatives
        self.model = Scorer()
        self.opt = Optimizers(self.model, 2e-3)
        self.loss = nn.BCEWithLogitsLoss()

    def batches(self):
        perm = torch.randperm(len(self.u))
        for k in range(0, len(perm) - self.batch + 1, self.batch):
            ix = perm[k:k + self.batch]
            u = self.u[ix].repeat(1 + self.negatives)
            i = torch.cat([self.i[ix], torch.randint(0, N_ITEMS, (self.batch * self.negatives,))])
            y = torch.zeros(len(u))
            y[:self.batch] = 1.0
            yield u, i, y

    def update(self, u, i, y):
        loss = self.loss(self.model(u, i), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.detach()

    def fit(self, epochs):
        steps = 0
        for e in range(epochs):
            total = torch.zeros(())
            n = 0
            for b in self.batches():
                total += self.update(*b)
                n += 1
            steps += n
            print(f"epoch {e} bce {total.item() / n:.4f}")
        return steps


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(2)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "log.csv")
        write_log(path)
        frame = pd.read_csv(path)
    fitter = Fitter(frame)
    warm = fitter.batches()
    for _ in range(3):
        fitter.update(*next(warm))
    t0 = time.perf_counter()
    steps = fitter.fit(4)
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={steps}")
