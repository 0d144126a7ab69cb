"""Pretrain a tiny decoder-only language model on a synthetic byte corpus."""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1 = nn.LayerNorm(dim)
        self.ln2 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x, mask):
        h = self.ln1(x)
        a, _ = self.attn(h, h, h, attn_mask=mask)
        x = x + a
        return x + self.mlp(self.ln2(x))


class LM(nn.Module):
    def __init__(self, vocab, dim, heads, layers, ctx):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.zeros(ctx, dim))
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.register_buffer("mask", torch.ones(ctx, ctx, dtype=torch.bool).triu(1), persistent=False)

    def forward(self, ids):
        t = ids.shape[1]
        x = self.tok(ids) + self.pos[:t]
        for b in self.blocks:
            x = b(x, self.mask[:t, :t])
        return self.head(self.norm(x))


def write_corpus(path, n):
    rng = np.random.default_rng(5)
    words = [bytes(rng.integers(97, 123, size=rng.integers(2, 8)).astype(np.uint8)) for _ in range(300)]
    p = 1.0 / np.arange(1, 301)
    text = b" ".join(words[i] for i in rng.choice(300, size=n, p=p / p.sum()))
    np.frombuffer(text, dtype=np.uint8).tofile(path)


def get_batch(data, ctx, batch, gen):
    ix = torch.randint(len(data) - ctx - 1, (batch,), generator=gen).tolist()
    x = np.stack([data[i:i + ctx] for i in ix]).astype(np.int64)
    y = np.stack([data[i + 1:i + 1 + ctx] for i in ix]).astype(np.int64)
    return torch.from_numpy(x), torch.from_numpy(y)


@torch.no_grad()
def evaluate(model, data, cfg):
    model.eval()
    gen = torch.Generator().manual_seed(99)
    out = []
    for _ in range(3):
        x, y = get_batch(data, cfg.ctx, cfg.batch, gen)
        out.append(F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item())
    model.train()
    return sum(out) / len(out)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--ctx", type=int, default=256)
    ap.add_argument("--batch", type=int, default=4)
    ap.add_argument("--dim", type=int, default=64)
    ap.add_argument("--heads", type=int, default=8)
    ap.add_argument("--layers", type=int, default=2)
    ap.add_argument("--steps", type=int, default=80)
    cfg = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "corpus.bin")
        write_corpus(path, 60000)
        data = np.memmap(path, dtype=np.uint8, mode="r")
        cut = int(len(data) * 0.95)
        model = LM(128, cfg.dim, cfg.heads, cfg.layers, cfg.ctx)
        opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, cfg.steps)
        gen = torch.Generator().manual_seed(1)

        def step():
            x, y = get_batch(data[:cut], cfg.ctx, cfg.batch, gen)
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            return loss

        for _ in range(3):
            step()
        t0 = time.perf_counter()
        for it in range(cfg.steps):
            loss = step()
            sched.step()
            if it % 40 == 39:
                print(f"iter {it + 1} train {loss.item():.3f} val {evaluate(model, data[cut:], cfg):.3f}")
        took = time.perf_counter() - t0
        del data
    print(f"loop_s={took:.3f} steps={cfg.steps}")


if __name__ == "__main__":
    main()
