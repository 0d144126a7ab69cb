# Nexting on a wheeled robot: many general value functions learnt at once from one stream of sensor data.
# Linear predictions over tile-coded features, TD(lambda) with replacing traces, continuing task (no episodes).
import time
from dataclasses import dataclass, field

import numpy as np
import torch

torch.set_num_threads(1)
torch.manual_seed(0)


@dataclass
class Config:
    n_sensors: int = 32
    gammas: tuple = (0.5, 0.7, 0.8)
    lam: float = 0.9
    n_features: int = 98304
    tilings_per_group: int = 8
    groups: int = 24
    alpha: float = 0.1
    burn_in: int = 150
    steps: int = 520
    report: int = 130
    seed: int = 3


class Robot:
    """Drives around a lit pen with walls; returns sensor readings in [0, 1]."""

    def __init__(self, n_sensors, seed):
        self.rng = np.random.default_rng(seed)
        self.n = n_sensors
        self.pos = np.array([0.3, 0.7])
        self.heading = 0.0
        self.freq = self.rng.uniform(1.0, 9.0, size=(n_sensors, 2))
        self.phase = self.rng.uniform(0, 2 * np.pi, size=n_sensors)
        self.temperature = 0.2

    def step(self):
        self.heading += self.rng.normal(0, 0.5)
        self.pos = self.pos + 0.05 * np.array([np.cos(self.heading), np.sin(self.heading)])
        if (self.pos < 0).any() or (self.pos > 1).any():
            self.heading += np.pi * 0.6
            self.pos = np.clip(self.pos, 0, 1)
        self.temperature += 0.002 * (self.rng.random() - self.temperature)
        s = 0.5 + 0.4 * np.sin(self.freq @ self.pos * 2 + self.phase + 0.7 * self.heading)
        s = s + self.rng.normal(0, 0.05, size=self.n)
        s[0] = self.temperature
        return np.clip(s, 0, 1)


class TileCoder:
    """Hashed tilings over pairs of sensors, plus a bias feature."""

    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed + 1)
        self.size = cfg.n_features
        self.pairs = np.stack([rng.permutation(cfg.n_sensors)[:2] for _ in range(cfg.groups)])
        self.offsets = rng.uniform(0, 1, size=(cfg.groups, cfg.tilings_per_group, 2))
        self.salt = rng.integers(1, 2 ** 31, size=(cfg.groups, cfg.tilings_per_group))
        self.res = 10

    def __call__(self, s):
        xy = s[self.pairs][:, None, :] * self.res + self.offsets
        cell = np.floor(xy).astype(np.int64)
        h = cell[..., 0] * 73856093 ^ cell[..., 1] * 19349663 ^ self.salt
        idx = np.unique(h.reshape(-1) % (self.size - 1)) + 1
        return torch.from_numpy(np.concatenate([[0], idx]))


class TDLambda(torch.optim.Optimizer):
    """True to the textbook: e <- gamma*lambda*e, e[active] = 1, w <- w + alpha*delta*e."""

    def __init__(self, weight, gamma, lam, alpha):
        super().__init__([weight], dict(alpha=alpha))
        self.decay = (gamma * lam).unsqueeze(1)
        self.state[weight]["trace"] = torch.zeros_like(weight)

    @torch.no_grad()
    def step(self, delta, active):
        group = self.param_groups[0]
        w = group["params"][0]
        e = self.state[w]["trace"]
        e.mul_(self.decay)
        e.index_fill_(1, active, 1.0)
        w.addcmul_(e, delta.unsqueeze(1), value=group["alpha"] / len(active))


class Horde:
    """One demon per (sensor, gamma): predicts the discounted sum of that sensor."""

    def __init__(self, cfg):
        self.cfg = cfg
        g = torch.tensor(cfg.gammas)
        self.gamma = g.repeat(cfg.n_sensors)
        self.sensor = torch.arange(cfg.n_sensors).repeat_interleave(len(cfg.gammas))
        self.w = torch.nn.Parameter(torch.zeros(len(self.gamma), cfg.n_features), requires_grad=False)
        self.opt = TDLambda(self.w, self.gamma, cfg.lam, cfg.alpha)

    def predict(self, active):
        return self.w.index_select(1, active).sum(1)

    def learn(self, active, v, cumulant, nxt):
        v_next = self.predict(nxt)
        delta = cumulant[self.sensor] * (1 - self.gamma) + self.gamma * v_next - v
        self.opt.step(delta, active)
        return delta


@dataclass
class Tracker:
    err: list = field(default_factory=list)

    def add(self, delta):
        self.err.append(delta.square().mean().sqrt().item())

    def flush(self):
        m = float(np.mean(self.err))
        self.err.clear()
        return m


def main():
    cfg = Config()
    robot, coder, horde, tracker = Robot(cfg.n_sensors, cfg.seed), TileCoder(cfg), Horde(cfg), Tracker()
    s = robot.step()
    active = coder(s)
    for _ in range(cfg.burn_in):  # fill the traces before the clock starts
        s = robot.step()
        nxt = coder(s)
        horde.learn(active, horde.predict(active), torch.from_numpy(s).float(), nxt)
        active = nxt

    t0 = time.perf_counter()
    for t in range(1, cfg.steps + 1):
        s = robot.step()
        nxt = coder(s)
        v = horde.predict(active)
        delta = horde.learn(active, v, torch.from_numpy(s).float(), nxt)
        tracker.add(delta)
        active = nxt
        if t % cfg.report == 0:
            print(f"t={t:6d}  rms td error {tracker.flush():.4f}  |w| {horde.w.norm().item():.3f}", flush=True)
    dt = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (dt, cfg.steps))


if __name__ == "__main__":
    main()
