"""Date normaliser: sequence to sequence with GRUs, run through accelerate."""
import csv
import os
import random
import tempfile
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from accelerate import Accelerator
from accelerate.utils import set_seed

MONTHS = "january february march april may june july august september october november december".split()
CHARS = "\0^$ ,./-0123456789abcdefghijklmnopqrstuvwxyz"
INDEX = {c: i for i, c in enumerate(CHARS)}


def make_csv(path, n):
    rng = random.Random(12)
    with open(path, "w", newline="") as f:
        w = csv.writer(f)
        for _ in range(n):
            y, m, d = rng.randint(1950, 2049), rng.randint(1, 12), rng.randint(1, 28)
            src = rng.choice([f"{d} {MONTHS[m - 1]} {y}", f"{MONTHS[m - 1]} {d}, {y}", f"{d:02d}.{m:02d}.{y}", f"{m}/{d}/{y}"])
            w.writerow([src, f"{y}-{m:02d}-{d:02d}"])


class Dates(Dataset):
    def __init__(self, path):
        with open(path, newline="") as f:
            self.rows = list(csv.reader(f))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    def pack(texts):
        m = max(map(len, texts))
        return torch.tensor([[INDEX[c] for c in t.ljust(m, "\0")] for t in texts])
    return pack([s for s, _ in rows]), pack(["^" + t + "$" for _, t in rows])


class Seq2Seq(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.emb = nn.Embedding(len(CHARS), dim)
        self.enc = nn.GRU(dim, dim, batch_first=True)
        self.dec = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(2 * dim, len(CHARS))

    def forward(self, src, tgt):
        h, last = self.enc(self.emb(src))
        d, _ = self.dec(self.emb(tgt), last)
        w = (d @ h.transpose(1, 2)).masked_fill((src == 0).unsqueeze(1), -1e9).softmax(-1)
        return self.out(torch.cat([d, w @ h], -1))


def main():
    set_seed(12)
    torch.set_num_threads(1)
    acc = Accelerator(cpu=True, gradient_accumulation_steps=4)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "dates.csv")
        make_csv(path, 3200)
        data = Dates(path)
    model = Seq2Seq()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    loader = DataLoader(data, batch_size=64, shuffle=True, collate_fn=collate, drop_last=True)
    model, opt, loader = acc.prepare(model, opt, loader)
    crit = nn.CrossEntropyLoss(ignore_index=0)

    def micro_step(src, tgt):
        with acc.accumulate(model):
            logits = model(src, tgt[:, :-1])
            loss = crit(logits.flatten(0, 1), tgt[:, 1:].flatten())
            acc.backward(loss)
            if acc.sync_gradients:
                acc.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            opt.zero_grad()
        return loss.detach()

    src, tgt = next(iter(loader))
    for _ in range(2):
        micro_step(src, tgt)
    steps, t0 = 0, time.perf_counter()
    for epoch in range(2):
        seen = torch.zeros(())
        for src, tgt in loader:
            seen += micro_step(src, tgt)
            steps += 1
        acc.print(f"epoch {epoch} loss {seen.item() / len(loader):.4f}")
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={steps}")


if __name__ == "__main__":
    main()
