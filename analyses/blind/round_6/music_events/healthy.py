"""Decoder-only transformer on piano performance events (note on/off, time shift, velocity)."""
import json
import os
import random
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

NOTE_ON, NOTE_OFF, SHIFT, VELOCITY = 0, 128, 256, 356
VOCAB = 388


class Hyper:
    seed = 13
    pieces = 300
    piece_len = 700
    context = 192
    batch = 12
    width = 128
    heads = 4
    layers = 4
    lr = 6e-4
    warmup = 20
    steps = 48
    clip = 1.0
    eval_every = 24


def compose(rng, length):
    scale = [0, 2, 4, 5, 7, 9, 11]
    root, pitch, ev = rng.randrange(40, 60), 10, []
    while len(ev) < length:
        pitch = max(0, min(20, pitch + rng.choice([-2, -1, -1, 0, 1, 1, 2])))
        note = root + 12 * (pitch // 7) + scale[pitch % 7]
        ev.append(VELOCITY + rng.randrange(12, 24))
        ev.append(NOTE_ON + note)
        ev.append(SHIFT + rng.choice([11, 23, 23, 47]))
        ev.append(NOTE_OFF + note)
    return ev[:length]


class Corpus:
    def __init__(self, hp):
        self.hp, self.rng = hp, random.Random(hp.seed)
        pieces = [torch.tensor(compose(self.rng, hp.piece_len)) for _ in range(hp.pieces)]
        self.train, self.valid = pieces[20:], pieces[:20]

    def excerpt(self, pieces, transpose):
        piece = self.rng.choice(pieces)
        at = self.rng.randrange(len(piece) - self.hp.context - 1)
        part = piece[at:at + self.hp.context + 1]
        if not transpose:
            return part
        up = self.rng.randint(-5, 6)
        return torch.where(part < SHIFT, part + up, part)

    def batch(self, split, size):
        pieces = getattr(self, split)
        t = torch.stack([self.excerpt(pieces, split == "train") for _ in range(size)])
        return t[:, :-1], t[:, 1:]


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, w))
        g, u = self.gate_up(self.n2(x)).chunk(2, -1)
        return x + self.down(F.silu(g) * u)


class Composer(nn.Module):
    def __init__(self, hp):
        super().__init__()
        self.token = nn.Embedding(VOCAB, hp.width)
        self.place = nn.Parameter(0.02 * torch.randn(hp.context, hp.width))
        self.layers = nn.ModuleList(Layer(hp.width, hp.heads) for _ in range(hp.layers))
        self.norm = nn.RMSNorm(hp.width)
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, x):
        h = self.token(x) + self.place[:x.shape[1]]
        for layer in self.layers:
            h = layer(h)
        return F.linear(self.norm(h), self.token.weight)


def loss_of(model, x, y):
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten())


def evaluate(model, corpus, hp):
    model.eval()
    with torch.no_grad():
        v = loss_of(model, *corpus.batch("valid", hp.batch)).item()
    model.train()
    return v


def main():
    hp = Hyper()
    random.seed(hp.seed)
    torch.manual_seed(hp.seed)
    corpus, model = Corpus(hp), Composer(hp)
    opt = torch.optim.AdamW(model.parameters(), lr=hp.lr, betas=(0.9, 0.98), fused=True)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / hp.warmup))
    fd, path = tempfile.mkstemp(suffix=".jsonl")
    log = os.fdopen(fd, "w")

    for _ in range(2):
        loss_of(model, *corpus.batch("train", hp.batch)).backward()
    started = time.perf_counter()
    for step in range(1, hp.steps + 1):
        x, y = corpus.batch("train", hp.batch)
        loss = loss_of(model, x, y)
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), hp.clip)
        opt.step()
        sched.step()
        if step % 16 == 0:
            row = {"step": step, "loss": loss.item(), "lr": sched.get_last_lr()[0], "norm": norm.item()}
            log.write(json.dumps(row) + "\n")
            print(f"step {step} loss {row['loss']:.4f} gradient norm {row['norm']:.3f}")
        if step % hp.eval_every == 0:
            print(f"step {step} validation {evaluate(model, corpus, hp):.4f}", flush=True)
    loop = time.perf_counter() - started
    log.close()
    os.unlink(path)
    print("loop_s=%.3f steps=%d" % (loop, hp.steps))


if __name__ == "__main__":
    main()
