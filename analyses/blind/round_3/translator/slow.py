"""Toy translation (word reordering and substitution) with a transformer, a Trainer class and callbacks."""
import argparse
import gc
import math
import random
import resource
import time
from dataclasses import dataclass, field

import torch
from torch import nn

PAD, BOS, EOS = 0, 1, 2


@dataclass
class Token:
    surface: str
    lemma: str
    index: int
    tags: dict = field(default_factory=dict)


@dataclass
class SentencePair:
    source: list
    target: list


class Corpus:
    """Parallel sentences kept with their annotation: the target reverses clauses and substitutes words."""

    def __init__(self, n, n_words, rng):
        self.n_words = n_words
        perm = list(range(n_words))
        rng.shuffle(perm)
        self.pairs = []
        for _ in range(n):
            ids = [rng.randrange(n_words) for _ in range(rng.randint(6, 16))]
            cut = len(ids) // 2
            out = [perm[i] for i in ids[cut:] + ids[:cut]]
            self.pairs.append(SentencePair([self.token(i, "s") for i in ids], [self.token(i, "t") for i in out]))
        self.encoded = [([t.index + 3 for t in p.source] + [EOS], [BOS] + [t.index + 3 for t in p.target] + [EOS])
                        for p in self.pairs]

    @staticmethod
    def token(i, side):
        return Token(f"{side}{i}", f"{side}{i % 50}", i, {"pos": i % 12})

    def batches(self, size, rng):
        order = list(range(len(self.encoded)))
        rng.shuffle(order)
        chunk = size * 20
        for c in range(0, len(order), chunk):
            pool = sorted(order[c:c + chunk], key=lambda i: len(self.encoded[i][0]))
            groups = [pool[i:i + size] for i in range(0, len(pool), size)]
            rng.shuffle(groups)
            for g in groups:
                yield pad([self.encoded[i][0] for i in g]), pad([self.encoded[i][1] for i in g])


def pad(rows):
    width = max(map(len, rows))
    return torch.tensor([r + [PAD] * (width - len(r)) for r in rows])


class Translator(nn.Module):
    def __init__(self, vocab, dim, heads, layers, ff):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(64, dim) * 0.02)
        self.core = nn.Transformer(dim, heads, layers, layers, ff, dropout=0.0, batch_first=True)
        self.out = nn.Linear(dim, vocab)
        self.scale = math.sqrt(dim)

    def embed(self, ids):
        return self.emb(ids) * self.scale + self.pos[:ids.shape[1]]

    def forward(self, src, tgt):
        s_pad, t_pad = src == PAD, tgt == PAD
        causal = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).triu(1)
        h = self.core(self.embed(src), self.embed(tgt), tgt_mask=causal, src_key_padding_mask=s_pad,
                      tgt_key_padding_mask=t_pad, memory_key_padding_mask=s_pad)
        return self.out(h)


class Callback:
    def on_train_begin(self, trainer): ...
    def on_batch_end(self, trainer): ...
    def on_epoch_end(self, trainer): ...


class LossPrinter(Callback):
    def __init__(self, every):
        self.every = every

    def on_batch_end(self, trainer):
        if trainer.step % self.every == 0:
            print(f"step {trainer.step:4d} loss {torch.stack(trainer.losses[-self.every:]).mean():.4f}", flush=True)


class ResourceGuard(Callback):
    """Keeps an eye on the process's memory and stops the run before the machine swaps."""

    def __init__(self, limit_gb):
        self.limit_kb = limit_gb * 1024 * 1024
        self.peak = 0

    def on_batch_end(self, trainer):
        gc.collect()
        self.peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        if self.peak > self.limit_kb:
            trainer.should_stop = True

    def on_epoch_end(self, trainer):
        print(f"peak memory {self.peak / 1024:.0f} MB")


class WarmupSchedule(Callback):
    def __init__(self, opt, peak, warmup):
        self.opt, self.peak, self.warmup = opt, peak, warmup

    def on_train_begin(self, trainer):
        self.on_batch_end(trainer)

    def on_batch_end(self, trainer):
        s = trainer.step + 1
        lr = self.peak * min(s / self.warmup, (self.warmup / s) ** 0.5)
        for g in self.opt.param_groups:
            g["lr"] = lr


class Trainer:
    def __init__(self, model, opt, corpus, callbacks, max_steps, batch_size, rng):
        self.model, self.opt, self.corpus, self.callbacks = model, opt, corpus, callbacks
        self.max_steps, self.batch_size, self.rng = max_steps, batch_size, rng
        self.loss_fn = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.05)
        self.step, self.losses, self.should_stop = 0, [], False

    def call(self, hook):
        for cb in self.callbacks:
            getattr(cb, hook)(self)

    def train_step(self, src, tgt):
        logits = self.model(src, tgt[:, :-1])
        loss = self.loss_fn(logits.flatten(0, 1), tgt[:, 1:].flatten())
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.losses.append(loss.detach())
        self.step += 1

    def fit(self):
        self.call("on_train_begin")
        while self.step < self.max_steps and not self.should_stop:
            for src, tgt in self.corpus.batches(self.batch_size, self.rng):
                self.train_step(src, tgt)
                self.call("on_batch_end")
                if self.step >= self.max_steps or self.should_stop:
                    break
            self.call("on_epoch_end")


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--max-steps", type=int, default=50)
    ap.add_argument("--batch-size", type=int, default=64)
    ap.add_argument("--sentences", type=int, default=1300)
    ap.add_argument("--words", type=int, default=400)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    corpus = Corpus(args.sentences, args.words, rng)
    model = Translator(args.words + 3, 96, 4, 2, 256)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.98), fused=True)
    trainer = Trainer(model, opt, corpus, [WarmupSchedule(opt, 2e-3, 30), LossPrinter(10), ResourceGuard(8)],
                      args.max_steps, args.batch_size, rng)
    start = time.perf_counter()
    trainer.fit()
    print("loop_s=%.3f steps=%d" % (time.perf_counter() - start, trainer.step))


if __name__ == "__main__":
    main()
