"""Drug-drug interaction link prediction: GCN encoder, weighted dot product scorer, corrupted tails."""
import argparse
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--nodes", type=int, default=2000)
parser.add_argument("--feat-dim", type=int, default=64)
parser.add_argument("--groups", type=int, default=12)
parser.add_argument("--iters", type=int, default=300)
parser.add_argument("--batch-size", type=int, default=4096)
parser.add_argument("--neg-per-pos", type=int, default=4)
parser.add_argument("--lr", type=float, default=3e-3)
parser.add_argument("--validate-every", type=int, default=60)
parser.add_argument("--seed", type=int, default=1)


def simulate(nodes, dim, groups, seed):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, nodes)
    mix = rng.random((groups, groups)) ** 4
    mix = (mix + mix.T) / 2
    centre = rng.normal(size=(groups, dim))
    x = centre[group] * 0.5 + rng.normal(size=(nodes, dim))
    src = rng.integers(0, nodes, 900_000)
    dst = rng.integers(0, nodes, 900_000)
    ok = (src < dst) & (rng.random(src.size) < 0.5 * mix[group[src], group[dst]])
    pairs = np.unique(np.stack([src[ok], dst[ok]], 1), axis=0)
    rng.shuffle(pairs)
    return torch.tensor(x, dtype=torch.float32), torch.from_numpy(pairs)


def gcn_matrix(pairs, n):
    loops = torch.arange(n)[:, None].expand(n, 2)
    ij = torch.cat([pairs, pairs.flip(1), loops])
    deg = torch.bincount(ij[:, 0], minlength=n).float()
    val = (deg[ij[:, 0]] * deg[ij[:, 1]]).rsqrt()
    return torch.sparse_coo_tensor(ij.t(), val, (n, n)).coalesce().to_sparse_csr()


class LinkModel(nn.Module):
    def __init__(self, dim, hidden=64, out=32, dropout=0.2):
        super().__init__()
        self.first = nn.Linear(dim, hidden)
        self.second = nn.Linear(hidden, out)
        self.drop = nn.Dropout(dropout)
        self.scale = nn.Parameter(torch.ones(out))
        self.bias = nn.Parameter(torch.zeros(1))

    def encode(self, a, x):
        h = torch.sparse.mm(a, self.first(x)).relu()
        return torch.sparse.mm(a, self.second(self.drop(h)))

    def decode(self, z, u, v):
        head = (z * self.scale).index_select(0, u)
        return (head * z.index_select(0, v)).sum(-1) + self.bias


class TailCorruption:
    """Draws tails at random and redraws only those that hit a known pair."""

    def __init__(self, pairs, n, seed):
        self.n = n
        u = torch.cat([pairs[:, 0], pairs[:, 1]])
        v = torch.cat([pairs[:, 1], pairs[:, 0]])
        diag = torch.arange(n)
        self.taken = torch.zeros(n, n, dtype=torch.bool)
        self.taken[u, v] = True
        self.taken[diag, diag] = True
        self.gen = torch.Generator().manual_seed(seed)

    def draw(self, heads, k):
        u = heads.repeat_interleave(k)
        v = torch.randint(self.n, u.shape, generator=self.gen)
        bad = self.taken[u, v].nonzero().squeeze(1)
        while bad.numel():
            v[bad] = torch.randint(self.n, bad.shape, generator=self.gen)
            bad = bad[self.taken[u[bad], v[bad]]]
        return u, v


def rank_auc(pos, neg):
    both = torch.cat([pos, neg])
    rank = torch.empty(len(both), dtype=torch.float64)
    rank[both.argsort()] = torch.arange(1, len(both) + 1, dtype=torch.float64)
    p, q = len(pos), len(neg)
    return float((rank[:p].sum() - p * (p + 1) / 2) / (p * q))


def batches(pairs, size):
    while True:
        perm = torch.randperm(len(pairs))
        for i in range(0, len(pairs) - size + 1, size):
            yield pairs[perm[i:i + size]]


@torch.no_grad()
def validate(model, a, x, val, val_neg):
    model.eval()
    z = model.encode(a, x)
    result = rank_auc(model.decode(z, val[:, 0], val[:, 1]), model.decode(z, *val_neg))
    model.train()
    return result


def train(cfg):
    torch.manual_seed(cfg.seed)
    x, pairs = simulate(cfg.nodes, cfg.feat_dim, cfg.groups, cfg.seed)
    held = len(pairs) // 10
    val, fit = pairs[:held], pairs[held:]
    a = gcn_matrix(fit, cfg.nodes)
    corrupt = TailCorruption(pairs, cfg.nodes, cfg.seed)
    val_neg = corrupt.draw(val[:, 0], 1)
    model = LinkModel(cfg.feat_dim)
    optim = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    print(f"{cfg.nodes} drugs, {len(fit)} training pairs, {held} held out")

    target = torch.zeros(cfg.batch_size * (1 + cfg.neg_per_pos))
    target[:cfg.batch_size] = 1.0
    weight = torch.where(target > 0, 1.0, 1.0 / cfg.neg_per_pos)
    stream, total = batches(fit, cfg.batch_size), 0.0
    begin = time.perf_counter()
    for it in range(1, cfg.iters + 1):
        pos = next(stream)
        nu, nv = corrupt.draw(pos[:, 0], cfg.neg_per_pos)
        z = model.encode(a, x)
        logits = model.decode(z, torch.cat([pos[:, 0], nu]), torch.cat([pos[:, 1], nv]))
        loss = F.binary_cross_entropy_with_logits(logits, target, weight)
        optim.zero_grad()
        loss.backward()
        optim.step()
        total += loss.item()
        if it % cfg.validate_every == 0:
            score = validate(model, a, x, val, val_neg)
            print(f"iter {it:4d}  loss {total / cfg.validate_every:.4f}  auc {score:.4f}")
            total = 0.0
    print(f"loop_s={time.perf_counter() - begin:.3f} steps={cfg.iters}")


if __name__ == "__main__":
    train(parser.parse_args())
