"""Quantile-regression DQN with prioritised replay for multi-product stock control."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Stores:
    """Many stores at once; each keeps one product with a lead time, seasonal demand and lost sales."""

    LEAD = 4

    def __init__(self, n, orders, rng):
        self.n, self.rng = n, rng
        self.sizes = np.arange(orders) * 4.0
        self.stock = rng.uniform(10, 60, n)
        self.pipe = np.zeros((n, self.LEAD))
        self.day = rng.integers(0, 365, n)
        self.rate = rng.uniform(4, 16, n)
        self.last = np.zeros((n, 7))

    def observe(self):
        season = 2 * np.pi * self.day / 365
        week = 2 * np.pi * self.day / 7
        return np.column_stack([
            self.stock / 50, self.pipe / 20, self.last / 20, np.sin(season), np.cos(season),
            np.sin(week), np.cos(week)]).astype(np.float32)

    def step(self, action):
        order = self.sizes[action]
        self.stock += self.pipe[:, 0]
        self.pipe[:, :-1] = self.pipe[:, 1:]
        self.pipe[:, -1] = order
        mean = self.rate * (1 + 0.5 * np.sin(2 * np.pi * self.day / 365)) * (1 + 0.3 * (self.day % 7 > 4))
        demand = self.rng.poisson(mean)
        sold = np.minimum(demand, self.stock)
        lost = demand - sold
        self.stock -= sold
        self.day += 1
        self.last[:, :-1] = self.last[:, 1:]
        self.last[:, -1] = sold
        cost = 0.02 * self.stock + 0.4 * lost + 0.1 * (order > 0)
        return self.observe(), ((0.3 * sold - cost) / 5).astype(np.float32)


class SumTreeReplay:
    def __init__(self, capacity, obs_dim, alpha, rng):
        self.capacity, self.alpha, self.rng = capacity, alpha, rng
        self.obs = np.zeros((capacity, obs_dim), np.float32)
        self.nxt = np.zeros((capacity, obs_dim), np.float32)
        self.act = np.zeros(capacity, np.int64)
        self.rew = np.zeros(capacity, np.float32)
        self.levels = int(np.log2(capacity))
        self.tree = np.zeros(2 * capacity)
        self.max_priority = 1.0
        self.pos = self.size = 0

    def add(self, obs, act, rew, nxt):
        where = (self.pos + np.arange(len(act))) % self.capacity
        self.obs[where], self.act[where], self.rew[where], self.nxt[where] = obs, act, rew, nxt
        self._set(where, self.max_priority)
        self.pos = (self.pos + len(act)) % self.capacity
        self.size = min(self.size + len(act), self.capacity)

    def _set(self, where, priority):
        """Write leaves of the sum tree and renew the sums above them."""
        node = where + self.capacity
        self.tree[node] = priority ** self.alpha
        for _ in range(self.levels):
            node = node >> 1
            self.tree[node] = self.tree[2 * node] + self.tree[2 * node + 1]

    def _find(self, mass):
        node = np.ones(len(mass), dtype=np.int64)
        for _ in range(self.levels):
            left = self.tree[2 * node]
            right = mass >= left
            mass = np.where(right, mass - left, mass)
            node = 2 * node + right
        return np.minimum(node - self.capacity, self.size - 1)

    def sample(self, n, beta):
        total = self.tree[1]
        idx = self._find(self.rng.random(n) * total)
        weight = (self.size * self.tree[idx + self.capacity] / total) ** -beta
        weight /= weight.max()
        batch = (self.obs[idx], self.act[idx], self.rew[idx], self.nxt[idx], weight.astype(np.float32))
        return idx, tuple(torch.from_numpy(b) for b in batch)

    def update(self, idx, error):
        new = np.abs(error) + 1e-3
        self._set(idx, new)
        self.max_priority = max(self.max_priority, float(new.max()))


class QRNet(nn.Module):
    def __init__(self, obs_dim, actions, quantiles, hidden):
        super().__init__()
        self.actions, self.quantiles = actions, quantiles
        self.net = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Linear(hidden, actions * quantiles))

    def forward(self, obs):
        return self.net(obs).view(-1, self.actions, self.quantiles)


def quantile_huber(pred, target, taus):
    """Loss and mean absolute error of each sample; pred (B, N), target (B, M)."""
    diff = target.unsqueeze(1) - pred.unsqueeze(2)
    huber = F.huber_loss(pred.unsqueeze(2).expand_as(diff), target.unsqueeze(1).expand_as(diff), reduction="none")
    weight = (taus[None, :, None] - (diff.detach() < 0).float()).abs()
    return (weight * huber).mean(2).sum(1), diff.detach().mean((1, 2))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--stores", type=int, default=32)
    ap.add_argument("--orders", type=int, default=9)
    ap.add_argument("--capacity", type=int, default=2 ** 17)
    ap.add_argument("--warmup", type=int, default=70_000)
    ap.add_argument("--steps", type=int, default=900)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--quantiles", type=int, default=32)
    ap.add_argument("--hidden", type=int, default=192)
    ap.add_argument("--gamma", type=float, default=0.95)
    ap.add_argument("--alpha", type=float, default=0.6)
    ap.add_argument("--lr", type=float, default=3e-4)
    ap.add_argument("--seed", type=int, default=2)
    a = ap.parse_args()

    rng = np.random.default_rng(a.seed)
    torch.manual_seed(a.seed)
    env = Stores(a.stores, a.orders, rng)
    obs = env.observe()
    replay = SumTreeReplay(a.capacity, obs.shape[1], a.alpha, rng)
    while replay.size < a.warmup:
        act = rng.integers(0, a.orders, a.stores)
        nxt, rew = env.step(act)
        replay.add(obs, act, rew, nxt)
        obs = nxt

    online = QRNet(obs.shape[1], a.orders, a.quantiles, a.hidden)
    target = QRNet(obs.shape[1], a.orders, a.quantiles, a.hidden)
    target.load_state_dict(online.state_dict())
    opt = torch.optim.Adam(online.parameters(), lr=a.lr)
    taus = (torch.arange(a.quantiles) + 0.5) / a.quantiles
    rows = torch.arange(a.batch)
    profit = 0.0

    t0 = time.perf_counter()
    for step in range(1, a.steps + 1):
        with torch.no_grad():
            act = online(torch.from_numpy(obs)).mean(2).argmax(1).numpy()
        random_move = rng.random(a.stores) < max(0.05, 1 - step / 500)
        act = np.where(random_move, rng.integers(0, a.orders, a.stores), act)
        nxt, rew = env.step(act)
        replay.add(obs, act, rew, nxt)
        obs = nxt
        profit += rew.mean()

        idx, (s, u, r, s2, w) = replay.sample(a.batch, beta=min(1.0, 0.4 + 0.6 * step / a.steps))
        with torch.no_grad():
            best = online(s2).mean(2).argmax(1)
            td_target = r[:, None] + a.gamma * target(s2)[rows, best]
        loss, error = quantile_huber(online(s)[rows, u], td_target, taus)
        opt.zero_grad(set_to_none=True)
        (loss * w).mean().backward()
        opt.step()
        replay.update(idx, error.numpy())
        if step % 200 == 0:
            target.load_state_dict(online.state_dict())
        if step % 100 == 0:
            print(f"step {step} profit/day {profit / 100:.3f} loss {loss.mean().item():.4f}")
            profit = 0.0
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={a.steps}")


if __name__ == "__main__":
    main()
