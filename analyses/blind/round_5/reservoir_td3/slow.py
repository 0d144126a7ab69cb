"""TD3 for the operation of a cascade of water reservoirs.

State: storages, recent inflows, season and electricity price. Action: release of each
reservoir. The simulator is a numpy model that advances several basins at a time.
"""
import copy
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Config:
    seed = 2
    n_res = 6
    n_env = 8
    horizon = 180
    prefill = 8000          # random transitions per basin before training
    steps = 700
    batch = 256
    hidden = 256
    gamma = 0.98
    tau = 0.005
    lr = 3e-4
    policy_noise = 0.2
    noise_clip = 0.5
    explore = 0.15
    policy_delay = 2
    log_every = 175


class Cascade:
    def __init__(self, cfg, seed):
        self.cfg = cfg
        self.rng = np.random.default_rng(seed)
        self.capacity = np.linspace(1.0, 2.0, cfg.n_res)
        self.mean_in = np.linspace(0.12, 0.04, cfg.n_res)
        self.obs_dim = 3 * cfg.n_res + 6
        self.act_dim = cfg.n_res
        self.reset()

    def reset(self):
        n, r = self.cfg.n_env, self.cfg.n_res
        self.storage = self.rng.uniform(0.3, 0.8, (n, r)) * self.capacity
        self.inflow = np.tile(self.mean_in, (n, 1))
        self.last = np.zeros((n, r))
        self.day = self.rng.integers(0, 365, n)
        self.price = np.ones(n)
        self.age = np.zeros(n, dtype=int)
        return self.observe()

    def observe(self):
        season = 2 * np.pi * self.day / 365
        extra = np.stack([np.sin(season), np.cos(season), np.sin(2 * season),
                          np.cos(2 * season), self.price * 40.0, self.age / 100.0], 1)
        return np.concatenate([self.storage, self.inflow * 10, self.last * 10, extra],
                              1).astype(np.float32)

    def step(self, action):
        want = 0.15 * (action + 1.0)
        release = np.minimum(want, self.storage)
        wet = 1.0 + 0.6 * np.sin(2 * np.pi * self.day / 365)[:, None]
        noise = self.rng.normal(0, 0.25, self.inflow.shape)
        self.inflow = 0.7 * self.inflow + 0.3 * self.mean_in * wet * np.exp(noise)
        arriving = self.inflow.copy()
        arriving[:, 1:] += release[:, :-1]
        level = self.storage - release + arriving
        spill = np.maximum(level - self.capacity, 0.0)
        self.storage = level - spill
        self.price = np.clip(self.price + 0.1 * (1.0 - self.price)
                             + 0.1 * self.rng.normal(size=len(self.price)), 0.2, 3.0)
        head = 0.5 + 0.5 * self.storage / self.capacity
        reward = (self.price[:, None] * release * head).sum(1) - 0.5 * spill.sum(1)
        self.last = release
        self.day = (self.day + 1) % 365
        self.age += 1
        done = self.age >= self.cfg.horizon
        if done.any():
            self.storage[done] = self.rng.uniform(0.3, 0.8, (done.sum(), self.cfg.n_res)) * self.capacity
            self.age[done] = 0
        return self.observe(), reward.astype(np.float32), done


class Replay:
    def __init__(self, capacity, obs_dim, act_dim):
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.act = np.zeros((capacity, act_dim), np.float32)
        self.rew = np.zeros(capacity, np.float32)
        self.nxt = np.zeros((capacity, obs_dim), np.float32)
        self.size = 0

    def add(self, obs, act, rew, nxt):
        rows = slice(self.size, self.size + len(obs))
        self.obs[rows], self.act[rows], self.rew[rows], self.nxt[rows] = obs, act, rew, nxt
        self.size += len(obs)

    def moments(self):
        seen = self.obs[:self.size]
        return seen.mean(axis=0), seen.std(axis=0) + 1e-4

    def sample(self, n, rng):
        i = rng.integers(0, self.size, n)
        return self.obs[i], self.act[i], self.rew[i], self.nxt[i]


def mlp(n_in, hidden, n_out):
    return nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden),
                         nn.ReLU(), nn.Linear(hidden, n_out))


class Agent(nn.Module):
    def __init__(self, cfg, obs_dim, act_dim):
        super().__init__()
        self.actor = mlp(obs_dim, cfg.hidden, act_dim)
        self.q1 = mlp(obs_dim + act_dim, cfg.hidden, 1)
        self.q2 = mlp(obs_dim + act_dim, cfg.hidden, 1)

    def pi(self, obs):
        return torch.tanh(self.actor(obs))

    def q(self, obs, act):
        x = torch.cat([obs, act], 1)
        return self.q1(x).squeeze(1), self.q2(x).squeeze(1)


def update(cfg, agent, target, opts, batch, n):
    obs, act, rew, nxt = (torch.from_numpy(b) for b in batch)
    with torch.no_grad():
        noise = (torch.randn_like(act) * cfg.policy_noise).clamp(-cfg.noise_clip, cfg.noise_clip)
        a2 = (target.pi(nxt) + noise).clamp(-1, 1)
        t1, t2 = target.q(nxt, a2)
        backup = rew + cfg.gamma * torch.minimum(t1, t2)
    q1, q2 = agent.q(obs, act)
    loss = F.mse_loss(q1, backup) + F.mse_loss(q2, backup)
    opts["critic"].zero_grad()
    loss.backward()
    opts["critic"].step()
    if n % cfg.policy_delay == 0:
        for p in opts["critic_params"]:
            p.requires_grad_(False)
        value = agent.q1(torch.cat([obs, agent.pi(obs)], 1)).mean()
        opts["actor"].zero_grad()
        (-value).backward()
        opts["actor"].step()
        for p in opts["critic_params"]:
            p.requires_grad_(True)
        with torch.no_grad():
            torch._foreach_lerp_(list(target.parameters()), list(agent.parameters()), cfg.tau)
    return loss.detach()


def main():
    cfg = Config()
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    env = Cascade(cfg, cfg.seed)
    replay = Replay(cfg.n_env * (cfg.prefill + cfg.steps + 1), env.obs_dim, env.act_dim)
    agent = Agent(cfg, env.obs_dim, env.act_dim)
    target = copy.deepcopy(agent).requires_grad_(False)
    critic_params = list(agent.q1.parameters()) + list(agent.q2.parameters())
    opts = {"critic": torch.optim.Adam(critic_params, lr=cfg.lr, fused=True),
            "actor": torch.optim.Adam(agent.actor.parameters(), lr=cfg.lr, fused=True),
            "critic_params": critic_params}

    obs = env.observe()
    for _ in range(cfg.prefill):
        act = rng.uniform(-1, 1, (cfg.n_env, env.act_dim))
        nxt, rew, _ = env.step(act)
        replay.add(obs, act, rew, nxt)
        obs = nxt
    print(f"replay holds {replay.size} transitions")

    recent = []
    start = time.perf_counter()
    for n in range(1, cfg.steps + 1):
        mean, std = replay.moments()
        with torch.no_grad():
            act = agent.pi(torch.from_numpy((obs - mean) / std)).numpy()
        act = np.clip(act + rng.normal(0, cfg.explore, act.shape), -1, 1).astype(np.float32)
        nxt, rew, _ = env.step(act)
        replay.add(obs, act, rew, nxt)
        obs = nxt
        recent.append(rew.mean())
        o, a, r, o2 = replay.sample(cfg.batch, rng)
        loss = update(cfg, agent, target, opts, ((o - mean) / std, a, r, (o2 - mean) / std), n)
        if n % cfg.log_every == 0:
            print(f"{n:5d} reward {np.mean(recent):.4f} critic loss {loss.item():.4f}")
            recent.clear()
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - start, cfg.steps))


if __name__ == "__main__":
    main()
