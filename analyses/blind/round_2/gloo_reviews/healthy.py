import os
import random
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

WORLD, BATCH, EPOCHS, VOCAB = 2, 16, 2, 800


def write_reviews(path, n):
    rng = random.Random(0)
    with open(path, "w") as f:
        for _ in range(n):
            label = rng.randrange(2)
            length = rng.randint(6, 90)
            words = [rng.randrange(3, VOCAB) if rng.random() < 0.9 else 1 + label for _ in range(length)]
            f.write(f"{label}\t{' '.join(map(str, words))}\n")


def read_reviews(path):
    with open(path) as f:
        rows = [line.split("\t") for line in f]
    return [(int(a), [int(w) for w in b.split()]) for a, b in rows]


def make_batches(rows, rank):
    """Batches of similar length for one rank, so that there is little padding."""
    rows = sorted(rows, key=lambda r: len(r[1]))
    batches = [rows[i : i + BATCH] for i in range(0, len(rows) - BATCH + 1, BATCH)]
    share = len(batches) // WORLD
    return batches[rank::WORLD][:share]


def collate(batch):
    width = max(len(w) for _, w in batch)
    ids = torch.zeros(len(batch), width, dtype=torch.long)
    for k, (_, w) in enumerate(batch):
        ids[k, : len(w)] = torch.tensor(w)
    return ids, torch.tensor([y for y, _ in batch])


class Sentiment(nn.Module):
    def __init__(self, dim=96):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=0)
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.1, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(dim, 2)

    def forward(self, ids):
        pad = ids == 0
        h = self.enc(self.emb(ids), src_key_padding_mask=pad)
        return self.out(h.masked_fill(pad.unsqueeze(-1), 0).sum(1) / (~pad).sum(1, keepdim=True))


def average_gradients(model):
    flat = torch.cat([p.grad.flatten() for p in model.parameters()])
    dist.all_reduce(flat)
    flat /= WORLD
    at = 0
    for p in model.parameters():
        p.grad.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()


def run(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "rendezvous"), rank=rank, world_size=WORLD)
    torch.manual_seed(0)
    batches = make_batches(read_reviews(os.path.join(folder, "reviews.tsv")), rank)
    model = Sentiment()
    opt = torch.optim.Adam(model.parameters(), lr=5e-4)
    F.cross_entropy(model(collate(batches[0])[0]), collate(batches[0])[1]).backward()
    opt.zero_grad()
    dist.barrier()
    start, steps = time.perf_counter(), 0
    for epoch in range(EPOCHS):
        order = list(range(len(batches)))
        random.Random(epoch).shuffle(order)
        for b in order:
            ids, y = collate(batches[b])
            loss = F.cross_entropy(model(ids), y)
            opt.zero_grad()
            loss.backward()
            average_gradients(model)
            opt.step()
            steps += 1
        if rank == 0:
            print(f"epoch {epoch} loss {loss.item():.3f}")
    dist.barrier()
    if rank == 0:
        print(f"loop_s={time.perf_counter() - start:.3f} steps={steps}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    tmp = tempfile.mkdtemp()
    try:
        write_reviews(os.path.join(tmp, "reviews.tsv"), 1440)
        mp.spawn(run, args=(tmp,), nprocs=WORLD)
    finally:
        shutil.rmtree(tmp)
