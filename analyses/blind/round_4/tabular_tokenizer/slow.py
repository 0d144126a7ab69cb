"""FT-Transformer style click model; rows are streamed from an in-memory table."""
import argparse
import itertools
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset


class Table:
    def __init__(self, rows, cards, n_num, seed):
        rng = np.random.default_rng(seed)
        self.cat = np.stack([rng.integers(0, c, rows) for c in cards], 1)
        self.num = rng.lognormal(size=(rows, n_num)).astype(np.float32)
        w = rng.normal(size=n_num) * 0.3
        logit = np.log1p(self.num) @ w + 0.4 * ((self.cat[:, 0] + self.cat[:, 1]) % 3 - 1)
        self.y = (logit + rng.logistic(size=rows) > np.median(logit)).astype(np.float32)
        self.num = np.log1p(self.num)


class RowStream(IterableDataset):
    """Endless passes over the table, shuffled by blocks, in ready-made batches."""

    def __init__(self, table, batch_size, seed):
        self.table, self.batch_size, self.seed = table, batch_size, seed

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        n = len(self.table.y)
        while True:
            order = rng.permutation(n)
            for lo in range(0, n - self.batch_size + 1, self.batch_size):
                rows = order[lo:lo + self.batch_size]
                yield (torch.from_numpy(self.table.cat[rows]), torch.from_numpy(self.table.num[rows]),
                       torch.from_numpy(self.table.y[rows]))


class FeatureTokenizer(nn.Module):
    def __init__(self, cards, n_num, dim, gen):
        super().__init__()
        bound = dim ** -0.5
        self.embeds = nn.ModuleList(nn.Embedding(c, dim) for c in cards)
        for e in self.embeds:
            nn.init.uniform_(e.weight, -bound, bound, generator=gen)
        self.linears = nn.ModuleList(nn.Linear(1, dim) for _ in range(n_num))
        for lin in self.linears:
            nn.init.uniform_(lin.weight, -bound, bound, generator=gen)
            nn.init.zeros_(lin.bias)
        self.cls = nn.Parameter(torch.zeros(dim))

    def forward(self, cat, num):
        tokens = [self.cls.expand(len(cat), -1)]
        tokens += [e(cat[:, i]) for i, e in enumerate(self.embeds)]
        tokens += [lin(num[:, i:i + 1]) for i, lin in enumerate(self.linears)]
        return torch.stack(tokens, 1)


class EncoderLayer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm_attn, self.norm_ff = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.ff = nn.Sequential(nn.Linear(dim, 2 * dim), nn.ReLU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm_attn(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.ff(self.norm_ff(x))


class TabularTransformer(nn.Module):
    def __init__(self, cards, n_num, seed, dim=32, depth=2, heads=4):
        super().__init__()
        self.layers = nn.Sequential(*(EncoderLayer(dim, heads) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 1))
        self.tokenizer = FeatureTokenizer(cards, n_num, dim, torch.Generator().manual_seed(seed))

    def forward(self, cat, num):
        return self.head(self.layers(self.tokenizer(cat, num))[:, 0]).squeeze(-1)


def run(a):
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    cards = [int(c) for c in np.random.default_rng(a.seed).integers(3, 40, a.n_cat)]
    table = Table(40_000, cards, a.n_num, a.seed)
    loader = DataLoader(RowStream(table, a.batch, a.seed), batch_size=None)
    model = TabularTransformer(cards, a.n_num, a.seed)
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, weight_decay=1e-5, fused=True)
    sys.stderr.write(f"{sum(p.numel() for p in model.parameters())} parameters, {a.n_cat + a.n_num} columns\n")

    def step(cat, num, y):
        loss = F.binary_cross_entropy_with_logits(model(cat, num), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    stream = iter(loader)
    for batch in itertools.islice(stream, 5):
        step(*batch)
    ema, t0 = None, time.perf_counter()
    for i, batch in enumerate(itertools.islice(stream, a.steps), 1):
        loss = step(*batch)
        ema = loss if ema is None else ema.lerp(loss, 0.02)
        if i % 100 == 0:
            sys.stderr.write(f"step {i}: loss {ema.item():.4f}\n")
    dt = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (dt, a.steps))


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--batch", type=int, default=48)
    ap.add_argument("--n-cat", type=int, default=60)
    ap.add_argument("--n-num", type=int, default=60)
    ap.add_argument("--steps", type=int, default=250)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=3)
    run(ap.parse_args())
