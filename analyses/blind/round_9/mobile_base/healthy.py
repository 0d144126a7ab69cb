"""Model-based control of a mobile base with a laser scanner.

A fleet of simulated bases drives around with a mix of random and planned commands; what they see goes
into the experience store, and an ensemble of dynamics models is trained on samples from all of it.
"""
from dataclasses import dataclass
import time

import numpy as np
import torch
from torch import nn


@dataclass
class Settings:
    robots: int = 256
    beams: int = 88
    logged_rounds: int = 400
    rounds: int = 100
    updates_per_round: int = 2
    batch: int = 512
    members: int = 3
    hidden: int = 192
    lr: float = 1e-3
    candidates: int = 32
    report_every: int = 20
    seed: int = 21


class Bases:
    """Bases in a square hall with round pillars, all simulated together."""

    def __init__(self, cfg, rng):
        self.rng, self.n = rng, cfg.robots
        self.angles = np.linspace(-np.pi, np.pi, cfg.beams, endpoint=False)
        self.pillars = rng.uniform(-8, 8, (6, 2))
        self.pose = np.column_stack([rng.uniform(-9, 9, (self.n, 2)), rng.uniform(-np.pi, np.pi, self.n)])
        self.speed = np.zeros((self.n, 2))

    def observe(self):
        heading = self.pose[:, 2:3] + self.angles
        c, s = np.cos(heading), np.sin(heading)
        x, y = self.pose[:, :1], self.pose[:, 1:2]
        with np.errstate(divide="ignore"):
            tx = np.where(c > 0, (10 - x) / c, (-10 - x) / c)
            ty = np.where(s > 0, (10 - y) / s, (-10 - y) / s)
        scan = np.minimum(np.abs(tx), np.abs(ty))
        for px, py in self.pillars:
            dx, dy = px - x, py - y
            along = dx * c + dy * s
            across = dx * s - dy * c
            near = along - np.sqrt(np.maximum(0.25 - across ** 2, 0))
            scan = np.where((np.abs(across) < 0.5) & (near > 0) & (near < scan), near, scan)
        state = np.column_stack([self.pose[:, :2] / 10, np.cos(self.pose[:, 2]), np.sin(self.pose[:, 2]), self.speed])
        return torch.from_numpy(np.column_stack([state, scan / 20]).astype(np.float32))

    def drive(self, command):
        self.speed = 0.7 * self.speed + 0.3 * command + self.rng.normal(0, 0.01, command.shape)
        v, w = self.speed[:, 0], self.speed[:, 1]
        self.pose[:, 0] += 0.2 * v * np.cos(self.pose[:, 2])
        self.pose[:, 1] += 0.2 * v * np.sin(self.pose[:, 2])
        self.pose[:, :2] = np.clip(self.pose[:, :2], -9.5, 9.5)
        self.pose[:, 2] = (self.pose[:, 2] + 0.2 * w + np.pi) % (2 * np.pi) - np.pi


class ReplayStore:
    def __init__(self, capacity, obs_dim, act_dim):
        self.obs = torch.empty(capacity, obs_dim)
        self.act = torch.empty(capacity, act_dim)
        self.delta = torch.empty(capacity, obs_dim)
        self.size = 0

    def __len__(self):
        return self.size

    def add(self, obs, act, following):
        end = self.size + len(obs)
        self.obs[self.size:end] = obs
        self.act[self.size:end] = act
        self.delta[self.size:end] = following - obs
        self.size = end

    def sample(self, n):
        idx = torch.randint(len(self), (n,))
        return self.obs[idx], self.act[idx], self.delta[idx]


class DynamicsEnsemble(nn.Module):
    def __init__(self, members, obs_dim, act_dim, hidden):
        super().__init__()
        self.members = nn.ModuleList(
            nn.Sequential(nn.Linear(obs_dim + act_dim, hidden), nn.SiLU(),
                          nn.Linear(hidden, hidden), nn.SiLU(),
                          nn.Linear(hidden, obs_dim))
            for _ in range(members))

    def forward(self, obs, act):
        x = torch.cat([obs, act], dim=1)
        return torch.stack([m(x) for m in self.members])


def recorded_drives(cfg, fleet, rng):
    """Logs of earlier drives under random commands."""
    seen, acts = [fleet.observe()], []
    for _ in range(cfg.logged_rounds):
        act = rng.uniform(-1, 1, (cfg.robots, 2))
        fleet.drive(act)
        acts.append(torch.from_numpy(act.astype(np.float32)))
        seen.append(fleet.observe())
    return torch.cat(seen[:-1]), torch.cat(acts), torch.cat(seen[1:])


@torch.no_grad()
def plan(model, obs, candidates):
    """Of some random commands take the one that promises the most free space ahead."""
    n = len(obs)
    act = torch.rand(candidates, 2) * 2 - 1
    rep = obs.repeat(candidates, 1)
    nxt = rep + model(rep, act.repeat_interleave(n, 0)).mean(0)
    free = nxt[:, 6:].amin(dim=1) + 0.1 * nxt[:, 4]
    return act[free.view(candidates, n).argmax(0)]


def run(cfg):
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    fleet = Bases(cfg, rng)
    logs = recorded_drives(cfg, fleet, rng)
    obs = fleet.observe()
    store = ReplayStore((cfg.logged_rounds + cfg.rounds) * cfg.robots, obs.shape[1], 2)
    store.add(*logs)
    del logs
    model = DynamicsEnsemble(cfg.members, obs.shape[1], 2, cfg.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)

    steps, losses = 0, []
    t0 = time.perf_counter()
    for turn in range(1, cfg.rounds + 1):
        act = plan(model, obs, cfg.candidates)
        explore = torch.rand(len(act), 1) < 0.5
        act = torch.where(explore, torch.rand_like(act) * 2 - 1, act)
        fleet.drive(act.numpy())
        following = fleet.observe()
        store.add(obs, act, following)
        obs = following
        for _ in range(cfg.updates_per_round):
            o, a, d = store.sample(cfg.batch)
            loss = (model(o, a) - d).pow(2).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            steps += 1
            losses.append(loss.item())
        if turn % cfg.report_every == 0:
            print(f"round {turn} stored {len(store)} loss {np.mean(losses):.5f}", flush=True)
            losses.clear()
    return time.perf_counter() - t0, steps


if __name__ == "__main__":
    elapsed, steps = run(Settings())
    print(f"loop_s={elapsed:.3f} steps={steps}")
