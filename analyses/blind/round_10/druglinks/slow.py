"""Predict unknown drug-drug interactions from a graph of the known ones.

A two-layer GCN encodes every compound; a weighted dot product scores pairs.  For every known pair the
loss uses a few corrupted pairs (same head, another tail that is no known partner).
"""
import argparse
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def make_graph(n_drugs, n_feats, n_classes, seed):
    rng = np.random.default_rng(seed)
    cls = rng.integers(0, n_classes, n_drugs)
    affinity = rng.random((n_classes, n_classes)) ** 4
    affinity = (affinity + affinity.T) / 2
    proto = rng.normal(size=(n_classes, n_feats))
    feats = proto[cls] * 0.5 + rng.normal(size=(n_drugs, n_feats))
    a = rng.integers(0, n_drugs, 900_000)
    b = rng.integers(0, n_drugs, 900_000)
    keep = (a < b) & (rng.random(a.size) < 0.5 * affinity[cls[a], cls[b]])
    pairs = np.unique(np.stack([a[keep], b[keep]], 1), axis=0)
    rng.shuffle(pairs)
    return torch.tensor(feats, dtype=torch.float32), torch.from_numpy(pairs)


def normalized_adjacency(edges, n):
    both = torch.cat([edges, edges.flip(1), torch.arange(n).repeat(2, 1).t()])
    deg = torch.bincount(both[:, 0], minlength=n).float()
    w = deg[both[:, 0]].rsqrt() * deg[both[:, 1]].rsqrt()
    return torch.sparse_coo_tensor(both.t(), w, (n, n)).coalesce().to_sparse_csr()


class Encoder(nn.Module):
    def __init__(self, d_in, d_hid, d_out, p=0.2):
        super().__init__()
        self.l1 = nn.Linear(d_in, d_hid)
        self.l2 = nn.Linear(d_hid, d_out)
        self.p = p

    def forward(self, adj, x):
        h = F.relu(torch.sparse.mm(adj, self.l1(x)))
        h = F.dropout(h, self.p, self.training)
        return torch.sparse.mm(adj, self.l2(h))


class PairScorer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, z, heads, tails):
        left = (z * self.weight).index_select(0, heads)
        return (left * z.index_select(0, tails)).sum(-1) + self.bias


class NegativeSampler:
    def __init__(self, edges, n_nodes, seed):
        self.n = n_nodes
        self.known = set()
        for u, v in edges.tolist():
            self.known.add((u, v))
            self.known.add((v, u))
        self.rng = random.Random(seed)

    def __call__(self, heads, k):
        out_h, out_t = [], []
        for u in heads.tolist():
            for _ in range(k):
                v = self.rng.randrange(self.n)
                while v == u or (u, v) in self.known:
                    v = self.rng.randrange(self.n)
                out_h.append(u)
                out_t.append(v)
        return torch.tensor(out_h), torch.tensor(out_t)


def auc(pos, neg):
    s = torch.cat([pos, neg])
    rank = torch.empty(s.numel(), dtype=torch.float64)
    rank[s.argsort()] = torch.arange(1, s.numel() + 1, dtype=torch.float64)
    n, m = pos.numel(), neg.numel()
    return ((rank[:n].sum() - n * (n + 1) / 2) / (n * m)).item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--drugs", type=int, default=2000)
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--batch", type=int, default=4096)
    ap.add_argument("--negatives", type=int, default=4)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--eval-every", type=int, default=60)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    feats, edges = make_graph(args.drugs, 64, 12, args.seed)
    n_val = len(edges) // 10
    val, train = edges[:n_val], edges[n_val:]
    adj = normalized_adjacency(train, args.drugs)
    sampler = NegativeSampler(edges, args.drugs, args.seed)
    val_neg = sampler(val[:, 0], 1)
    enc, dec = Encoder(64, 64, 32), PairScorer(32)
    opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()], lr=args.lr)
    print(f"{args.drugs} drugs, {len(train)} training pairs, {n_val} held out")

    order, at, running = torch.randperm(len(train)), 0, 0.0
    t0 = time.perf_counter()
    for step in range(1, args.steps + 1):
        if at + args.batch > len(train):
            order, at = torch.randperm(len(train)), 0
        pos = train[order[at:at + args.batch]]
        at += args.batch
        neg_h, neg_t = sampler(pos[:, 0], args.negatives)

        z = enc(adj, feats)
        heads = torch.cat([pos[:, 0], neg_h])
        tails = torch.cat([pos[:, 1], neg_t])
        label = torch.zeros(len(heads))
        label[:len(pos)] = 1.0
        weight = torch.where(label > 0, 1.0, 1.0 / args.negatives)
        loss = F.binary_cross_entropy_with_logits(dec(z, heads, tails), label, weight)
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()

        if step % args.eval_every == 0:
            enc.eval()
            with torch.no_grad():
                z = enc(adj, feats)
                score = auc(dec(z, val[:, 0], val[:, 1]), dec(z, *val_neg))
            enc.train()
            print(f"step {step:4d}  loss {running / args.eval_every:.4f}  val auc {score:.4f}")
            running = 0.0
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={args.steps}")


if __name__ == "__main__":
    main()
