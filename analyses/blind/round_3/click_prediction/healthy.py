"""Click-through model (factorisation machine + small MLP) over hashed user, item and context ids."""
import argparse
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class ClickStream:
    """Impressions with popularity-skewed items and a long tail of users; clicks come from hidden factors."""

    def __init__(self, n_users, n_items, n_ctx, seed):
        self.n_users, self.n_items, self.n_ctx = n_users, n_items, n_ctx
        self.rng = np.random.default_rng(seed)
        self.user_f = self.rng.integers(-1, 2, size=(n_users, 4)).astype(np.int8)
        self.item_f = self.rng.normal(size=(n_items, 4)).astype(np.float32)

    def read(self, n):
        users = self.rng.integers(0, self.n_users, size=n)
        items = (self.n_items * self.rng.random(n) ** 3).astype(np.int64)
        ctx = self.rng.integers(0, self.n_ctx, size=(n, 3))
        score = (self.user_f[users] * self.item_f[items]).sum(1) + 0.1 * (ctx[:, 0] % 7) - 0.8
        y = self.rng.random(n) < 1 / (1 + np.exp(-1.5 * score))
        return (torch.from_numpy(users), torch.from_numpy(items), torch.from_numpy(ctx),
                torch.from_numpy(y.astype(np.float32)))


class ClickModel(nn.Module):
    def __init__(self, n_users, n_items, n_ctx, dim, hidden):
        super().__init__()
        self.user = nn.Embedding(n_users, dim, sparse=True)
        self.item = nn.Embedding(n_items, dim, sparse=True)
        self.ctx = nn.ModuleList([nn.Embedding(n_ctx, dim, sparse=True) for _ in range(3)])
        for e in (self.user, self.item, *self.ctx):
            nn.init.normal_(e.weight, std=0.05)
        self.deep = nn.Sequential(nn.Linear(5 * dim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                  nn.Linear(hidden, 1))

    def forward(self, users, items, ctx):
        fields = torch.stack([self.user(users), self.item(items)] + [e(ctx[:, k]) for k, e in enumerate(self.ctx)], 1)
        total = fields.sum(1)
        fm = 0.5 * (total.square() - fields.square().sum(1)).sum(1)
        return fm + self.deep(fields.flatten(1)).squeeze(1)

    def sparse_parameters(self):
        return [e.weight for e in (self.user, self.item, *self.ctx)]


class Coverage:
    """How much of the user and item space the training has visited so far."""

    def __init__(self, n_users, n_items):
        self.n_users, self.n_items = n_users, n_items
        self.users = torch.zeros(n_users, dtype=torch.bool)
        self.items = torch.zeros(n_items, dtype=torch.bool)

    def add(self, users, items):
        self.users[users] = True
        self.items[items] = True

    def report(self):
        return f"users {int(self.users.sum()) / self.n_users:.1%} items {int(self.items.sum()) / self.n_items:.1%}"


def auc(scores, y):
    order = scores.argsort()
    rank = torch.empty_like(scores)
    rank[order] = torch.arange(1, len(scores) + 1, dtype=scores.dtype)
    pos = y.sum()
    return ((rank[y > 0].sum() - pos * (pos + 1) / 2) / (pos * (len(y) - pos))).item()


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--users", type=int, default=1_500_000)
    ap.add_argument("--items", type=int, default=200_000)
    ap.add_argument("--contexts", type=int, default=1000)
    ap.add_argument("--dim", type=int, default=16)
    ap.add_argument("--hidden", type=int, default=256)
    ap.add_argument("--batch-size", type=int, default=4096)
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--report-every", type=int, default=50)
    ap.add_argument("--seed", type=int, default=17)
    return ap.parse_args()


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    stream = ClickStream(args.users, args.items, args.contexts, args.seed)
    model = ClickModel(args.users, args.items, args.contexts, args.dim, args.hidden)
    emb_opt = torch.optim.SGD(model.sparse_parameters(), lr=20.0)
    mlp_opt = torch.optim.Adam(model.deep.parameters(), lr=1e-3, fused=True)
    cover = Coverage(args.users, args.items)
    held_out = stream.read(20_000)

    t0 = time.perf_counter()
    losses = []
    for step in range(1, args.steps + 1):
        users, items, ctx, y = stream.read(args.batch_size)
        loss = F.binary_cross_entropy_with_logits(model(users, items, ctx), y)
        emb_opt.zero_grad()
        mlp_opt.zero_grad()
        loss.backward()
        emb_opt.step()
        mlp_opt.step()
        cover.add(users, items)
        losses.append(loss.detach())
        if step % args.report_every == 0:
            with torch.no_grad():
                a = auc(model(*held_out[:3]), held_out[3])
            recent = torch.stack(losses[-args.report_every:]).mean().item()
            print(f"step {step} logloss {recent:.4f} held-out auc {a:.4f} seen: {cover.report()}", flush=True)
    loop_s = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (loop_s, args.steps))


if __name__ == "__main__":
    main()
