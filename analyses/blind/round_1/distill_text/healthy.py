import argparse
import json
import os
import random
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

TOPICS = {0: "goal match team coach win league", 1: "vote law court party minister poll", 2: "cell gene protein trial drug virus",
          3: "chip code phone cloud robot data"}
COMMON = "the of and to in a is that for it as on with at by from new last year said more than".split()


def write_jsonl(path, n, rng):
    with open(path, "w") as f:
        for _ in range(n):
            y = rng.randrange(4)
            words = rng.choices(COMMON, k=34) + rng.choices(TOPICS[y].split(), k=6)
            rng.shuffle(words)
            f.write(json.dumps({"text": " ".join(words), "label": y}) + "\n")


class Vocab:
    def __init__(self):
        words = sorted(set(COMMON) | {w for t in TOPICS.values() for w in t.split()})
        self.ids = {w: i for i, w in enumerate(words)}

    def encode(self, text):
        return [self.ids[w] for w in text.split()]


class TextEncoder(nn.Module):
    def __init__(self, vocab, dim, layers, classes=4):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.randn(40, dim) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True) for _ in range(layers))
        self.fc = nn.Linear(dim, classes)

    def forward(self, ids):
        x = self.emb(ids) + self.pos
        for l in self.layers:
            x = l(x)
        return self.fc(x.mean(1))


def loader(path, vocab, batch, seed):
    rows = [json.loads(l) for l in open(path)]
    random.Random(seed).shuffle(rows)
    for i in range(0, len(rows) - batch + 1, batch):
        part = rows[i:i + batch]
        yield torch.tensor([vocab.encode(r["text"]) for r in part]), torch.tensor([r["label"] for r in part])


def kd_loss(student, teacher, y, temp=2.0):
    soft = F.kl_div(F.log_softmax(student / temp, -1), F.log_softmax(teacher / temp, -1), reduction="batchmean", log_target=True)
    return 0.7 * temp * temp * soft + 0.3 * F.cross_entropy(student, y)


def distil_step(student, teacher, opt, ids, y):
    with torch.no_grad():
        target = teacher(ids)
    loss = kd_loss(student(ids), target, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch", type=int, default=16)
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(6)
    vocab = Vocab()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "news.jsonl")
        write_jsonl(path, 480, random.Random(6))
        teacher = TextEncoder(len(vocab.ids), 128, 3)
        topt = torch.optim.Adam(teacher.parameters(), lr=5e-4)
        for ids, y in loader(path, vocab, a.batch, 0):
            topt.zero_grad()
            F.cross_entropy(teacher(ids), y).backward()
            topt.step()
        teacher.eval()
        student = TextEncoder(len(vocab.ids), 96, 2)
        opt = torch.optim.Adam(student.parameters(), lr=1e-3)
        ids, y = next(loader(path, vocab, a.batch, 1))
        distil_step(student, teacher, opt, ids, y)
        steps = 0
        t0 = time.perf_counter()
        for epoch in range(a.epochs):
            losses = []
            for ids, y in loader(path, vocab, a.batch, epoch + 1):
                losses.append(distil_step(student, teacher, opt, ids, y))
            steps += len(losses)
            print(f"epoch {epoch}: {sum(losses) / len(losses):.4f}")
        took = time.perf_counter() - t0
    print(f"loop_s={took:.3f} steps={steps}")


if __name__ == "__main__":
    main()
