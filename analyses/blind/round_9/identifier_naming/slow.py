"""Recover hidden identifier names in minified source code.

Every function is a token sequence; a share of the identifier tokens is replaced by <HOLE>
and an encoder predicts the original name from the name vocabulary.
"""
from dataclasses import dataclass
import time

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F


@dataclass
class Config:
    n_syntax: int = 120
    n_names: int = 4800
    seq_len: int = 96
    dim: int = 128
    heads: int = 4
    layers: int = 2
    batch: int = 12
    hole_rate: float = 0.35
    functions: int = 2400
    steps: int = 90
    lr: float = 1e-3
    log_every: int = 30
    seed: int = 11


PAD, HOLE = 0, 1
FIRST_SYNTAX = 2


def make_corpus(cfg, rng):
    """Functions with a topic: names are drawn from the topic's part of the vocabulary."""
    first_name = FIRST_SYNTAX + cfg.n_syntax
    topics = 60
    per_topic = cfg.n_names // topics
    tokens = np.zeros((cfg.functions, cfg.seq_len), np.int64)
    for i in range(cfg.functions):
        topic = rng.integers(topics)
        length = int(rng.integers(int(cfg.seq_len * 0.8), cfg.seq_len + 1))
        syntax = FIRST_SYNTAX + (rng.integers(0, cfg.n_syntax // 2, length) + topic) % cfg.n_syntax
        own = first_name + topic * per_topic + (rng.zipf(1.4, 8) - 1) % per_topic
        names = own[rng.integers(0, len(own), length)]
        is_name = rng.random(length) < 0.4
        tokens[i, :length] = np.where(is_name, names, syntax)
    return torch.from_numpy(tokens), first_name


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, bias):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class NameModel(nn.Module):
    def __init__(self, cfg, vocab):
        super().__init__()
        self.tok = nn.Embedding(vocab, cfg.dim, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(cfg.seq_len, cfg.dim) * 0.02)
        self.blocks = nn.ModuleList(Block(cfg.dim, cfg.heads) for _ in range(cfg.layers))
        self.ln = nn.LayerNorm(cfg.dim)
        self.names = nn.Linear(cfg.dim, cfg.n_names)

    def forward(self, tokens):
        bias = (tokens != PAD)[:, None, None, :]
        x = self.tok(tokens) + self.pos
        for block in self.blocks:
            x = block(x, bias)
        return self.names(self.ln(x))


def make_holes(tokens, first_name, rate, gen):
    hide = (tokens >= first_name) & (torch.rand(tokens.shape, generator=gen) < rate)
    source = tokens.masked_fill(hide, HOLE)
    target = torch.where(hide, tokens - first_name, torch.full_like(tokens, -100))
    return source, target


def train(cfg):
    torch.manual_seed(cfg.seed)
    rng = np.random.default_rng(cfg.seed)
    gen = torch.Generator().manual_seed(cfg.seed)
    corpus, first_name = make_corpus(cfg, rng)
    model = NameModel(cfg, first_name + cfg.n_names)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.lr, total_steps=cfg.steps, pct_start=0.1)

    start = time.perf_counter()
    step = 0
    run_loss = run_hits = run_holes = 0
    while step < cfg.steps:
        for idx in torch.randperm(len(corpus), generator=gen).split(cfg.batch):
            source, target = make_holes(corpus[idx], first_name, cfg.hole_rate, gen)
            logits = model(source)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            with torch.no_grad():
                hole = target != -100
                run_hits += (logits[hole].argmax(-1) == target[hole]).sum().item()
                run_holes += hole.sum().item()
                run_loss += loss.item()
            if step % cfg.log_every == 0:
                print(f"step {step} loss {run_loss / cfg.log_every:.3f} top1 {run_hits / run_holes:.3f}", flush=True)
                run_loss = run_hits = run_holes = 0
            if step == cfg.steps:
                break
    return time.perf_counter() - start, step


if __name__ == "__main__":
    seconds, n = train(Config())
    print(f"loop_s={seconds:.3f} steps={n}")
