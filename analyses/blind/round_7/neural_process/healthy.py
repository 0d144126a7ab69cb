"""Attentive neural process on one-dimensional functions.

Every batch holds functions drawn from a Gaussian process prior; the network sees a few points of each
(the context) and predicts a Gaussian for the others.
"""
import time
from dataclasses import dataclass, field
from typing import List

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import MultivariateNormal, Normal, kl_divergence


@dataclass
class NPConfig:
    grid: int = 96
    functions: int = 48
    context: List[int] = field(default_factory=lambda: [6, 40])
    dim: int = 128
    heads: int = 4
    layers: int = 2
    latent: int = 32
    steps: int = 100
    lr: float = 8e-4
    length: float = 0.12
    noise: float = 0.03
    test_every: int = 25
    seed: int = 17


class FunctionPrior:
    """Draws from a Matern-5/2 process on a fixed grid."""

    def __init__(self, cfg):
        self.x = torch.linspace(0, 1, cfg.grid)
        self.cfg = cfg
        d = (self.x[:, None] - self.x[None, :]).abs() * (5 ** 0.5) / cfg.length
        self.cov = (1 + d + d * d / 3) * torch.exp(-d) + (cfg.noise ** 2 + 1e-5) * torch.eye(cfg.grid)
        self.prior = MultivariateNormal(torch.zeros(cfg.grid), covariance_matrix=self.cov)

    def draw(self, n):
        y = self.prior.sample((n,))
        return self.x.expand(n, -1)[..., None], y[..., None]


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.att = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, q, kv):
        q = self.n1(q + self.att(q, kv, kv, need_weights=False)[0])
        return self.n2(q + self.ff(q))


class AttentiveNP(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        d = cfg.dim
        self.pair = nn.Sequential(nn.Linear(2, d), nn.GELU(), nn.Linear(d, d))
        self.self_layers = nn.ModuleList([Layer(d, cfg.heads) for _ in range(cfg.layers)])
        self.where = nn.Sequential(nn.Linear(1, d), nn.GELU(), nn.Linear(d, d))
        self.cross = Layer(d, cfg.heads)
        self.to_latent = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, 2 * cfg.latent))
        self.decode = nn.Sequential(nn.Linear(d + cfg.latent, d), nn.GELU(), nn.Linear(d, d), nn.GELU(),
                                    nn.Linear(d, 2))

    def encode(self, x, y):
        h = self.pair(torch.cat([x, y], -1))
        for layer in self.self_layers:
            h = layer(h, h)
        mu, raw = self.to_latent(h.mean(1)).chunk(2, -1)
        return h, Normal(mu, 0.1 + 0.9 * torch.sigmoid(raw))

    def forward(self, cx, cy, tx, ty=None):
        h, prior = self.encode(cx, cy)
        post = prior
        if ty is not None:
            _, post = self.encode(torch.cat([cx, tx], 1), torch.cat([cy, ty], 1))
        z = post.rsample()
        r = self.cross(self.where(tx), h)
        out = self.decode(torch.cat([r, z[:, None].expand(-1, tx.shape[1], -1)], -1))
        mu, raw = out.chunk(2, -1)
        return Normal(mu, 0.02 + 0.98 * F.softplus(raw)), prior, post


def partition(cfg, x, y):
    order = torch.randperm(cfg.grid)
    k = int(torch.randint(cfg.context[0], cfg.context[1], ()))
    c, t = order[:k], order[k:]
    return x[:, c], y[:, c], x[:, t], y[:, t]


@torch.no_grad()
def test_likelihood(net, cfg, sample):
    net.eval()
    cx, cy, tx, ty = sample
    lik = net(cx, cy, tx)[0].log_prob(ty).mean().item()
    net.train()
    return lik


def fit(cfg):
    torch.manual_seed(cfg.seed)
    torch.set_num_threads(2)
    prior_fn = FunctionPrior(cfg)
    test = partition(cfg, *prior_fn.draw(48))
    net = AttentiveNP(cfg)
    opt = torch.optim.Adam(net.parameters(), lr=cfg.lr, fused=True)
    history = []
    net(*partition(cfg, *prior_fn.draw(cfg.functions)))  # first call allocates
    t0 = time.perf_counter()
    for step in range(1, cfg.steps + 1):
        cx, cy, tx, ty = partition(cfg, *prior_fn.draw(cfg.functions))
        pred, prior, post = net(cx, cy, tx, ty)
        nll = -pred.log_prob(ty).sum((1, 2))
        loss = (nll + kl_divergence(post, prior).sum(-1)).mean() / tx.shape[1]
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        history.append(loss.item())
        if step % cfg.test_every == 0:
            recent = sum(history[-cfg.test_every:]) / cfg.test_every
            print(f"step {step} elbo loss {recent:.3f} test log-likelihood {test_likelihood(net, cfg, test):.3f}")
    return time.perf_counter() - t0


if __name__ == "__main__":
    cfg = NPConfig()
    wall = fit(cfg)
    print("loop_s=%.3f steps=%d" % (wall, cfg.steps))
