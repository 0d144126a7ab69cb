"""Model-based control of a rover with range beams: learn the dynamics while planning with them (random shooting).

A log of earlier drives fills the replay first; every step drives a few simulated rovers and fits the model once.
"""
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn

N_BEAMS = 58
OBS = N_BEAMS + 6
ACT = 2


@dataclass
class Options:
    logged: int = 16_000
    rovers: int = 12
    steps: int = 480
    batch: int = 256
    hidden: int = 320
    horizon: int = 4
    candidates: int = 24
    lr: float = 7e-4
    seed: int = 41


class RoverYard:
    """A yard with round posts; all rovers are moved at once in numpy."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.n = n
        self.posts = self.rng.uniform(-9, 9, (14, 2))
        self.beams = np.linspace(-np.pi * 0.8, np.pi * 0.8, N_BEAMS)
        self.pose = np.concatenate([self.rng.uniform(-8, 8, (n, 2)), self.rng.uniform(-3, 3, (n, 1))], 1)
        self.motion = np.zeros((n, 2))
        self.goal = self.rng.uniform(-8, 8, (n, 2))

    def observe(self):
        offset = self.posts[None] - self.pose[:, None, :2]
        dist = np.linalg.norm(offset, axis=2)
        bearing = np.arctan2(offset[..., 1], offset[..., 0]) - self.pose[:, 2:]
        gap = bearing[:, None] - self.beams[None, :, None]
        gap = np.abs((gap + np.pi) % (2 * np.pi) - np.pi)
        seen = np.where(gap < np.arctan2(0.6, dist)[:, None], dist[:, None], 10.0)
        to_goal = self.goal - self.pose[:, :2]
        c, s = np.cos(self.pose[:, 2]), np.sin(self.pose[:, 2])
        ahead = to_goal[:, 0] * c + to_goal[:, 1] * s
        aside = to_goal[:, 1] * c - to_goal[:, 0] * s
        rest = np.stack([self.motion[:, 0], self.motion[:, 1], ahead / 10, aside / 10, c, s], 1)
        return np.concatenate([seen.min(2) / 10, rest], 1).astype(np.float32)

    def drive(self, action):
        self.motion = 0.8 * self.motion + 0.2 * np.clip(action, -1, 1)
        self.pose[:, 2] += 0.5 * self.motion[:, 1]
        self.pose[:, 0] += 0.4 * self.motion[:, 0] * np.cos(self.pose[:, 2])
        self.pose[:, 1] += 0.4 * self.motion[:, 0] * np.sin(self.pose[:, 2])
        self.pose[:, :2] = np.clip(self.pose[:, :2], -10, 10)
        there = np.linalg.norm(self.goal - self.pose[:, :2], axis=1) < 1.0
        self.goal[there] = self.rng.uniform(-8, 8, (int(there.sum()), 2))
        return self.observe(), int(there.sum())


class Transitions:
    def __init__(self, obs, act, nxt, room):
        self.filled = 0
        self.obs, self.act, self.nxt = (torch.zeros(len(obs) + room, x.shape[1]) for x in (obs, act, nxt))
        self.add(obs, act, nxt)

    def __len__(self):
        return self.filled

    def add(self, obs, act, nxt):
        end = self.filled + len(obs)
        self.obs[self.filled:end] = obs
        self.act[self.filled:end] = act
        self.nxt[self.filled:end] = nxt
        self.filled = end

    def sample(self, n):
        rows = torch.randint(0, len(self), (n,))
        return self.obs[rows], self.act[rows], self.nxt[rows]


class Dynamics(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(OBS + ACT, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(),
                                 nn.Linear(hidden, hidden), nn.SiLU(), nn.Linear(hidden, OBS))

    def forward(self, obs, act):
        return obs + self.net(torch.cat([obs, act], 1))


@torch.no_grad()
def plan(model, obs, opt):
    """First action of the best of random action sequences, for each rover."""
    n, k = len(obs), opt.candidates
    seq = torch.rand(opt.horizon, n * k, ACT) * 2 - 1
    state = obs.repeat_interleave(k, 0)
    cost = torch.zeros(n * k)
    for act in seq:
        state = model(state, act)
        cost += state[:, -4:-2].norm(dim=1) + 0.1 * (state[:, :N_BEAMS].amin(1) < 0.08)
    best = cost.view(n, k).argmin(1) + torch.arange(n) * k
    return seq[0, best]


def drives_from_log(opt):
    """Transitions that another controller (random steering) recorded."""
    yard = RoverYard(500, opt.seed + 1)
    obs, rows = yard.observe(), []
    for _ in range(opt.logged // yard.n):
        act = yard.rng.uniform(-1, 1, (yard.n, ACT)).astype(np.float32)
        nxt, _ = yard.drive(act)
        rows.append((obs, act, nxt))
        obs = nxt
    return [torch.from_numpy(np.concatenate(c)) for c in zip(*rows)]


def main(opt):
    torch.manual_seed(opt.seed)
    replay = Transitions(*drives_from_log(opt), room=opt.rovers * opt.steps)
    yard = RoverYard(opt.rovers, opt.seed)
    model = Dynamics(opt.hidden)
    optimizer = torch.optim.Adam(model.parameters(), lr=opt.lr)

    obs = torch.from_numpy(yard.observe())
    goals, loss_sum = 0, 0.0
    start = time.perf_counter()
    for step in range(1, opt.steps + 1):
        act = plan(model, obs, opt)
        seen, hits = yard.drive(act.numpy())
        nxt = torch.from_numpy(seen)
        replay.add(obs, act, nxt)
        obs = nxt
        goals += hits

        o, a, n = replay.sample(opt.batch)
        loss = nn.functional.smooth_l1_loss(model(o, a), n, beta=0.1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss_sum += loss.item()
        if step % 50 == 0:
            print(f"step {step}: model loss {loss_sum / 50:.5f}, goals {goals}, replay {len(replay)}")
            loss_sum = 0.0
    seconds = time.perf_counter() - start
    print(f"loop_s={seconds:.3f} steps={opt.steps}")


if __name__ == "__main__":
    main(Options())
