"""Value iteration network that learns to walk mazes from shortest paths; checked by walking unseen mazes."""
import argparse
import time
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


def make_maze(rng, size):
    """Walls with one goal; distances to the goal by breadth-first search (-1 where it can't be reached)."""
    wall = rng.random((size, size)) < 0.22
    wall[0, :] = wall[-1, :] = wall[:, 0] = wall[:, -1] = True
    free = np.argwhere(~wall)
    goal = tuple(free[rng.integers(len(free))])
    dist = np.full((size, size), -1)
    dist[goal] = 0
    queue = deque([goal])
    while queue:
        y, x = queue.popleft()
        for dy, dx in MOVES:
            if not wall[y + dy, x + dx] and dist[y + dy, x + dx] < 0:
                dist[y + dy, x + dx] = dist[y, x] + 1
                queue.append((y + dy, x + dx))
    return wall, goal, dist


def best_moves(wall, dist):
    """Index of a move that goes down in distance for each cell, -1 where there is none to learn."""
    around = np.stack([np.roll(dist, (-dy, -dx), (0, 1)) for dy, dx in MOVES]).astype(float)
    around[around < 0] = np.inf
    move = around.argmin(0)
    move[(dist <= 0) | wall] = -1
    return move


def mazes(n, size, seed):
    rng = np.random.default_rng(seed)
    maps = np.zeros((n, 2, size, size), np.float32)
    moves = np.zeros((n, size, size), np.int64)
    dists = np.zeros((n, size, size), np.int64)
    i = 0
    while i < n:
        wall, goal, dist = make_maze(rng, size)
        if (dist > 0).sum() < size * size // 3:
            continue
        maps[i, 0] = wall
        maps[i, 1][goal] = 1.0
        moves[i] = best_moves(wall, dist)
        dists[i] = dist
        i += 1
    return torch.from_numpy(maps), torch.from_numpy(moves), dists


class VIN(nn.Module):
    def __init__(self, iterations, hidden=32, channels=10):
        super().__init__()
        self.iterations = iterations
        self.reward = nn.Sequential(nn.Conv2d(2, hidden, 3, padding=1), nn.ReLU(), nn.Conv2d(hidden, 1, 1))
        self.q = nn.Conv2d(2, channels, 3, padding=1, bias=False)
        self.policy = nn.Conv2d(channels, 4, 1)

    def forward(self, maps):
        r = self.reward(maps)
        v = torch.zeros_like(r)
        for _ in range(self.iterations):
            v = self.q(torch.cat([r, v], 1)).amax(1, keepdim=True)
        return self.policy(self.q(torch.cat([r, v], 1)))


class Tester:
    """Walks each unseen maze from a fixed cell, some moves away from the goal, by the network's choice."""

    def __init__(self, maps, dists, max_moves):
        self.maps = maps
        self.dists = dists
        self.max_moves = max_moves
        self.starts = [divmod(int(np.abs(d - 8).argmin()), d.shape[1]) for d in dists]

    @torch.no_grad()
    def success(self, net):
        reached = 0
        choices = net(self.maps).argmax(1)
        for maze, moves, dist, (y, x) in zip(self.maps, choices, self.dists, self.starts):
            for _ in range(self.max_moves):
                dy, dx = MOVES[int(moves[y, x])]
                if maze[0, y + dy, x + dx] == 0:
                    y, x = y + dy, x + dx
                if dist[y, x] == 0:
                    reached += 1
                    break
        return reached / len(self.maps)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--size", type=int, default=18)
    ap.add_argument("--iterations", type=int, default=20)
    ap.add_argument("--train-mazes", type=int, default=500)
    ap.add_argument("--test-mazes", type=int, default=16)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--steps", type=int, default=180)
    ap.add_argument("--check-every", type=int, default=15)
    ap.add_argument("--seed", type=int, default=2)
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    maps, moves, _ = mazes(args.train_mazes, args.size, args.seed)
    test_maps, _, test_dists = mazes(args.test_mazes, args.size, args.seed + 1)
    tester = Tester(test_maps, test_dists, args.size)
    net = VIN(args.iterations)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=2e-3, alpha=0.98)

    t0 = time.perf_counter()
    for step in range(1, args.steps + 1):
        rows = torch.randint(0, len(maps), (args.batch,))
        loss = F.cross_entropy(net(maps[rows]), moves[rows], ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % args.check_every == 0:
            print(f"step {step} loss {loss.item():.3f} mazes solved {tester.success(net):.2f}")
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={args.steps}")


if __name__ == "__main__":
    main()
