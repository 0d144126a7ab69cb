"""DQN on a small grid world with moving hazards."""
import collections
import copy
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SIDE = 8
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))


class Grid:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        cells = self.rng.permutation(SIDE * SIDE)[:6]
        self.me = divmod(int(cells[0]), SIDE)
        self.goal = divmod(int(cells[1]), SIDE)
        self.traps = [divmod(int(c), SIDE) for c in cells[2:]]
        self.t = 0
        return self.view()

    def view(self):
        v = np.zeros((3, SIDE, SIDE), dtype=np.float32)
        v[0][self.me] = 1
        v[1][self.goal] = 1
        for t in self.traps:
            v[2][t] = 1
        return v.reshape(-1)

    def step(self, a):
        dy, dx = MOVES[a]
        self.me = (min(max(self.me[0] + dy, 0), SIDE - 1), min(max(self.me[1] + dx, 0), SIDE - 1))
        self.t += 1
        if self.me == self.goal:
            return self.view(), 1.0, True
        if self.me in self.traps:
            return self.view(), -1.0, True
        return self.view(), -0.02, self.t >= 40


class Memory:
    def __init__(self, capacity, seed):
        self.items = collections.deque(maxlen=capacity)
        self.rng = random.Random(seed)

    def __len__(self):
        return len(self.items)

    def add(self, s, a, r, s2, done):
        self.items.append((s.tolist(), a, r, s2.tolist(), float(done)))

    def sample(self, n):
        rows = self.rng.sample(self.items, n)
        s, a, r, s2, d = zip(*rows)
        return (torch.tensor(s), torch.tensor(a), torch.tensor(r), torch.tensor(s2), torch.tensor(d))


class Agent:
    def __init__(self):
        self.q = nn.Sequential(nn.Linear(3 * SIDE * SIDE, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
                               nn.Linear(256, len(MOVES)))
        self.target = copy.deepcopy(self.q).requires_grad_(False)
        self.opt = torch.optim.Adam(self.q.parameters(), lr=5e-4)
        self.rng = random.Random(4)

    @torch.no_grad()
    def act(self, s, eps):
        if self.rng.random() < eps:
            return self.rng.randrange(len(MOVES))
        return int(self.q(torch.from_numpy(s)).argmax())

    def learn(self, batch):
        s, a, r, s2, d = batch
        with torch.no_grad():
            best = self.q(s2).argmax(1, keepdim=True)
            y = r + 0.97 * (1 - d) * self.target(s2).gather(1, best).squeeze(1)
        loss = F.smooth_l1_loss(self.q(s).gather(1, a[:, None]).squeeze(1), y)
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.q.parameters(), 10.0)
        self.opt.step()
        return loss.detach()


def main():
    torch.set_num_threads(1)
    torch.manual_seed(4)
    env, agent, memory = Grid(0), Agent(), Memory(8000, 1)
    s = env.reset()
    for _ in range(8000):
        a = agent.rng.randrange(4)
        s2, r, done = env.step(a)
        memory.add(s, a, r, s2, done)
        s = env.reset() if done else s2
    for _ in range(3):
        agent.learn(memory.sample(128))
    episodes, score, steps = 0, 0.0, 0
    t0 = time.perf_counter()
    for it in range(400):
        eps = max(0.1, 1 - it / 300)
        for _ in range(4):
            a = agent.act(s, eps)
            s2, r, done = env.step(a)
            memory.add(s, a, r, s2, done)
            score += r
            episodes += done
            s = env.reset() if done else s2
        loss = agent.learn(memory.sample(128))
        steps += 1
        if it % 50 == 49:
            agent.target.load_state_dict(agent.q.state_dict())
        if it % 100 == 99:
            print(f"update {it + 1} loss {loss.item():.4f} return {score / max(1, episodes):.3f}")
            episodes, score = 0, 0.0
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={steps}")


if __name__ == "__main__":
    main()
