"""DAgger: a policy with only onboard sensing imitates a controller that knows the full state (lander in gusts)."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn


def build_args():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--envs", type=int, default=64)
    p.add_argument("--horizon", type=int, default=8)
    p.add_argument("--iterations", type=int, default=350)
    p.add_argument("--memory", type=int, default=24, help="past readings the policy sees")
    p.add_argument("--batch", type=int, default=1024)
    p.add_argument("--hidden", type=int, default=256)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--beta-half", type=float, default=40, help="iterations in which the controller's share halves")
    p.add_argument("--seed", type=int, default=0)
    return p.parse_args()


class Landers:
    """Batch of planar landers. State: x, z, vx, vz, tilt, spin; the gust is hidden from the policy."""

    readings = 8

    def __init__(self, n, memory, rng, dt=0.05):
        self.n, self.memory, self.rng, self.dt = n, memory, rng, dt
        self.s = np.zeros((n, 6), np.float32)
        self.gust = np.zeros(n, np.float32)
        self.age = np.zeros(n, np.int64)
        self.hist = np.zeros((n, memory, self.readings), np.float32)
        self.reset(np.ones(n, bool))

    def reset(self, mask):
        k = int(mask.sum())
        if k == 0:
            return
        self.s[mask] = self.rng.normal(0, 1, (k, 6)) * [3, 1, 0.6, 0.4, 0.2, 0.1] + [0, 8, 0, -0.5, 0, 0]
        self.gust[mask] = 0
        self.age[mask] = 0
        self.hist[mask] = 0
        self.observe()

    def observe(self):
        x, z, vx, vz, tilt, spin = self.s.T
        r = np.stack([x / 5, z / 8, vx, vz, np.sin(tilt), np.cos(tilt), spin, self.age / 200], 1)
        r += self.rng.normal(0, 0.02, r.shape)
        self.hist = np.roll(self.hist, -1, axis=1)
        self.hist[:, -1] = r

    def obs(self):
        return self.hist.reshape(self.n, -1).copy()

    def controller(self):
        x, z, vx, vz, tilt, spin = self.s.T
        want = np.clip(-0.15 * x - 0.5 * vx - 0.3 * self.gust, -0.5, 0.5)
        torque = 4 * (want - tilt) - 2 * spin
        lift = 1.0 + 0.6 * (-0.12 * z - vz)
        return np.stack([np.clip(lift, 0, 2), np.clip(torque, -2, 2)], 1).astype(np.float32)

    def step(self, act):
        lift, torque = np.clip(act[:, 0], 0, 2), np.clip(act[:, 1], -2, 2)
        self.gust += self.dt * (-0.5 * self.gust) + 0.25 * np.sqrt(self.dt) * self.rng.standard_normal(self.n)
        tilt = self.s[:, 4]
        acc = np.stack([lift * np.sin(tilt) + self.gust, lift * np.cos(tilt) - 1.0, torque], 1)
        self.s[:, [2, 3, 5]] += self.dt * acc
        self.s[:, [0, 1, 4]] += self.dt * self.s[:, [2, 3, 5]]
        self.age += 1
        down = self.s[:, 1] <= 0
        lost = (np.abs(self.s[:, 0]) > 15) | (self.s[:, 1] > 20) | (np.abs(tilt) > 1.5) | (self.age > 300)
        soft = down & (np.abs(self.s[:, 3]) < 0.8) & (np.abs(self.s[:, 0]) < 2)
        self.observe()
        over = down | lost
        self.reset(over)
        return int(over.sum()), int(soft.sum())


class Aggregate:
    """All readings visited so far, with what the controller would have done."""

    def __init__(self, obs_dim, act_dim):
        self.obs = np.empty((0, obs_dim), np.float32)
        self.act = np.empty((0, act_dim), np.float32)

    def __len__(self):
        return len(self.obs)

    def add(self, obs, act):
        self.obs = np.concatenate([self.obs, obs])
        self.act = np.concatenate([self.act, act])

    def sample(self, rng, n):
        i = rng.integers(0, len(self), n)
        return torch.from_numpy(self.obs[i]), torch.from_numpy(self.act[i])


class Policy(nn.Module):
    def __init__(self, obs_dim, hidden):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.LayerNorm(hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, 2),
        )

    def forward(self, x):
        return self.body(x) + torch.tensor([1.0, 0.0])


def rollout(env, policy, agg, horizon, beta, rng):
    over = soft = 0
    seen, taught = [], []
    for _ in range(horizon):
        obs, teach = env.obs(), env.controller()
        with torch.inference_mode():
            mine = policy(torch.from_numpy(obs)).numpy()
        use_teacher = rng.random((env.n, 1)) < beta
        seen.append(obs)
        taught.append(teach)
        o, s = env.step(np.where(use_teacher, teach, mine))
        over, soft = over + o, soft + s
    agg.add(np.concatenate(seen), np.concatenate(taught))
    return over, soft


def main():
    a = build_args()
    rng = np.random.default_rng(a.seed)
    torch.manual_seed(a.seed)
    env = Landers(a.envs, a.memory, rng)
    dim = a.memory * Landers.readings
    agg, policy = Aggregate(dim, 2), Policy(dim, a.hidden)
    opt = torch.optim.Adam(policy.parameters(), lr=a.lr, fused=True)

    over = soft = 0
    begin = time.perf_counter()
    for it in range(1, a.iterations + 1):
        beta = 0.5 ** (it / a.beta_half)
        o, s = rollout(env, policy, agg, a.horizon, beta, rng)
        over, soft = over + o, soft + s
        obs, act = agg.sample(rng, a.batch)
        loss = nn.functional.mse_loss(policy(obs), act)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if it % 50 == 0:
            print(f"iter {it:4d}  data {len(agg):7d}  loss {loss.item():.4f}  ended {over}  soft landings {soft}")
            over = soft = 0
    loop = time.perf_counter() - begin
    print("loop_s=%.3f steps=%d" % (loop, a.iterations))


if __name__ == "__main__":
    main()
