"""Train a small sentence encoder on (anchor, positive, negative) triplets.

The corpus is synthetic: every topic owns a pool of words, an anchor and its positive are
drawn from the same topic, the negative from another one.
"""
import argparse
import logging
import random
import re
import time
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("triplets")
TOKEN_RE = re.compile(r"[a-z0-9]+|[^\sa-z0-9]")
PAD, UNK, CLS = 0, 1, 2


def make_corpus(rng, n_topics, n_triplets):
    syll = ["ba", "ke", "li", "mo", "ru", "ta", "ze", "no", "si", "pu", "vo", "da"]
    word = lambda: "".join(rng.choice(syll) for _ in range(rng.randint(2, 4)))
    common = [word() for _ in range(400)]
    topics = [[word() for _ in range(60)] for _ in range(n_topics)]

    def sentence(t):
        words = [rng.choice(topics[t]) if rng.random() < 0.45 else rng.choice(common)
                 for _ in range(rng.randint(21, 23))]
        return " ".join(words).capitalize() + rng.choice([".", "!", "?"])

    out = []
    for _ in range(n_triplets):
        a, b = rng.sample(range(n_topics), 2)
        out.append((sentence(a), sentence(a), sentence(b)))
    return out


class WordTokenizer:
    def __init__(self, texts, max_size=8000):
        counts = Counter()
        for t in texts:
            counts.update(TOKEN_RE.findall(t.lower()))
        self.vocab = {"[PAD]": PAD, "[UNK]": UNK, "[CLS]": CLS}
        for w, _ in counts.most_common(max_size - 3):
            self.vocab[w] = len(self.vocab)

    def encode(self, text, max_len=32):
        ids = [CLS]
        for tok in TOKEN_RE.findall(text.lower()):
            ids.append(self.vocab.get(tok, UNK))
        return ids[:max_len]

    def __len__(self):
        return len(self.vocab)


def pad(seqs):
    n = max(len(s) for s in seqs)
    return torch.tensor([s + [PAD] * (n - len(s)) for s in seqs])


class Block(nn.Module):
    def __init__(self, dim, heads, p):
        super().__init__()
        self.heads, self.p = heads, p
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + F.dropout(self.mlp(self.n2(x)), self.p, self.training)


class SentenceEncoder(nn.Module):
    def __init__(self, vocab, dim=128, depth=2, heads=4, p=0.1):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(1, 32, dim) * 0.02)
        self.blocks = nn.ModuleList(Block(dim, heads, p) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids):
        keep = ids != PAD
        x = self.tok(ids) + self.pos[:, :ids.shape[1]]
        for blk in self.blocks:
            x = blk(x, keep[:, None, None, :])
        w = keep.unsqueeze(-1).to(x.dtype)
        return F.normalize((self.norm(x) * w).sum(1) / w.sum(1), dim=-1)


def triplet_loss(emb, margin):
    a, p, n = emb.chunk(3)
    d_ap, d_an = 1 - (a * p).sum(-1), 1 - (a * n).sum(-1)
    return F.relu(d_ap - d_an + margin).mean(), (d_ap < d_an).float().mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=3e-4)
    ap.add_argument("--margin", type=float, default=0.3)
    ap.add_argument("--seed", type=int, default=7)
    ap.add_argument("--threads", type=int, default=1)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    rng = random.Random(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    triplets = make_corpus(rng, 40, 4000)
    tokenizer = WordTokenizer(s for t in triplets for s in t)
    encoded = [tuple(tokenizer.encode(s) for s in t) for t in triplets]
    model = SentenceEncoder(len(tokenizer))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01, fused=True)
    log.info("vocab %d, %.2fM parameters", len(tokenizer), sum(p.numel() for p in model.parameters()) / 1e6)

    def train_step(indices):
        a, p, n = zip(*(encoded[i] for i in indices))
        emb = model(pad(a + p + n))
        loss, acc = triplet_loss(emb, args.margin)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach(), acc

    order = list(range(len(triplets)))
    rng.shuffle(order)
    batches = [order[i:i + args.batch_size] for i in range(0, len(order), args.batch_size)]
    for i in range(2):
        train_step(batches[i])

    running = 0.0
    start = time.perf_counter()
    for step in range(args.steps):
        loss, acc = train_step(batches[(step + 2) % len(batches)])
        running = 0.9 * running + 0.1 * loss
        if step % 20 == 0:
            log.info("step %d loss %.4f running %.4f acc %.3f", step, loss.item(), float(running), acc.item())
    loop_s = time.perf_counter() - start
    log.info("final running loss %.4f", float(running))
    print("loop_s=%.3f steps=%d" % (loop_s, args.steps))


if __name__ == "__main__":
    main()
