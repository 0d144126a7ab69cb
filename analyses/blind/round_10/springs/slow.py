"""Hamiltonian neural network for a small network of masses and springs in the plane.

The network gives the energy H(q, p); the loss compares the symplectic gradient of H
with the velocities and forces that were observed (with noise).
"""
import math
import time
from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Config:
    bodies: int = 8
    samples: int = 60_000
    batch: int = 768
    hidden: int = 384
    epochs: int = 4
    lr: float = 1e-3
    noise: float = 0.02
    log_every: int = 40
    seed: int = 7


class SpringSystem:
    def __init__(self, n, gen):
        self.n = n
        self.mass = 0.5 + torch.rand(n, generator=gen)
        link = (torch.rand(n, n, generator=gen) < 0.5).float().triu(1)
        stiffness = link * (0.5 + torch.rand(n, n, generator=gen))
        self.k = stiffness + stiffness.t()
        self.rest = 1.0

    def forces(self, q):
        x = q.view(-1, self.n, 2)
        delta = x[:, :, None] - x[:, None]
        dist = delta.norm(dim=-1).clamp_min(1e-3)
        pull = self.k * (dist - self.rest) / dist
        return -(pull[..., None] * delta).sum(2).reshape(q.shape)

    def velocities(self, p):
        return (p.view(-1, self.n, 2) / self.mass[:, None]).reshape(p.shape)


def make_data(cfg):
    gen = torch.Generator().manual_seed(cfg.seed)
    system = SpringSystem(cfg.bodies, gen)
    dim = 2 * cfg.bodies
    q = torch.randn(cfg.samples, dim, generator=gen)
    p = torch.randn(cfg.samples, dim, generator=gen) * 0.7
    dq = system.velocities(p)
    dp = torch.cat([system.forces(part) for part in q.split(4096)])
    dq = dq + cfg.noise * torch.randn(dq.shape, generator=gen)
    dp = dp + cfg.noise * torch.randn(dp.shape, generator=gen)
    return q, p, dq, dp


class EnergyNet(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(2 * dim, hidden), nn.Tanh(),
            nn.Linear(hidden, hidden), nn.Tanh(),
            nn.Linear(hidden, hidden), nn.Tanh(),
            nn.Linear(hidden, 1),
        )

    def forward(self, q, p):
        return self.body(torch.cat([q, p], dim=-1)).squeeze(-1)


class HamiltonianModel(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.energy = EnergyNet(dim, hidden)

    def forward(self, q, p):
        q = q.detach().requires_grad_(True)
        p = p.detach().requires_grad_(True)
        total = self.energy(q, p).sum()
        dh_dq = torch.autograd.grad(total, q, create_graph=True)[0]
        dh_dp = torch.autograd.grad(total, p, create_graph=True)[0]
        return dh_dp, -dh_dq


def cosine(step, total, warm=20):
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, total - warm)))


def run(cfg):
    torch.manual_seed(cfg.seed)
    q, p, dq, dp = make_data(cfg)
    n_test = 2048
    model = HamiltonianModel(2 * cfg.bodies, cfg.hidden)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-5)
    n_train = cfg.samples - n_test
    per_epoch = n_train // cfg.batch
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: cosine(s, per_epoch * cfg.epochs))
    held_out = slice(n_train, None)
    print(f"{cfg.bodies} bodies, {n_train} states, {per_epoch} steps an epoch")

    start = time.perf_counter()
    step, mean_loss = 0, 0.0
    for epoch in range(cfg.epochs):
        order = torch.randperm(n_train)
        for i in range(per_epoch):
            idx = order[i * cfg.batch:(i + 1) * cfg.batch]
            pred_dq, pred_dp = model(q[idx], p[idx])
            loss = (pred_dq - dq[idx]).square().mean() + (pred_dp - dp[idx]).square().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optimizer.step()
            schedule.step()
            step += 1
            mean_loss += loss.item() / cfg.log_every
            if step % cfg.log_every == 0:
                print(f"step {step:4d}  loss {mean_loss:.4f}  lr {schedule.get_last_lr()[0]:.2e}")
                mean_loss = 0.0
        pred_dq, pred_dp = model(q[held_out], p[held_out])
        err_q = (pred_dq - dq[held_out]).detach().square().mean().sqrt().item()
        err_p = (pred_dp - dp[held_out]).detach().square().mean().sqrt().item()
        print(f"epoch {epoch}: rmse velocity {err_q:.3f}, force {err_p:.3f}")
    print(f"loop_s={time.perf_counter() - start:.3f} steps={step}")


if __name__ == "__main__":
    run(Config())
