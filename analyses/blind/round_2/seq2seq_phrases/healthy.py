import argparse
import os
import random
import tempfile
import time

import torch
import torch.nn as nn
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import DataLoader, Dataset

PAD, BOS, EOS = 0, 1, 2


def write_corpus(path, n, rng):
    src_words = ["".join(rng.choices("aeioudkmrst", k=rng.randint(2, 6))) for _ in range(500)]
    mapping = {w: w[::-1] + rng.choice(["en", "a", ""]) for w in src_words}
    with open(path, "w") as f:
        for _ in range(n):
            k = min(38, max(3, int(rng.lognormvariate(2.2, 0.45))))
            words = rng.choices(src_words, k=k)
            target = [mapping[w] for w in words]
            target[0], target[-1] = target[-1], target[0]
            f.write(" ".join(words) + "\t" + " ".join(target) + "\n")


def train_tokenizer(lines):
    tok = Tokenizer(models.BPE(unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    tok.train_from_iterator(
        lines, trainers.BpeTrainer(vocab_size=1500, special_tokens=["[PAD]", "[BOS]", "[EOS]", "[UNK]"], show_progress=False)
    )
    return tok


class Pairs(Dataset):
    def __init__(self, path):
        with open(path) as f:
            self.pairs = [line.rstrip("\n").split("\t") for line in f]

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


class Collator:
    def __init__(self, tokenizer, max_len):
        self.tokenizer, self.max_len = tokenizer, max_len
        tokenizer.enable_truncation(max_len - 2)

    def encode(self, texts):
        rows = [[BOS] + e.ids + [EOS] for e in self.tokenizer.encode_batch(texts)]
        width = max(len(r) for r in rows)
        return torch.tensor([r + [PAD] * (width - len(r)) for r in rows])

    def __call__(self, batch):
        src, tgt = zip(*batch)
        return self.encode(list(src)), self.encode(list(tgt))


class Translator(nn.Module):
    def __init__(self, vocab, dim, max_len):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(max_len, dim) * 0.02)
        self.core = nn.Transformer(dim, 4, 2, 2, 2 * dim, dropout=0.1, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def embed(self, ids):
        return self.emb(ids) + self.pos[: ids.shape[1]]

    def forward(self, src, tgt):
        causal = torch.triu(torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool), 1)
        h = self.core(
            self.embed(src), self.embed(tgt), tgt_mask=causal,
            src_key_padding_mask=src == PAD, tgt_key_padding_mask=tgt == PAD, memory_key_padding_mask=src == PAD,
        )
        return self.out(h)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch-size", type=int, default=12)
    ap.add_argument("--max-len", type=int, default=64)
    args = ap.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)

    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "train.tsv")
        write_corpus(path, 360, random.Random(4))
        data = Pairs(path)
        tok = train_tokenizer([t for p in data.pairs for t in p])
        loader = DataLoader(data, args.batch_size, shuffle=True, drop_last=True, collate_fn=Collator(tok, args.max_len))
        model = Translator(tok.get_vocab_size(), 96, args.max_len)
        opt = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.98))
        loss_fn = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)

        model.train()
        src, tgt = next(iter(loader))
        model(src, tgt[:, :-1]).sum().backward()
        steps, start = 0, time.perf_counter()
        for epoch in range(args.epochs):
            total = 0.0
            for src, tgt in loader:
                logits = model(src, tgt[:, :-1])
                loss = loss_fn(logits.flatten(0, 1), tgt[:, 1:].flatten())
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                total += loss.item()
                steps += 1
            print(f"epoch {epoch}: loss {total / len(loader):.3f}")
            torch.save(model.state_dict(), os.path.join(tmp, "last.pt"))
        seconds = time.perf_counter() - start
    print(f"loop_s={seconds:.3f} steps={steps}")


if __name__ == "__main__":
    main()
