# Wind turbine power curves with a Bayesian last layer (variational, full covariance).
# The network gives features; weights of the last layer have a Gaussian posterior.

import math
import time

import numpy as np
import torch
import torch.nn as nn

CFG = {
    "rows": 60000,
    "inputs": 40,
    "width": 384,
    "features": 128,
    "batch": 1536,
    "steps": 330,
    "lr": 1e-3,
    "eval_every": 50,
    "seed": 9,
}


def make_table(cfg):
    rng = np.random.default_rng(cfg["seed"])
    x = rng.normal(size=(cfg["rows"], cfg["inputs"])).astype(np.float32)
    wind = np.abs(x[:, 0] * 4 + 8)
    density = 1.2 + 0.05 * x[:, 1]
    yaw = 0.2 * x[:, 2]
    power = np.clip(0.5 * density * (wind / 12) ** 3 * np.cos(yaw) ** 3, 0, 1)
    power += 0.03 * np.sin(x[:, 3:8].sum(1)) + rng.normal(size=len(x)) * (0.02 + 0.02 * (wind > 10))
    return torch.from_numpy(x), torch.from_numpy(power.astype(np.float32))


class Trunk(nn.Module):
    def __init__(self, inputs, width, features):
        super().__init__()
        self.lift = nn.Linear(inputs, width)
        self.mid = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.out = nn.Linear(width, features)

    def forward(self, x):
        h = torch.relu(self.lift(x))
        for layer in self.mid:
            h = h + torch.relu(layer(h))
        return torch.tanh(self.out(h))


class BayesianHead(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.mu = nn.Parameter(torch.zeros(features))
        self.log_diag = nn.Parameter(torch.full((features,), -2.0))
        self.lower = nn.Parameter(torch.zeros(features, features))
        self.log_noise = nn.Parameter(torch.tensor(-3.0))
        self.features = features

    def factor(self):
        return torch.tril(self.lower, -1) + torch.diag(self.log_diag.exp())

    def predict(self, phi):
        chol = self.factor()
        mean = phi @ self.mu
        var = (phi @ chol).square().sum(1)
        return mean, var

    def kl(self):
        chol = self.factor()
        return 0.5 * (chol.square().sum() + self.mu.square().sum() - self.features) - self.log_diag.sum()


def elbo(trunk, head, x, y, n):
    mean, var = head.predict(trunk(x))
    noise = head.log_noise.exp()
    fit = 0.5 * (math.log(2 * math.pi) + head.log_noise + ((y - mean) ** 2 + var) / noise)
    return fit.mean() + head.kl() / n


@torch.no_grad()
def coverage(trunk, head, x, y):
    mean, var = head.predict(trunk(x))
    sd = (var + head.log_noise.exp()).sqrt()
    return ((y - mean).abs() < 1.96 * sd).float().mean().item()


def run(cfg):
    torch.manual_seed(cfg["seed"])
    x, y = make_table(cfg)
    n_val = 2000
    x_val, y_val, x, y = x[:n_val], y[:n_val], x[n_val:], y[n_val:]
    trunk, head = Trunk(cfg["inputs"], cfg["width"], cfg["features"]), BayesianHead(cfg["features"])
    params = [*trunk.parameters(), *head.parameters()]
    opt = torch.optim.Adam(params, lr=cfg["lr"], fused=True)
    n = len(x)

    elbo(trunk, head, x[:cfg["batch"]], y[:cfg["batch"]], n).backward()
    opt.zero_grad(set_to_none=True)

    tic = time.perf_counter()
    for step in range(cfg["steps"]):
        idx = torch.randint(0, n, (cfg["batch"],))
        loss = elbo(trunk, head, x[idx], y[idx], n)
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        if (step + 1) % cfg["eval_every"] == 0:
            cov = coverage(trunk, head, x_val, y_val)
            print("step %4d  -elbo %.4f  95%% coverage %.3f" % (step + 1, loss.item(), cov))
    return time.perf_counter() - tic, cfg["steps"]


if __name__ == "__main__":
    print("loop_s=%.3f steps=%d" % run(CFG))
