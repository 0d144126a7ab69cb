"""Self-play training for Connect Four in the manner of AlphaZero.

Several games run side by side; in every simulation each game sends one leaf to the network, so the leaves
are evaluated as a batch. After each move of all games, one optimizer step is made on the replay memory.
"""
import copy
import logging
import math
import time
from collections import deque

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

ROWS, COLS = 6, 7
logger = logging.getLogger("c4")

SETTINGS = dict(
    seed=21, steps=220, games=16, simulations=24, batch=128, memory=6000, width=32, blocks=2,
    lr=2e-3, weight_decay=1e-4, c_puct=1.5, dirichlet=0.8, explore=0.25, sampled_moves=8, log_every=50,
)


class Game:
    """Board from the view of two players, +1 and -1; the moves so far are kept for the game record."""

    def __init__(self):
        self.board = np.zeros((ROWS, COLS), dtype=np.int8)
        self.heights = [0] * COLS
        self.player = 1
        self.winner = None
        self.moves = []

    def legal(self):
        return [c for c in range(COLS) if self.heights[c] < ROWS]

    def play(self, col):
        row = self.heights[col]
        self.board[row, col] = self.player
        self.heights[col] = row + 1
        self.moves.append((self.player, col, row))
        if self._wins(row, col):
            self.winner = self.player
        elif len(self.moves) == ROWS * COLS:
            self.winner = 0
        self.player = -self.player

    def _wins(self, row, col):
        board, who = self.board, self.player
        for dr, dc in ((0, 1), (1, 0), (1, 1), (1, -1)):
            run = 1
            for sign in (1, -1):
                r, c = row + sign * dr, col + sign * dc
                while 0 <= r < ROWS and 0 <= c < COLS and board[r, c] == who:
                    run += 1
                    r, c = r + sign * dr, c + sign * dc
            if run >= 4:
                return True
        return False

    def planes(self):
        return np.stack([self.board == self.player, self.board == -self.player]).astype(np.float32)


class Node:
    __slots__ = ("prior", "visits", "total", "children")

    def __init__(self, prior):
        self.prior = prior
        self.visits = 0
        self.total = 0.0
        self.children = {}

    def best_child(self, c_puct):
        scale = c_puct * math.sqrt(self.visits + 1)
        best, best_score = None, -1e9
        for move, child in self.children.items():
            q = -child.total / child.visits if child.visits else 0.0
            score = q + scale * child.prior / (1 + child.visits)
            if score > best_score:
                best, best_score = (move, child), score
        return best


class PolicyValueNet(nn.Module):
    def __init__(self, width, blocks):
        super().__init__()
        self.stem = nn.Conv2d(2, width, 3, padding=1)
        self.convs = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(blocks))
        self.policy = nn.Linear(width * ROWS * COLS, COLS)
        self.value = nn.Sequential(nn.Linear(width * ROWS * COLS, 32), nn.ReLU(), nn.Linear(32, 1), nn.Tanh())

    def forward(self, x):
        h = F.relu(self.stem(x))
        for conv in self.convs:
            h = F.relu(h + conv(h))
        h = h.flatten(1)
        return self.policy(h), self.value(h).squeeze(1)


class SelfPlay:
    def __init__(self, net, cfg, rng):
        self.net, self.cfg, self.rng = net, cfg, rng
        self.games = [Game() for _ in range(cfg["games"])]
        self.records = [[] for _ in self.games]
        self.finished = 0

    @torch.inference_mode()
    def evaluate(self, games):
        logits, value = self.net(torch.from_numpy(np.stack([g.planes() for g in games])))
        return logits.softmax(1).tolist(), value.tolist()

    def expand(self, node, game, prior):
        legal = game.legal()
        norm = sum(prior[m] for m in legal) + 1e-8
        for m in legal:
            node.children[m] = Node(prior[m] / norm)

    def search(self):
        cfg = self.cfg
        roots = [Node(1.0) for _ in self.games]
        priors, _ = self.evaluate(self.games)
        for root, game, prior in zip(roots, self.games, priors):
            self.expand(root, game, prior)
            noise = self.rng.dirichlet([cfg["dirichlet"]] * len(root.children))
            for child, eps in zip(root.children.values(), noise):
                child.prior = (1 - cfg["explore"]) * child.prior + cfg["explore"] * eps
        for _ in range(cfg["simulations"]):
            leaves = []
            for root, game in zip(roots, self.games):
                state, node, path = copy.deepcopy(game), root, [root]
                while node.children:
                    move, node = node.best_child(cfg["c_puct"])
                    state.play(move)
                    path.append(node)
                leaves.append((state, node, path))
            priors, values = self.evaluate([leaf[0] for leaf in leaves])
            for (state, node, path), prior, value in zip(leaves, priors, values):
                if state.winner is None:
                    self.expand(node, state, prior)
                else:
                    value = 0.0 if state.winner == 0 else -1.0
                for visited in reversed(path):
                    visited.visits += 1
                    visited.total += value
                    value = -value
        return roots

    def move(self, memory):
        for i, root in enumerate(self.search()):
            game = self.games[i]
            target = np.zeros(COLS, dtype=np.float32)
            for m, child in root.children.items():
                target[m] = child.visits
            target /= target.sum()
            self.records[i].append((game.planes(), target, game.player))
            if len(game.moves) < self.cfg["sampled_moves"]:
                choice = self.rng.choice(COLS, p=target / target.sum(dtype=np.float64))
            else:
                choice = target.argmax()
            game.play(int(choice))
            if game.winner is not None:
                memory.extend((p, t, np.float32(game.winner * who)) for p, t, who in self.records[i])
                self.games[i], self.records[i] = Game(), []
                self.finished += 1


def sample(memory, n, rng):
    picks = [memory[i] for i in rng.integers(len(memory), size=n)]
    planes, targets, results = (np.stack(column) for column in zip(*picks))
    if rng.random() < 0.5:
        planes, targets = planes[..., ::-1].copy(), targets[:, ::-1].copy()
    return torch.from_numpy(planes), torch.from_numpy(targets), torch.from_numpy(results)


def main(cfg):
    logging.basicConfig(level=logging.INFO, format="%(name)s %(message)s")
    torch.manual_seed(cfg["seed"])
    torch.set_num_threads(1)
    rng = np.random.default_rng(cfg["seed"])
    net = PolicyValueNet(cfg["width"], cfg["blocks"])
    opt = torch.optim.AdamW(net.parameters(), lr=cfg["lr"], weight_decay=cfg["weight_decay"])
    memory = deque(maxlen=cfg["memory"])
    play = SelfPlay(net, cfg, rng)
    while len(memory) < cfg["batch"]:
        play.move(memory)

    begin = time.perf_counter()
    for step in range(1, cfg["steps"] + 1):
        play.move(memory)
        planes, targets, results = sample(memory, cfg["batch"], rng)
        logits, value = net(planes)
        policy_loss = F.cross_entropy(logits, targets)
        value_loss = F.mse_loss(value, results)
        opt.zero_grad(set_to_none=True)
        (policy_loss + value_loss).backward()
        opt.step()
        if step % cfg["log_every"] == 0:
            logger.info("step %d games %d memory %d policy %.3f value %.3f", step, play.finished, len(memory),
                        policy_loss.item(), value_loss.item())
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - begin, cfg["steps"]))


if __name__ == "__main__":
    main(SETTINGS)
