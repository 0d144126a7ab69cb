#!/usr/bin/env python
"""Small mixture-of-experts language model on a synthetic grammar. Top-2 routing, own loop."""
import argparse
import csv
import math
import os
import tempfile
import time
from collections import deque

import torch
from torch import nn
from torch.nn import functional as F


def make_corpus(n_tokens, vocab, seed):
    """Second-order Markov chain with a few sharp transitions."""
    g = torch.Generator().manual_seed(seed)
    succ = torch.randint(vocab, (vocab, vocab, 4), generator=g)
    which = torch.multinomial(torch.tensor([0.6, 0.2, 0.15, 0.05]), n_tokens, True, generator=g).tolist()
    table = succ.tolist()
    out = [0, 1]
    for w in which:
        out.append(table[out[-2]][out[-1]][w])
    return torch.tensor(out[:n_tokens])


class Experts(nn.Module):
    def __init__(self, d, hidden, n_experts, top_k=2):
        super().__init__()
        self.top_k = top_k
        self.gate = nn.Linear(d, n_experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, hidden), nn.GELU(), nn.Linear(hidden, d))
            for _ in range(n_experts))
        self.load = None
        self.aux = None

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        probs = self.gate(x).softmax(-1)
        weight, chosen = probs.topk(self.top_k, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == i)
            if token.numel() == 0:
                continue
            y = expert(x[token]) * weight[token, slot, None]
            out = out.index_add(0, token, y)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts))
        self.load = counts
        share = counts.float() / chosen.numel()
        self.aux = len(self.experts) * (share * probs.mean(0)).sum()
        return out.view(shape)


class Block(nn.Module):
    def __init__(self, d, heads, hidden, n_experts):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.moe = Experts(d, hidden, n_experts)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.moe(self.ln2(x))


class MoELM(nn.Module):
    def __init__(self, vocab, ctx, d, heads, layers, hidden, n_experts):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, d), nn.Embedding(ctx, d)
        self.blocks = nn.ModuleList(Block(d, heads, hidden, n_experts) for _ in range(layers))
        self.ln = nn.LayerNorm(d)
        self.head = nn.Linear(d, vocab, bias=False)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.size(1)]
        for blk in self.blocks:
            x = blk(x)
        return self.head(self.ln(x))

    def aux_loss(self):
        return sum(blk.moe.aux for blk in self.blocks) / len(self.blocks)


def batch_from(corpus, bs, ctx, g):
    at = torch.randint(len(corpus) - ctx - 1, (bs, 1), generator=g)
    chunk = corpus[at + torch.arange(ctx + 1)]
    return chunk[:, :-1], chunk[:, 1:]


def entropy(counts):
    p = [c / max(1, sum(counts)) for c in counts]
    return -sum(q * math.log(q) for q in p if q > 0)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=64)
    ap.add_argument("--ctx", type=int, default=64)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--d-model", type=int, default=128)
    ap.add_argument("--heads", type=int, default=4)
    ap.add_argument("--layers", type=int, default=2)
    ap.add_argument("--hidden", type=int, default=512)
    ap.add_argument("--experts", type=int, default=6)
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=5)
    args = ap.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    corpus = make_corpus(200_000, args.vocab, args.seed)
    model = MoELM(args.vocab, args.ctx, args.d_model, args.heads, args.layers, args.hidden, args.experts)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    g = torch.Generator().manual_seed(args.seed)

    path = os.path.join(tempfile.mkdtemp(prefix="moe_"), "routing.csv")
    recent = deque(maxlen=20)
    with open(path, "w", newline="") as handle:
        log = csv.writer(handle)
        log.writerow(["step", "loss", "aux", "grad_norm", "layer", "expert", "tokens", "entropy"])
        t0 = time.perf_counter()
        for step in range(1, args.steps + 1):
            ids, target = batch_from(corpus, args.batch, args.ctx, g)
            logits = model(ids)
            ce = F.cross_entropy(logits.flatten(0, 1), target.flatten())
            loss = ce + 0.01 * model.aux_loss()
            opt.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()

            recent.append(ce.item())
            if step % 20 == 0:
                for layer, blk in enumerate(model.blocks):
                    counts = blk.moe.load.tolist()
                    for expert, count in enumerate(counts):
                        log.writerow([step, recent[-1], blk.moe.aux.item(), norm.item(), layer, expert,
                                      count, entropy(counts)])
                print(f"step {step:3d} ce {sum(recent) / len(recent):.4f} aux {model.aux_loss().item():.3f}")
        seconds = time.perf_counter() - t0
    print(f"loop_s={seconds:.3f} steps={args.steps}")


if __name__ == "__main__":
    main()
