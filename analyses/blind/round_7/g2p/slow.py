"""Grapheme-to-phoneme conversion: LSTM encoder, attention, LSTM decoder.

The language is made up but regular: digraphs, silent letters, vowels that depend on their neighbours.
Phoneme error rate on held-out words is measured by greedy decoding while training goes on.
"""
import random
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LETTERS = "abcdefghijklmnoprstuvwz"
PAD, BOS, EOS = 0, 1, 2
DIGRAPH = {"sh": "S", "ch": "C", "th": "T", "ng": "N", "ee": "I", "oo": "U", "ai": "E"}
PHONES = sorted(set("aeioubcdfghjklmnprstvwz") | set(DIGRAPH.values()) | set("AOY@"))
P2I = {p: i + 3 for i, p in enumerate(PHONES)}
L2I = {c: i + 3 for i, c in enumerate(LETTERS)}
OPT = dict(steps=64, warm=100, batch=128, emb=48, hidden=224, lr=4e-3, eval_every=16, eval_words=512,
           max_phones=60, words=12000, seed=5)


def spell(rng):
    out = []
    for _ in range(rng.randint(2, 4)):
        out.append(rng.choice(["sh", "ch", "th", "b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z"]))
        out.append(rng.choice(["a", "e", "i", "o", "u", "ee", "oo", "ai"]))
        if rng.random() < 0.25:
            out.append(rng.choice(["n", "r", "s", "ng"]))
    return "".join(out)


def pronounce(word):
    phones, i = [], 0
    while i < len(word):
        two = word[i:i + 2]
        if two in DIGRAPH:
            phones.append(DIGRAPH[two])
            i += 2
            continue
        c = word[i]
        if c == "e" and i == len(word) - 1:
            pass
        elif c in "aou" and i + 1 < len(word) and word[i + 1] == "r":
            phones.append({"a": "A", "o": "O", "u": "@"}[c])
        elif c == "i" and i == len(word) - 1:
            phones.append("Y")
        else:
            phones.append(c)
        i += 1
    return phones


class Lexicon:
    def __init__(self, n, seed):
        rng = random.Random(seed)
        words = sorted({spell(rng) for _ in range(n)})
        rng.shuffle(words)
        self.rows = [([L2I[c] for c in w], [P2I[p] for p in pronounce(w)]) for w in words]

    @staticmethod
    def tensors(rows):
        src = nn.utils.rnn.pad_sequence([torch.tensor(s) for s, _ in rows], batch_first=True)
        tgt = nn.utils.rnn.pad_sequence([torch.tensor([BOS] + t + [EOS]) for _, t in rows], batch_first=True)
        return src, tgt


class G2P(nn.Module):
    def __init__(self, emb, hidden):
        super().__init__()
        self.src = nn.Embedding(len(L2I) + 3, emb, padding_idx=PAD)
        self.tgt = nn.Embedding(len(P2I) + 3, emb, padding_idx=PAD)
        self.enc = nn.LSTM(emb, hidden // 2, batch_first=True, bidirectional=True)
        self.cell = nn.LSTMCell(emb + hidden, hidden)
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(2 * hidden, len(P2I) + 3)
        self.hidden = hidden

    def encode(self, src):
        mem, _ = self.enc(self.src(src))
        zero = mem.new_zeros(src.shape[0], self.hidden)
        return mem, src == PAD, (zero, zero), zero

    def tick(self, tok, mem, pad, state, ctx):
        state = self.cell(torch.cat([self.tgt(tok), ctx], -1), state)
        score = torch.einsum("bh,bth->bt", self.query(state[0]), mem).masked_fill(pad, -1e9)
        ctx = torch.einsum("bt,bth->bh", score.softmax(-1), mem)
        return self.out(torch.cat([state[0], ctx], -1)), state, ctx

    def forward(self, src, tgt):
        mem, pad, state, ctx = self.encode(src)
        logits = []
        for t in range(tgt.shape[1] - 1):
            lg, state, ctx = self.tick(tgt[:, t], mem, pad, state, ctx)
            logits.append(lg)
        return torch.stack(logits, 1)

    @torch.no_grad()
    def greedy(self, src, limit):
        mem, pad, state, ctx = self.encode(src)
        tok = torch.full((src.shape[0],), BOS)
        done = torch.zeros(src.shape[0], dtype=torch.bool)
        out = []
        for _ in range(limit):
            lg, state, ctx = self.tick(tok, mem, pad, state, ctx)
            tok = lg.argmax(-1).masked_fill(done, PAD)
            done |= tok == EOS
            out.append(tok)
        return torch.stack(out, 1)


def edit(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


def phoneme_error_rate(net, rows, limit):
    net.eval()
    src, _ = Lexicon.tensors(rows)
    hyp = net.greedy(src, limit).tolist()
    wrong = total = 0
    for h, (_, ref) in zip(hyp, rows):
        h = h[:h.index(EOS)] if EOS in h else [t for t in h if t != PAD]
        wrong += edit(h, ref)
        total += len(ref)
    net.train()
    return wrong / total


def run(o):
    torch.set_num_threads(1)
    torch.manual_seed(o["seed"])
    rows = Lexicon(o["words"], o["seed"]).rows
    dev, train = rows[:o["eval_words"]], rows[o["eval_words"]:]
    rng = random.Random(o["seed"] + 1)
    net = G2P(o["emb"], o["hidden"])
    opt = torch.optim.Adam(net.parameters(), lr=o["lr"], fused=True)

    def one_step():
        src, tgt = Lexicon.tensors(rng.sample(train, o["batch"]))
        logits = net(src, tgt)
        loss = F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=PAD)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        opt.step()
        return loss

    for _ in range(o["warm"]):
        one_step()
    begin = time.perf_counter()
    for step in range(1, o["steps"] + 1):
        loss = one_step()
        if step % o["eval_every"] == 0:
            per = phoneme_error_rate(net, dev, o["max_phones"])
            sys.stdout.write(f"step {step} loss {loss.item():.3f} PER {100 * per:.1f}%\n")
    return time.perf_counter() - begin, o["steps"]


if __name__ == "__main__":
    print("loop_s=%.3f steps=%d" % run(OPT))
