#!/usr/bin/env python
"""Recurrent world model (RSSM) for a two-joint arm, learnt while the arm keeps moving.

A collector thread drives the (simulated) arm over its serial bus, 250 Hz, and stores what it saw;
the main thread trains the model on sub-sequences drawn from the store.
"""
import argparse
import collections
import threading
import time

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

Batch = collections.namedtuple("Batch", "obs act")


class SerialArm:
    """Two-link pendulum behind a serial bus: one exchange takes `period` seconds."""

    def __init__(self, period, seed):
        self.period = period
        self.rng = np.random.default_rng(seed)
        self.home()

    def home(self):
        self.q = self.rng.uniform(-1.0, 1.0, 2)
        self.dq = np.zeros(2)
        return self._read()

    def exchange(self, torque):
        time.sleep(self.period)
        g = np.array([np.sin(self.q[0]) + 0.5 * np.sin(self.q.sum()), 0.5 * np.sin(self.q.sum())])
        self.dq += 0.05 * (torque - g - 0.1 * self.dq)
        self.q += 0.05 * self.dq
        return self._read()

    def _read(self):
        clean = np.concatenate([np.cos(self.q), np.sin(self.q), self.dq, [np.cos(self.q.sum()), np.sin(self.q.sum())]])
        return (clean + self.rng.normal(0, 0.01, 8)).astype(np.float32)


class EpisodeStore:
    """Ring of episodes of equal length."""

    def __init__(self, capacity, length, obs_dim, act_dim):
        self.obs = np.zeros((capacity, length, obs_dim), np.float32)
        self.act = np.zeros((capacity, length, act_dim), np.float32)
        self.capacity, self.length = capacity, length
        self.count = 0
        self.lock = threading.Lock()

    def sample(self, rng, batch, horizon):
        with self.lock:
            ep = rng.integers(0, min(self.count, self.capacity), batch)
            start = rng.integers(0, self.length - horizon + 1, batch)
            t = start[:, None] + np.arange(horizon)
            obs, act = self.obs[ep[:, None], t], self.act[ep[:, None], t]
        return Batch(torch.from_numpy(obs).transpose(0, 1), torch.from_numpy(act).transpose(0, 1))


class Collector(threading.Thread):
    def __init__(self, arm, store, pause, seed):
        super().__init__(name="collector", daemon=True)
        self.arm, self.store, self.pause = arm, store, pause
        self.rng = np.random.default_rng(seed)
        self.halt = threading.Event()
        self.episodes = 0

    def torques(self, n):
        knots = self.rng.normal(0, 1.0, (n // 8 + 2, 2))
        return np.repeat(knots, 8, axis=0)[:n].astype(np.float32)

    def episode(self):
        store = self.store
        torque = self.torques(store.length)
        obs = self.arm.home()
        with store.lock:
            slot = store.count % store.capacity
            for t in range(store.length):
                store.obs[slot, t] = obs
                store.act[slot, t] = torque[t]
                obs = self.arm.exchange(torque[t])
            store.count += 1
        self.episodes += 1

    def run(self):
        while not self.halt.is_set():
            self.episode()
            self.halt.wait(self.pause)      # the arm swings back to rest


class RSSM(nn.Module):
    def __init__(self, obs_dim, act_dim, deter, stoch, hidden):
        super().__init__()
        self.deter, self.stoch = deter, stoch
        self.encode = nn.Sequential(nn.Linear(obs_dim, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU())
        self.inp = nn.Sequential(nn.Linear(stoch + act_dim, hidden), nn.ELU())
        self.cell = nn.GRUCell(hidden, deter)
        self.prior = nn.Sequential(nn.Linear(deter, hidden), nn.ELU(), nn.Linear(hidden, 2 * stoch))
        self.post = nn.Sequential(nn.Linear(deter + hidden, hidden), nn.ELU(), nn.Linear(hidden, 2 * stoch))
        self.decode = nn.Sequential(nn.Linear(deter + stoch, hidden), nn.ELU(), nn.Linear(hidden, obs_dim))

    @staticmethod
    def gaussian(stats):
        mean, raw = stats.chunk(2, -1)
        return mean, nn.functional.softplus(raw) + 0.1

    def forward(self, obs, act):
        T, B, _ = obs.shape
        emb = self.encode(obs)
        h = obs.new_zeros(B, self.deter)
        z = obs.new_zeros(B, self.stoch)
        hs, zs, post = [], [], []
        for t in range(T):
            prev = act[t - 1] if t else torch.zeros_like(act[0])
            h = self.cell(self.inp(torch.cat([z, prev], -1)), h)
            stats = self.post(torch.cat([h, emb[t]], -1))
            mean, std = self.gaussian(stats)
            z = mean + std * torch.randn_like(std)
            hs.append(h), zs.append(z), post.append(stats)
        hs, zs = torch.stack(hs), torch.stack(zs)
        q = Normal(*self.gaussian(torch.stack(post)), validate_args=False)
        p = Normal(*self.gaussian(self.prior(hs)), validate_args=False)
        recon = self.decode(torch.cat([hs, zs], -1))
        return recon, kl_divergence(q, p).sum(-1)


def main():
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--steps", type=int, default=110)
    ap.add_argument("--batch", type=int, default=96)
    ap.add_argument("--horizon", type=int, default=16)
    ap.add_argument("--episode-len", type=int, default=32)
    ap.add_argument("--pause", type=float, default=0.12)
    ap.add_argument("--prefill", type=int, default=6)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--free-nats", type=float, default=1.0)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    store = EpisodeStore(200, args.episode_len, 8, 2)
    collector = Collector(SerialArm(0.004, args.seed), store, args.pause, args.seed + 1)
    collector.start()
    while collector.episodes < args.prefill:
        time.sleep(0.05)

    model = RSSM(obs_dim=8, act_dim=2, deter=256, stoch=32, hidden=256)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr, eps=1e-5, fused=True)

    window = collections.deque(maxlen=20)
    begin = time.perf_counter()
    for step in range(1, args.steps + 1):
        batch = store.sample(rng, args.batch, args.horizon)
        recon, kl = model(batch.obs, batch.act)
        nll = 0.5 * ((recon - batch.obs) / 0.1).pow(2).sum(-1).mean()
        loss = nll + kl.mean().clamp(min=args.free_nats)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        opt.step()
        window.append(loss.detach())
        if step % 20 == 0:
            print(f"[{step:4d}] loss {torch.stack(list(window)).mean():9.3f}  kl {kl.mean():.2f}  "
                  f"episodes {collector.episodes}")
    took = time.perf_counter() - begin
    collector.halt.set()
    collector.join()
    print("loop_s=%.3f steps=%d" % (took, args.steps))


if __name__ == "__main__":
    main()
