import time
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_num_threads(1)
torch.manual_seed(10)

ENVS, HORIZON, MINIBATCHES, EPOCHS, ROUNDS = 16, 64, 4, 4, 25


class CartPoles:
    """A row of cart-poles stepped together."""

    def __init__(self, n, seed):
        self.rng = np.random.default_rng(seed)
        self.s = self.rng.uniform(-0.05, 0.05, size=(n, 4))
        self.t = np.zeros(n, dtype=int)

    def step(self, act):
        x, v, th, w = self.s.T
        force = np.where(act == 1, 10.0, -10.0)
        tmp = (force + 0.05 * w ** 2 * np.sin(th)) / 1.1
        acc = (9.8 * np.sin(th) - np.cos(th) * tmp) / (0.5 * (4 / 3 - 0.1 * np.cos(th) ** 2 / 1.1))
        lin = tmp - 0.05 * acc * np.cos(th) / 1.1
        self.s = np.stack([x + 0.02 * v, v + 0.02 * lin, th + 0.02 * w, w + 0.02 * acc], 1)
        self.t += 1
        done = (abs(self.s[:, 0]) > 2.4) | (abs(self.s[:, 2]) > 0.21) | (self.t >= 200)
        k = int(done.sum())
        if k:
            self.s[done] = self.rng.uniform(-0.05, 0.05, size=(k, 4))
            self.t[done] = 0
        return self.obs(), np.ones(len(done), dtype=np.float32), done

    def obs(self):
        return torch.from_numpy(self.s.astype(np.float32))


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(4, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 2))
        self.v = nn.Sequential(nn.Linear(4, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))

    def forward(self, o):
        return Categorical(logits=self.pi(o), validate_args=False), self.v(o).squeeze(-1)


env = CartPoles(ENVS, 0)
net = ActorCritic()
opt = torch.optim.Adam(net.parameters(), lr=3e-4, eps=1e-5)


@torch.no_grad()
def rollout():
    obs, acts, logp, vals, rews, dones = [], [], [], [], [], []
    o = env.obs()
    for _ in range(HORIZON):
        dist, v = net(o)
        a = dist.sample()
        obs.append(o)
        acts.append(a)
        logp.append(dist.log_prob(a))
        vals.append(v)
        o, r, d = env.step(a.numpy())
        rews.append(torch.from_numpy(r))
        dones.append(torch.from_numpy(d.astype(np.float32)))
    last = net(o)[1]
    adv, run = [None] * HORIZON, torch.zeros(ENVS)
    for t in reversed(range(HORIZON)):
        nxt = last if t == HORIZON - 1 else vals[t + 1]
        delta = rews[t] + 0.99 * nxt * (1 - dones[t]) - vals[t]
        run = delta + 0.99 * 0.95 * (1 - dones[t]) * run
        adv[t] = run
    adv, vals = torch.stack(adv), torch.stack(vals)
    flat = [torch.stack(z).flatten(0, 1) for z in (obs, acts, logp)]
    return (*flat, adv.flatten(), (adv + vals).flatten(), sum(d.sum().item() for d in dones))


def update(o, a, old, adv, ret):
    dist, v = net(o)
    adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    ratio = (dist.log_prob(a) - old).exp()
    pg = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
    loss = pg + 0.5 * (v - ret).square().mean() - 0.01 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
    opt.step()


def learn(data):
    n = ENVS * HORIZON
    count = 0
    for _ in range(EPOCHS):
        for ix in torch.randperm(n).chunk(MINIBATCHES):
            update(*[z[ix] for z in data[:5]])
            count += 1
    return count


learn(rollout())
steps = 0
t0 = time.perf_counter()
for r in range(ROUNDS):
    data = rollout()
    steps += learn(data)
    if r % 4 == 3:
        print(f"round {r + 1} mean episode length {ENVS * HORIZON / max(1, data[5]):.1f}")
print(f"loop_s={time.perf_counter() - t0:.3f} steps={steps}")
