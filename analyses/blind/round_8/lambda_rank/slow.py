"""Learning to rank with LambdaLoss (NDCG-Loss2++ flavour) on a synthetic web-search collection."""
import argparse
import time

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--queries", type=int, default=1200)
parser.add_argument("--docs", type=int, default=160, help="candidates per query")
parser.add_argument("--features", type=int, default=136)
parser.add_argument("--hidden", type=int, default=96)
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--steps", type=int, default=360)
parser.add_argument("--sigma", type=float, default=1.0)
parser.add_argument("--mu", type=float, default=4.0)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--eval-every", type=int, default=120)
parser.add_argument("--seed", type=int, default=11)


class Collection:
    """Queries with a fixed number of candidates and graded labels 0..4."""

    def __init__(self, args):
        rng = np.random.default_rng(args.seed)
        x = rng.normal(size=(args.queries, args.docs, args.features)).astype(np.float32)
        w = rng.normal(size=args.features) / np.sqrt(args.features)
        bent = np.tanh(x[..., :20]).sum(-1) * 0.2
        utility = x @ w + bent + rng.normal(0, 0.4, x.shape[:2])
        cuts = np.quantile(utility, [0.55, 0.75, 0.9, 0.97])
        labels = np.digitize(utility, cuts)
        gains = 2.0 ** labels - 1.0
        ideal = -np.sort(-gains, axis=1)
        discounts = 1.0 / np.log2(np.arange(args.docs) + 2.0)
        max_dcg = (ideal * discounts).sum(1, keepdims=True)
        cut = int(0.9 * args.queries)
        self.x = torch.from_numpy(x)
        self.labels = torch.from_numpy(labels)
        self.gains = torch.from_numpy(gains / np.maximum(max_dcg, 1e-9))
        self.discounts = torch.from_numpy(discounts)
        self.train = np.arange(cut)
        self.valid = torch.arange(cut, args.queries)

    def batches(self, size, rng):
        while True:
            order = torch.from_numpy(rng.permutation(self.train))
            for i in range(0, len(order) - size + 1, size):
                yield order[i:i + size]


class Scorer(nn.Module):
    """Per-document tower, plus a mean-pooled context of the list."""

    def __init__(self, features, hidden):
        super().__init__()
        self.inp = nn.Linear(features, hidden)
        self.ctx = nn.Linear(hidden, hidden)
        self.mid = nn.Linear(hidden, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h = F.relu(self.inp(x))
        h = h + self.ctx(h.mean(1, keepdim=True))
        h = F.relu(self.norm(self.mid(h)))
        return self.out(h).squeeze(-1)


def pairwise_weights(scores, gains, discounts, mu):
    """Weight of a pair: the change of NDCG on a swap, and the distance in rank."""
    rank = scores.argsort(1, descending=True).argsort(1)
    inv = 1.0 / discounts[rank]
    gap = (rank[:, :, None] - rank[:, None, :]).abs()
    step = mu * torch.cat([discounts[:1] * 0, discounts[:-1] - discounts[1:]])
    swap = (inv[:, :, None] - inv[:, None, :]).abs()
    return (swap * 0.1 + step[gap]) * (gains[:, :, None] - gains[:, None, :]).abs()


def lambda_loss(scores, labels, gains, discounts, sigma, mu):
    with torch.no_grad():
        weight = pairwise_weights(scores, gains, discounts, mu)
        weight = weight * (labels[:, :, None] > labels[:, None, :])
    diff = scores[:, :, None] - scores[:, None, :]
    return (weight * F.softplus(-sigma * diff)).sum(dim=(1, 2)).mean()


@torch.no_grad()
def ndcg(model, data, k=10):
    model.eval()
    total = 0.0
    for part in data.valid.split(60):
        order = model(data.x[part]).argsort(1, descending=True)[:, :k]
        best = data.gains[part].sort(1, descending=True).values[:, :k]
        got = data.gains[part].gather(1, order)
        total += ((got * data.discounts[:k]).sum(1) / (best * data.discounts[:k]).sum(1)).sum().item()
    model.train()
    return total / len(data.valid)


def main():
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    data = Collection(args)
    model = Scorer(args.features, args.hidden)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    stream = data.batches(args.batch, np.random.default_rng(args.seed + 1))

    def one_step():
        q = next(stream)
        scores = model(data.x[q])
        loss = lambda_loss(scores, data.labels[q], data.gains[q], data.discounts, args.sigma, args.mu)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    for _ in range(2):
        one_step()
    begin = time.perf_counter()
    total = torch.zeros(())
    for step in range(1, args.steps + 1):
        total += one_step()
        if step % args.eval_every == 0:
            print(f"step {step:4d}  loss {total.item() / args.eval_every:.4f}  ndcg@10 {ndcg(model, data):.4f}")
            total.zero_()
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - begin, args.steps))


if __name__ == "__main__":
    main()
