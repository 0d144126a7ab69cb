"""Character CTC recogniser (dilated conv encoder) on a synthetic spoken-letters corpus."""
import argparse
import logging
import os
import queue
import random
import tempfile
import threading
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("asr")
ALPHABET = "abcdefghijklmnopqrstuvwxyz '"
BLANK = 0


def build_corpus(root, n, n_mels, rng):
    """Every letter is a short spectral pattern; an utterance strings them together with jitter and noise."""
    protos = rng.normal(size=(len(ALPHABET) + 1, n_mels)).astype(np.float32)
    entries = []
    for i in range(n):
        text = rng.integers(1, len(ALPHABET) + 1, size=rng.integers(14, 30))
        durs = rng.integers(6, 11, size=len(text))
        feats = np.repeat(protos[text], durs, axis=0)
        feats = feats + 0.6 * rng.normal(size=feats.shape).astype(np.float32)
        path = os.path.join(root, f"utt{i:05d}.npy")
        np.save(path, feats.astype(np.float32))
        entries.append({"path": path, "text": text.astype(np.int64), "frames": len(feats)})
    return entries


class UtteranceStore:
    """Features of the corpus, read into memory once."""

    def __init__(self, entries):
        self.entries = entries
        self.feats = [np.load(e["path"]) for e in entries]

    def get(self, i):
        return self.feats[i], self.entries[i]["text"]


def bucketed_batches(entries, batch_size, rng):
    order = sorted(range(len(entries)), key=lambda i: entries[i]["frames"])
    batches = [order[i:i + batch_size] for i in range(0, len(order) - batch_size + 1, batch_size)]
    rng.shuffle(batches)
    return batches


def collate(items):
    lens = torch.tensor([len(f) for f, _ in items])
    x = torch.zeros(len(items), int(lens.max()), items[0][0].shape[1])
    for k, (f, _) in enumerate(items):
        x[k, :len(f)] = torch.from_numpy(f)
    targets = torch.from_numpy(np.concatenate([t for _, t in items]))
    tlens = torch.tensor([len(t) for _, t in items])
    return x.transpose(1, 2).contiguous(), lens, targets, tlens


class Feeder(threading.Thread):
    def __init__(self, store, batches, depth=4):
        super().__init__(daemon=True)
        self.store, self.batches = store, batches
        self.q = queue.Queue(maxsize=depth)

    @classmethod
    def start_on(cls, store, batches):
        feeder = cls(store, batches)
        feeder.start()
        return feeder

    def run(self):
        for b in self.batches:
            items = []
            for i in b:
                items.append(self.store.get(i))
            self.q.put(collate(items))
        self.q.put(None)

    def __iter__(self):
        while (item := self.q.get()) is not None:
            yield item


class Block(nn.Module):
    def __init__(self, ch, k, dilation, drop):
        super().__init__()
        self.conv = nn.Conv1d(ch, ch, k, padding=dilation * (k // 2), dilation=dilation, bias=False)
        self.norm = nn.BatchNorm1d(ch)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        return x + self.drop(F.relu(self.norm(self.conv(x))))


class Recogniser(nn.Module):
    def __init__(self, n_mels, ch, n_blocks):
        super().__init__()
        self.stem = nn.Conv1d(n_mels, ch, 5, stride=2, padding=2)
        self.blocks = nn.Sequential(*[Block(ch, 5, 1 + i % 2, 0.1) for i in range(n_blocks)])
        self.head = nn.Conv1d(ch, len(ALPHABET) + 1, 1)

    def forward(self, x, lens):
        y = self.head(self.blocks(F.relu(self.stem(x))))
        return F.log_softmax(y, dim=1).permute(2, 0, 1), (lens - 1) // 2 + 1


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (ca != cb))
    return row[-1]


@torch.no_grad()
def char_error_rate(model, batch):
    model.eval()
    x, lens, targets, tlens = batch
    logp, out_lens = model(x, lens)
    best = logp.argmax(-1).t()
    errs, pos = 0, 0
    for k in range(len(x)):
        hyp = torch.unique_consecutive(best[k, :out_lens[k]])
        hyp = hyp[hyp != BLANK].tolist()
        ref = targets[pos:pos + tlens[k]].tolist()
        pos += int(tlens[k])
        errs += edit_distance(ref, hyp)
    model.train()
    return errs / pos


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--utterances", type=int, default=448)
    ap.add_argument("--batch-size", type=int, default=16)
    ap.add_argument("--channels", type=int, default=192)
    ap.add_argument("--blocks", type=int, default=6)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=11)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    rng, prng = np.random.default_rng(args.seed), random.Random(args.seed)

    with tempfile.TemporaryDirectory() as root:
        entries = build_corpus(root, args.utterances + 16, 64, rng)
        train, dev = entries[:-16], entries[-16:]
        dev_batch = collate([(np.load(e["path"]), e["text"]) for e in dev])
        store = UtteranceStore(train)
        model = Recogniser(64, args.channels, args.blocks)
        opt = torch.optim.Adam(model.parameters(), lr=args.lr, fused=True)
        step, t0 = 0, time.perf_counter()
        for epoch in range(args.epochs):
            total = torch.zeros(())
            for x, lens, targets, tlens in Feeder.start_on(store, bucketed_batches(train, args.batch_size, prng)):
                logp, out_lens = model(x, lens)
                loss = F.ctc_loss(logp, targets, out_lens, tlens, blank=BLANK, zero_infinity=True)
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                opt.step()
                total += loss.detach()
                step += 1
            log.info("epoch %d loss %.3f cer %.3f", epoch, total.item() * args.batch_size / len(train),
                     char_error_rate(model, dev_batch))
        loop_s = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (loop_s, step))


if __name__ == "__main__":
    main()
