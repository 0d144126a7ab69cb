"""Soft actor-critic on a vectorised planar reacher (own environment, numpy)."""
import argparse
import copy
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class PlanarReacher:
    """n copies of a 4-joint arm in the plane that has to bring its tip to a goal."""
    obs_dim, act_dim, horizon = 4 * 3 + 4, 4, 60

    def __init__(self, n, seed):
        self.n, self.rng = n, np.random.default_rng(seed)
        self.q = np.zeros((n, 4))
        self.dq = np.zeros((n, 4))
        self.goal = np.zeros((n, 2))
        self.t = np.zeros(n, dtype=np.int64)
        self._reset(np.ones(n, dtype=bool))

    def _reset(self, mask):
        k = int(mask.sum())
        self.q[mask] = self.rng.uniform(-0.3, 0.3, size=(k, 4))
        self.dq[mask] = 0.0
        r, a = self.rng.uniform(1.0, 3.5, size=k), self.rng.uniform(-math.pi, math.pi, size=k)
        self.goal[mask] = np.stack([r * np.cos(a), r * np.sin(a)], axis=1)
        self.t[mask] = self.rng.integers(0, 10, size=k)

    def _tip(self):
        ang = np.cumsum(self.q, axis=1)
        return np.stack([np.cos(ang).sum(1), np.sin(ang).sum(1)], axis=1)

    def observe(self):
        return np.concatenate([np.cos(self.q), np.sin(self.q), self.dq, self.goal,
                               self.goal - self._tip()], axis=1).astype(np.float32)

    def step(self, act):
        self.dq = 0.9 * self.dq + 0.3 * act
        self.q = self.q + 0.2 * self.dq
        dist = np.linalg.norm(self.goal - self._tip(), axis=1)
        reward = -dist - 0.01 * (act ** 2).sum(1)
        self.t += 1
        nxt, over = self.observe(), self.t >= self.horizon
        if over.any():
            self._reset(over)
        return nxt, reward.astype(np.float32), over


class Replay:
    def __init__(self, size, obs_dim, act_dim, seed):
        self.obs = torch.zeros(size, obs_dim)
        self.nxt = torch.zeros(size, obs_dim)
        self.act = torch.zeros(size, act_dim)
        self.rew = torch.zeros(size)
        self.size, self.head, self.full = size, 0, False
        self.gen = torch.Generator().manual_seed(seed)

    def put(self, obs, act, rew, nxt):
        n = len(obs)
        where = (self.head + torch.arange(n)) % self.size
        self.obs[where], self.act[where] = torch.from_numpy(obs), torch.from_numpy(act)
        self.rew[where], self.nxt[where] = torch.from_numpy(rew), torch.from_numpy(nxt)
        self.full |= self.head + n >= self.size
        self.head = (self.head + n) % self.size

    def draw(self, n):
        i = torch.randint(self.size if self.full else self.head, (n,), generator=self.gen)
        return self.obs[i], self.act[i], self.rew[i], self.nxt[i]


def net(n_in, hidden, n_out):
    return nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                         nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, n_out))


class Actor(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()
        self.body = net(obs_dim, hidden, 2 * act_dim)

    def forward(self, obs):
        mu, log_std = self.body(obs).chunk(2, dim=-1)
        std = log_std.clamp(-5, 2).exp()
        u = mu + std * torch.randn_like(mu)
        logp = (-0.5 * ((u - mu) / std) ** 2 - std.log() - 0.5 * math.log(2 * math.pi)).sum(-1)
        logp = logp - (2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)
        return torch.tanh(u), logp


class TwinCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()
        self.q1 = net(obs_dim + act_dim, hidden, 1)
        self.q2 = net(obs_dim + act_dim, hidden, 1)

    def forward(self, obs, act):
        x = torch.cat([obs, act], dim=-1)
        return self.q1(x).squeeze(-1), self.q2(x).squeeze(-1)


class SAC:
    def __init__(self, obs_dim, act_dim, args):
        self.gamma, self.tau = args.gamma, args.tau
        self.actor = Actor(obs_dim, act_dim, args.actor_hidden)
        self.critic = TwinCritic(obs_dim, act_dim, args.critic_hidden)
        self.target = copy.deepcopy(self.critic).requires_grad_(False)
        self.log_alpha = torch.tensor(math.log(0.1), requires_grad=True)
        self.entropy_goal = -float(act_dim)
        self.pi_opt = torch.optim.Adam(self.actor.parameters(), lr=args.lr, fused=True)
        self.q_opt = torch.optim.Adam(self.critic.parameters(), lr=args.lr, fused=True)
        self.a_opt = torch.optim.Adam([self.log_alpha], lr=args.lr)

    @torch.no_grad()
    def act(self, obs):
        return self.actor(torch.from_numpy(obs))[0].numpy()

    def update(self, obs, act, rew, nxt):
        alpha = self.log_alpha.detach().exp()
        with torch.no_grad():
            a2, lp2 = self.actor(nxt)
            backup = rew + self.gamma * (torch.min(*self.target(nxt, a2)) - alpha * lp2)
        q1, q2 = self.critic(obs, act)
        q_loss = F.mse_loss(q1, backup) + F.mse_loss(q2, backup)
        self.q_opt.zero_grad()
        q_loss.backward()
        self.q_opt.step()

        self.critic.requires_grad_(False)
        a, lp = self.actor(obs)
        pi_loss = (alpha * lp - torch.min(*self.critic(obs, a))).mean()
        self.pi_opt.zero_grad()
        pi_loss.backward()
        self.pi_opt.step()
        self.critic.requires_grad_(True)

        a_loss = -(self.log_alpha * (lp.detach() + self.entropy_goal).mean())
        self.a_opt.zero_grad()
        a_loss.backward()
        self.a_opt.step()

        with torch.no_grad():
            torch._foreach_lerp_(list(self.target.parameters()), list(self.critic.parameters()), self.tau)
        return q_loss.detach(), pi_loss.detach()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iterations", type=int, default=200)
    ap.add_argument("--envs", type=int, default=16)
    ap.add_argument("--batch", type=int, default=512)
    ap.add_argument("--actor-hidden", type=int, default=128)
    ap.add_argument("--critic-hidden", type=int, default=384)
    ap.add_argument("--gamma", type=float, default=0.97)
    ap.add_argument("--tau", type=float, default=0.01)
    ap.add_argument("--lr", type=float, default=7e-4)
    ap.add_argument("--seed", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    env = PlanarReacher(args.envs, args.seed)
    replay = Replay(50_000, env.obs_dim, env.act_dim, args.seed)
    agent = SAC(env.obs_dim, env.act_dim, args)

    obs = env.observe()
    for _ in range(100):
        act = env.rng.uniform(-1, 1, size=(args.envs, env.act_dim)).astype(np.float32)
        nxt, rew, _ = env.step(act)
        replay.put(obs, act, rew, nxt)
        obs = env.observe()

    window, t0 = [], time.perf_counter()
    for it in range(1, args.iterations + 1):
        act = agent.act(obs)
        nxt, rew, over = env.step(act)
        replay.put(obs, act, rew, nxt)
        obs = env.observe() if over.any() else nxt
        window.append(rew.mean())
        q_loss, pi_loss = agent.update(*replay.draw(args.batch))
        if it % 50 == 0:
            print(f"it {it:5d}  reward {np.mean(window[-50:]):7.3f}  q {q_loss.item():.4f}  "
                  f"pi {pi_loss.item():.3f}  alpha {agent.log_alpha.exp().item():.3f}", flush=True)
    loop_s = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (loop_s, args.iterations))


if __name__ == "__main__":
    main()
