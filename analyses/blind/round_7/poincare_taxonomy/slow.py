#!/usr/bin/env python
# Poincare embeddings of a product taxonomy (Nickel & Kiela): edges to ancestors against sampled negatives,
# Riemannian SGD with burn-in.
import argparse
import sys
import time

import numpy as np
import torch
from torch import nn

EPS = 1e-5


def grow_taxonomy(n_nodes, branching, rng):
    """Parent of every node; node 0 is the root. New nodes prefer shallow parents."""
    parent = np.zeros(n_nodes, dtype=np.int64)
    parent[1:branching + 1] = 0
    for i in range(branching + 1, n_nodes):
        parent[i] = rng.integers(max(1, i // branching), max(2, i // 2))
    return parent


def transitive_closure(parent):
    pairs = []
    child = np.arange(1, len(parent))
    ancestor = parent[child]
    while len(child):
        pairs.append(np.stack([child, ancestor], axis=1))
        alive = ancestor != 0
        child, ancestor = child[alive], parent[ancestor[alive]]
    return np.concatenate(pairs)


class DistanceFunction(torch.autograd.Function):
    """Hyperbolic distance in the Poincare ball with an analytic, numerically safe gradient."""

    @staticmethod
    def forward(ctx, u, v):
        alpha = (1 - u.square().sum(-1)).clamp_min(EPS)
        beta = (1 - v.square().sum(-1)).clamp_min(EPS)
        gap = (u - v).square().sum(-1)
        gamma = 1 + 2 * gap / (alpha * beta)
        ctx.save_for_backward(u, v, alpha, beta, gap, gamma)
        return torch.acosh(gamma.clamp_min(1 + EPS))

    @staticmethod
    def backward(ctx, grad):
        u, v, alpha, beta, gap, gamma = ctx.saved_tensors
        root = (gamma.square() - 1).clamp_min(EPS).sqrt()
        factor = (grad * 4 / (root * alpha * beta)).unsqueeze(-1)
        diff = u - v
        gu = factor * (diff + u * (gap / alpha).unsqueeze(-1))
        gv = factor * (v * (gap / beta).unsqueeze(-1) - diff)
        return gu, gv


class PoincareEmbedding(nn.Module):
    def __init__(self, n_nodes, dim):
        super().__init__()
        self.table = nn.Embedding(n_nodes, dim)
        nn.init.uniform_(self.table.weight, -1e-3, 1e-3)

    def forward(self, children, candidates):
        """children [B], candidates [B, 1 + negatives] -> distances [B, 1 + negatives]"""
        u = self.table(children).unsqueeze(1)
        v = self.table(candidates)
        return DistanceFunction.apply(u.expand_as(v), v)


class RiemannianSGD(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                scale = (1 - p.square().sum(-1, keepdim=True)).square() / 4
                p.addcmul_(p.grad, scale, value=-group["lr"])
                norm = p.norm(dim=-1, keepdim=True)
                p.mul_(torch.where(norm >= 1, (1 - EPS) / norm, 1.0))


class EdgeSampler:
    def __init__(self, edges, n_nodes, batch, negatives, generator):
        self.edges = torch.from_numpy(edges)
        self.n_nodes, self.batch, self.negatives = n_nodes, batch, negatives
        self.generator = generator

    def __iter__(self):
        while True:
            order = torch.randperm(len(self.edges), generator=self.generator)
            for at in range(0, len(order) - self.batch + 1, self.batch):
                pairs = self.edges[order[at:at + self.batch]]
                noise = torch.randint(self.n_nodes, (self.batch, self.negatives), generator=self.generator)
                yield pairs[:, 0], torch.cat([pairs[:, 1:], noise], dim=1)


@torch.no_grad()
def mean_rank(model, edges):
    """Rank of the true ancestor among all nodes, by distance, on a sample of edges."""
    ranks = []
    weight = model.table.weight
    beta = (1 - weight.square().sum(-1)).clamp_min(EPS)
    for chunk in edges.split(16):
        u = weight[chunk[:, 0]]
        alpha = (1 - u.square().sum(-1, keepdim=True)).clamp_min(EPS)
        gap = torch.cdist(u, weight).square() / (alpha * beta)
        true = gap.gather(1, chunk[:, 1:])
        ranks.append((gap < true).sum(1))
    return torch.cat(ranks).float().mean().item()


def main(argv=None):
    ap = argparse.ArgumentParser(description=__doc__)
    ap.add_argument("--nodes", type=int, default=120_000)
    ap.add_argument("--branching", type=int, default=12)
    ap.add_argument("--dim", type=int, default=16)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--negatives", type=int, default=40)
    ap.add_argument("--steps", type=int, default=1600)
    ap.add_argument("--burn-in", type=int, default=100)
    ap.add_argument("--lr", type=float, default=8.0)
    ap.add_argument("--eval-every", type=int, default=400)
    ap.add_argument("--seed", type=int, default=8)
    args = ap.parse_args(argv)

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    edges = transitive_closure(grow_taxonomy(args.nodes, args.branching, rng))
    probe = torch.from_numpy(edges[rng.choice(len(edges), 64, replace=False)])
    print(f"{args.nodes} nodes, {len(edges)} edges in the closure", file=sys.stderr)

    model = PoincareEmbedding(args.nodes, args.dim)
    optimizer = RiemannianSGD(model.parameters(), lr=args.lr / 10)
    sampler = EdgeSampler(edges, args.nodes, args.batch, args.negatives, torch.Generator().manual_seed(args.seed))
    target = torch.zeros(args.batch, dtype=torch.long)
    batches = iter(sampler)
    next(batches)

    start = time.perf_counter()
    for step, (children, candidates) in zip(range(1, args.steps + 1), batches):
        if step == args.burn_in:
            optimizer.param_groups[0]["lr"] = args.lr
        loss = nn.functional.cross_entropy(-model(children, candidates), target)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % args.eval_every == 0:
            print(f"step {step} loss {loss.item():.4f} mean rank {mean_rank(model, probe):.0f}", file=sys.stderr)
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - start, args.steps))


if __name__ == "__main__":
    main()
