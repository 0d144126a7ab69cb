"""Neural additive model for credit default: a small shape function for each attribute, summed into a logit."""
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Settings:
    rows: int = 120_000
    features: int = 40
    h1: int = 32
    h2: int = 16
    batch: int = 512
    epochs: int = 6
    lr: float = 3e-3
    output_penalty: float = 1e-3
    feature_dropout: float = 0.05
    seed: int = 5


class CreditData:
    def __init__(self, s):
        rng = np.random.default_rng(s.seed)
        x = rng.normal(size=(s.rows, s.features)).astype(np.float32)
        logit = -1.2 + np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] ** 2 - np.abs(x[:, 2]) + 0.7 * (x[:, 3] > 0.4)
        for j in range(4, 16):
            logit += rng.normal(0, 0.25) * np.tanh(x[:, j] * rng.uniform(0.5, 2))
        y = (rng.random(s.rows) < 1 / (1 + np.exp(-logit))).astype(np.float32)
        cut = int(s.rows * 0.9)
        self.train_x, self.train_y = torch.from_numpy(x[:cut]), torch.from_numpy(y[:cut])
        self.test_x, self.test_y = torch.from_numpy(x[cut:]), torch.from_numpy(y[cut:])

    def epoch(self, batch):
        order = torch.randperm(len(self.train_x))
        for idx in order.split(batch):
            if len(idx) == batch:
                yield self.train_x[idx], self.train_y[idx]


class ShapeFunctions(nn.Module):
    def __init__(self, n, h1, h2):
        super().__init__()
        self.w1, self.b1 = self.layer(n, 1, h1)
        self.w2, self.b2 = self.layer(n, h1, h2)
        self.w3, self.b3 = self.layer(n, h2, 1)
        nn.init.normal_(self.w1, std=1.0)

    @staticmethod
    def layer(n, fan_in, fan_out):
        bound = fan_in ** -0.5
        w = torch.empty(n, fan_in, fan_out).uniform_(-bound, bound)
        return nn.Parameter(w), nn.Parameter(torch.empty(n, 1, fan_out).uniform_(-bound, bound))

    def forward(self, x):
        h = x.t().unsqueeze(2)
        h = torch.relu(torch.baddbmm(self.b1, h, self.w1))
        h = torch.relu(torch.baddbmm(self.b2, h, self.w2))
        return torch.baddbmm(self.b3, h, self.w3).squeeze(2).t()


class AdditiveModel(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.shapes = ShapeFunctions(s.features, s.h1, s.h2)
        self.bias = nn.Parameter(torch.zeros(()))
        self.drop = nn.Dropout(s.feature_dropout)

    def forward(self, x):
        parts = self.drop(self.shapes(x))
        return parts.sum(1) + self.bias, parts


def auc(score, label):
    rank = score.argsort().argsort().double() + 1
    pos = label > 0.5
    n1, n0 = pos.sum().double(), (~pos).sum().double()
    return ((rank[pos].sum() - n1 * (n1 + 1) / 2) / (n1 * n0)).item()


@torch.no_grad()
def report(model, data):
    model.eval()
    score, parts = model(data.test_x)
    importance = parts.std(0)
    model.train()
    top = importance.topk(4).indices.tolist()
    return auc(score, data.test_y), top


class Trainer:
    def __init__(self, s):
        torch.manual_seed(s.seed)
        self.s = s
        self.data = CreditData(s)
        self.model = AdditiveModel(s)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=s.lr, fused=True)
        self.loss_fn = nn.BCEWithLogitsLoss()
        self.steps = 0

    def step(self, x, y):
        score, parts = self.model(x)
        loss = self.loss_fn(score, y) + self.s.output_penalty * parts.square().mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.steps += 1
        return loss.detach()

    def fit(self):
        begin = time.perf_counter()
        for epoch in range(self.s.epochs):
            losses = [self.step(x, y) for x, y in self.data.epoch(self.s.batch)]
            area, top = report(self.model, self.data)
            print(f"epoch {epoch} loss {torch.stack(losses).mean():.4f} auc {area:.4f} strongest {top}", flush=True)
        return time.perf_counter() - begin


if __name__ == "__main__":
    trainer = Trainer(Settings())
    seconds = trainer.fit()
    print("loop_s=%.3f steps=%d" % (seconds, trainer.steps))
