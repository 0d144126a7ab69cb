"""Advantage actor-critic for a chain of driven joints that crawls; two gloo processes, own environments on each."""
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


@dataclass
class Settings:
    world: int = 2
    envs: int = 16           # per process
    joints: int = 6
    horizon: int = 40
    updates: int = 160
    gamma: float = 0.98
    lam: float = 0.95
    lr: float = 4e-4
    entropy: float = 1e-3
    hidden: int = 128
    max_episode: int = 200
    seed: int = 17


class Crawler:
    """Vector environment: joints with springs and damping; anisotropic friction makes waves move the body."""

    def __init__(self, n, joints, max_episode, seed):
        self.n, self.joints, self.max_episode = n, joints, max_episode
        self.rng = np.random.default_rng(seed)
        self.q = np.zeros((n, joints))
        self.v = np.zeros((n, joints))
        self.speed = np.zeros(n)
        self.age = self.rng.integers(0, max_episode, n)
        self.obs_dim = 2 * joints + 1

    def observe(self):
        return np.concatenate([40 * self.q, self.v, 5 * self.speed[:, None]], 1).astype(np.float32)

    def step(self, action):
        torque = np.clip(action, -1, 1)
        couple = np.zeros_like(self.q)
        couple[:, 1:] += self.q[:, :-1] - self.q[:, 1:]
        couple[:, :-1] += self.q[:, 1:] - self.q[:, :-1]
        self.v += 0.1 * (4 * torque - 2 * self.q + couple - 0.6 * self.v)
        self.q += 0.1 * self.v
        thrust = (self.v[:, 1:] * self.q[:, :-1] - self.v[:, :-1] * self.q[:, 1:]).mean(1)
        self.speed = 0.9 * self.speed + 0.1 * thrust
        reward = self.speed - 0.02 * (torque ** 2).mean(1)
        self.age += 1
        done = self.age >= self.max_episode
        if done.any():
            k = int(done.sum())
            self.q[done] = self.rng.normal(0, 0.1, (k, self.joints))
            self.v[done] = 0
            self.speed[done] = 0
            self.age[done] = 0
        return self.observe(), reward.astype(np.float32), done.astype(np.float32)


class ObsNormalizer:
    """Mean and variance of all observations seen by all processes."""

    def __init__(self, dim):
        self.sums = torch.zeros(2 * dim + 1, dtype=torch.float64)
        self.dim = dim
        self.mean = torch.zeros(dim)
        self.std = torch.ones(dim)

    def update(self, obs):
        x = obs.double().reshape(-1, self.dim)
        new = torch.cat([x.sum(0), x.square().sum(0), x.new_tensor([len(x)])])
        dist.all_reduce(new)
        self.sums += new
        count = self.sums[-1]
        mean = self.sums[:self.dim] / count
        var = self.sums[self.dim:-1] / count - mean ** 2
        self.mean, self.std = mean.float(), var.clamp_min(1e-4).sqrt().float()

    def __call__(self, obs):
        return ((obs - self.mean) / self.std).clamp(-5, 5)


class ActorCritic(nn.Module):
    def __init__(self, obs, act, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.mu = nn.Linear(hidden, act)
        self.value = nn.Linear(hidden, 1)
        self.log_std = nn.Parameter(torch.full((act,), -0.5))

    def forward(self, obs):
        h = self.body(obs)
        return self.mu(h), self.value(h).squeeze(-1)

    def log_prob(self, mu, action):
        z = (action - mu) / self.log_std.exp()
        return (-0.5 * z.square() - self.log_std - 0.9189385).sum(-1)


def average_gradients(params, world):
    flat = torch.cat([p.grad.flatten() for p in params])
    dist.all_reduce(flat)
    flat /= world
    at = 0
    for p in params:
        p.grad.copy_(flat[at:at + p.numel()].view_as(p))
        at += p.numel()


def collect(env, obs, model, norm, cfg):
    """One rollout; returns normalised observations, actions, rewards, ends, and the last observation."""
    seen, actions, rewards, ends = [], [], [], []
    with torch.no_grad():
        std = model.log_std.exp()
        for _ in range(cfg.horizon):
            norm.update(obs)
            x = norm(obs)
            mu, _ = model(x)
            action = mu + std * torch.randn_like(mu)
            nxt, reward, done = env.step(action.numpy())
            seen.append(x)
            actions.append(action)
            rewards.append(torch.from_numpy(reward))
            ends.append(torch.from_numpy(done))
            obs = torch.from_numpy(nxt)
    return torch.stack(seen), torch.stack(actions), torch.stack(rewards), torch.stack(ends), obs


def advantages(values, last_value, rewards, ends, cfg):
    adv = torch.zeros_like(rewards)
    carry = torch.zeros(cfg.envs)
    nxt = last_value
    for t in reversed(range(cfg.horizon)):
        alive = 1 - ends[t]
        delta = rewards[t] + cfg.gamma * nxt * alive - values[t]
        carry = delta + cfg.gamma * cfg.lam * alive * carry
        adv[t] = carry
        nxt = values[t]
    return adv


def run(rank, init, cfg):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{init}", rank=rank, world_size=cfg.world)
    env = Crawler(cfg.envs, cfg.joints, cfg.max_episode, cfg.seed + rank)
    torch.manual_seed(cfg.seed)
    model = ActorCritic(env.obs_dim, cfg.joints, cfg.hidden)
    params = list(model.parameters())
    opt = torch.optim.Adam(params, lr=cfg.lr)
    torch.manual_seed(cfg.seed + 100 + rank)
    norm = ObsNormalizer(env.obs_dim)
    obs = torch.from_numpy(env.observe())

    dist.barrier()
    begin = time.perf_counter()
    for update in range(1, cfg.updates + 1):
        seen, actions, rewards, ends, obs = collect(env, obs, model, norm, cfg)
        mu, values = model(seen)
        with torch.no_grad():
            _, last = model(norm(obs))
            adv = advantages(values.detach(), last, rewards, ends, cfg)
            target = adv + values.detach()
            adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        policy_loss = -(model.log_prob(mu, actions) * adv).mean()
        value_loss = (values - target).square().mean()
        loss = policy_loss + 0.5 * value_loss - cfg.entropy * model.log_std.sum()
        opt.zero_grad()
        loss.backward()
        average_gradients(params, cfg.world)
        opt.step()
        if rank == 0 and update % 20 == 0:
            print(f"update {update} reward {rewards.mean().item():.4f} value loss {value_loss.item():.4f}", flush=True)
    dist.barrier()
    if rank == 0:
        print(f"loop_s={time.perf_counter() - begin:.3f} steps={cfg.updates}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    settings = Settings()
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(run, args=(os.path.join(tmp, "init"), settings), nprocs=settings.world)
