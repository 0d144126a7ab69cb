#!/usr/bin/env python
# Decision Transformer on a synthetic offline locomotion data set (fixed-horizon episodes).
import time
from argparse import ArgumentParser
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Config:
    state_dim: int = 17
    act_dim: int = 6
    hidden: int = 96
    layers: int = 2
    heads: int = 4
    context: int = 20
    horizon: int = 80
    dropout: float = 0.1
    return_scale: float = 100.0


def collect(n_traj, cfg, seed):
    """Roll a noisy linear system under policies of varied quality."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(cfg.state_dim, cfg.state_dim)) * 0.15
    B = rng.normal(size=(cfg.act_dim, cfg.state_dim)) * 0.3
    gain = rng.normal(size=(cfg.state_dim, cfg.act_dim)) * 0.3
    skill = rng.uniform(0, 1, size=(n_traj, 1))
    s = rng.normal(size=(n_traj, cfg.state_dim))
    states, actions, rewards = [], [], []
    for _ in range(cfg.horizon):
        a = np.tanh(skill * (s @ gain) + (1 - skill) * rng.normal(size=(n_traj, cfg.act_dim)))
        states.append(s)
        actions.append(a)
        rewards.append(1.0 + s[:, 0] - 0.1 * (a ** 2).sum(1))
        s = np.tanh(s @ A + a @ B + 0.1 * rng.normal(size=s.shape))
    stack = lambda x: np.stack(x, 1).astype(np.float32)
    return stack(states), stack(actions), stack(rewards)


def discount_cumsum(x, gamma):
    out = np.zeros_like(x)
    out[-1] = x[-1]
    for t in reversed(range(x.shape[0] - 1)):
        out[t] = x[t] + gamma * out[t + 1]
    return out


class OfflineDataset:
    def __init__(self, cfg, n_traj=1500, seed=0):
        self.cfg = cfg
        self.rng = np.random.default_rng(seed + 1)
        self.states, self.actions, self.rewards = collect(n_traj, cfg, seed)
        flat = self.states.reshape(-1, cfg.state_dim)
        self.mean, self.std = flat.mean(0), flat.std(0) + 1e-6
        self.returns = self.rewards.sum(1)
        # sample good episodes more often
        p = self.returns - self.returns.min() + 1.0
        self.p = p / p.sum()

    def get_batch(self, batch_size):
        cfg, K = self.cfg, self.cfg.context
        traj = self.rng.choice(len(self.returns), size=batch_size, p=self.p)
        start = self.rng.integers(0, cfg.horizon - K, size=batch_size)
        t = start[:, None] + np.arange(K)
        s = (self.states[traj[:, None], t] - self.mean) / self.std
        a = self.actions[traj[:, None], t]
        rtg = np.stack([discount_cumsum(self.rewards[i, si:], 1.0)[:K] for i, si in zip(traj, start)])
        rtg = rtg / cfg.return_scale
        return (torch.from_numpy(s), torch.from_numpy(a),
                torch.from_numpy(rtg).unsqueeze(-1), torch.from_numpy(t))


class CausalBlock(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        h = cfg.hidden
        self.heads = cfg.heads
        self.ln1, self.ln2 = nn.LayerNorm(h), nn.LayerNorm(h)
        self.attn, self.out = nn.Linear(h, 3 * h), nn.Linear(h, h)
        self.ff = nn.Sequential(nn.Linear(h, 4 * h), nn.GELU(), nn.Linear(4 * h, h), nn.Dropout(cfg.dropout))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (z.view(B, T, self.heads, -1).transpose(1, 2) for z in self.attn(self.ln1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.ff(self.ln2(x))


class DecisionTransformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        h = cfg.hidden
        self.embed_t = nn.Embedding(cfg.horizon, h)
        self.embed_r = nn.Linear(1, h)
        self.embed_s = nn.Linear(cfg.state_dim, h)
        self.embed_a = nn.Linear(cfg.act_dim, h)
        self.ln = nn.LayerNorm(h)
        self.blocks = nn.Sequential(*[CausalBlock(cfg) for _ in range(cfg.layers)])
        self.head = nn.Sequential(nn.LayerNorm(h), nn.Linear(h, cfg.act_dim), nn.Tanh())

    def forward(self, s, a, rtg, t):
        B, K = t.shape
        pos = self.embed_t(t)
        x = torch.stack([self.embed_r(rtg) + pos, self.embed_s(s) + pos, self.embed_a(a) + pos], dim=2)
        x = self.blocks(self.ln(x.view(B, 3 * K, -1)))
        return self.head(x.view(B, K, 3, -1)[:, :, 1])


class Trainer:
    def __init__(self, model, data, batch_size, lr):
        self.model, self.data, self.batch_size = model, data, batch_size
        self.optim = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-4, fused=True)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.optim, lambda i: min((i + 1) / 50, 1))

    def train_iteration(self, n):
        self.model.train()
        losses = []
        for _ in range(n):
            s, a, rtg, t = self.data.get_batch(self.batch_size)
            loss = F.mse_loss(self.model(s, a, rtg, t), a)
            self.optim.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.25)
            self.optim.step()
            self.sched.step()
            losses.append(loss.detach())
        return torch.stack(losses)


if __name__ == "__main__":
    p = ArgumentParser()
    p.add_argument("--iters", type=int, default=6)
    p.add_argument("--steps_per_iter", type=int, default=20)
    p.add_argument("--batch_size", type=int, default=64)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=0)
    opt = p.parse_args()
    torch.manual_seed(opt.seed)
    torch.set_num_threads(1)
    cfg = Config()
    data = OfflineDataset(cfg, seed=opt.seed)
    print("episodes %d, return mean %.1f max %.1f" % (len(data.returns), data.returns.mean(), data.returns.max()))
    trainer = Trainer(DecisionTransformer(cfg), data, opt.batch_size, opt.lr)
    trainer.train_iteration(3)

    t0 = time.perf_counter()
    for it in range(opt.iters):
        losses = trainer.train_iteration(opt.steps_per_iter)
        print("iter %d  train/loss_mean %.4f  train/loss_std %.4f" % (it, losses.mean(), losses.std()))
    elapsed = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (elapsed, opt.iters * opt.steps_per_iter))
