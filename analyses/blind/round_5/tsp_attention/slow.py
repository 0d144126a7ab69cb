"""Attention model for the travelling salesman (Kool et al.), REINFORCE with a greedy rollout baseline."""
import argparse
import copy
import csv
import gc
import os
import sys
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads, ff):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, ff), nn.ReLU(), nn.Linear(ff, dim))

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, d)
        x = self.n1(x + self.proj(a))
        return self.n2(x + self.ff(x))


class TourPolicy(nn.Module):
    def __init__(self, dim=96, heads=8, layers=3, ff=384, clip=10.0):
        super().__init__()
        self.inp = nn.Linear(2, dim)
        self.layers = nn.ModuleList(EncoderLayer(dim, heads, ff) for _ in range(layers))
        self.keys = nn.Linear(dim, dim, bias=False)
        self.context = nn.Linear(2 * dim, dim, bias=False)
        self.graph = nn.Linear(dim, dim, bias=False)
        self.start = nn.Parameter(torch.randn(2 * dim) * 0.05)
        self.clip = clip

    def forward(self, xy, greedy):
        b, n, _ = xy.shape
        h = self.inp(xy)
        for layer in self.layers:
            h = layer(h)
        keys, graph = self.keys(h), self.graph(h.mean(1))
        visited = torch.zeros(b, n, dtype=torch.bool)
        rows = torch.arange(b)
        ctx = self.start.expand(b, -1)
        first = None
        tour, logps = [], []
        for _ in range(n):
            q = graph + self.context(ctx)
            u = torch.bmm(keys, q.unsqueeze(-1)).squeeze(-1) / keys.shape[-1] ** 0.5
            logp = (self.clip * torch.tanh(u)).masked_fill(visited, float("-inf")).log_softmax(-1)
            pick = logp.argmax(-1) if greedy else torch.multinomial(logp.exp(), 1).squeeze(-1)
            if not greedy:
                logps.append(logp[rows, pick])
            visited = visited.scatter(1, pick.unsqueeze(1), True)
            here = h[rows, pick]
            first = here if first is None else first
            ctx = torch.cat([first, here], -1)
            tour.append(pick)
        tour = torch.stack(tour, 1)
        return tour_length(xy, tour), (torch.stack(logps, 1).sum(1) if logps else None)


def tour_length(xy, tour):
    path = xy.gather(1, tour.unsqueeze(-1).expand(-1, -1, 2))
    return (path - path.roll(-1, 1)).norm(dim=-1).sum(1)


class Baseline:
    """Frozen greedy copy of the policy, replaced when the policy is clearly better."""

    def __init__(self, policy, cities, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.problems = torch.rand(size, cities, 2, generator=g)
        self.adopt(policy)

    @torch.no_grad()
    def adopt(self, policy):
        self.model = copy.deepcopy(policy).eval()
        self.costs = self.model(self.problems, greedy=True)[0]

    @torch.no_grad()
    def __call__(self, xy):
        return self.model(xy, greedy=True)[0]

    @torch.no_grad()
    def challenge(self, policy):
        costs = policy(self.problems, greedy=True)[0]
        diff = costs - self.costs
        t = diff.mean() / (diff.std() / len(diff) ** 0.5 + 1e-9)
        if t < -1.65:
            self.model, self.costs = copy.deepcopy(policy).eval(), costs
            return True
        return False


class RunLog:
    def __init__(self, path):
        self.file = open(path, "w", newline="")
        self.csv = csv.writer(self.file)
        self.csv.writerow(["step", "cost", "baseline", "loss", "grad"])

    def row(self, *values):
        self.csv.writerow(values)
        self.file.flush()
        os.fsync(self.file.fileno())


def train(args):
    torch.manual_seed(args.seed)
    policy = TourPolicy()
    baseline = Baseline(policy, args.cities, 128, args.seed + 1)
    opt = torch.optim.Adam(policy.parameters(), lr=args.lr, fused=True)
    gen = torch.Generator().manual_seed(args.seed + 2)
    history = []
    with tempfile.TemporaryDirectory() as tmp:
        log = RunLog(os.path.join(tmp, "run.csv"))
        t0 = time.perf_counter()
        for step in range(1, args.steps + 1):
            xy = torch.rand(args.batch, args.cities, 2, generator=gen)
            cost, logp = policy(xy, greedy=False)
            base = baseline(xy)
            loss = ((cost - base) * logp).mean()
            opt.zero_grad()
            loss.backward()
            grad = nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()

            values = {"cost": cost.mean().item(), "baseline": base.mean().item(),
                      "loss": loss.item(), "grad": grad.item()}
            history.append(values)
            log.row(step, *(f"{v:.5f}" for v in values.values()))
            if step % 10 == 0:
                print("step %3d  cost %.4f  baseline %.4f" % (step, values["cost"], values["baseline"]))
                sys.stdout.flush()
            if step % args.challenge_every == 0:
                if baseline.challenge(policy):
                    print("step %3d  new baseline, %.4f" % (step, baseline.costs.mean()))
                gc.collect()
        took = time.perf_counter() - t0
        log.file.close()
    print("best cost %.4f" % min(h["cost"] for h in history))
    print("loop_s=%.3f steps=%d" % (took, args.steps))


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--cities", type=int, default=30)
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--challenge-every", type=int, default=40)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--seed", type=int, default=42)
    train(p.parse_args())
