"""Two-rank training of a GRU on event sequences of unequal length."""
import os
import pickle
import random
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence

WORLD, BATCH, EPOCHS = 2, 16, 10
EVENTS = 60


def simulate(path, n=512):
    rng = random.Random(9)
    rows = []
    for _ in range(n):
        y = rng.randrange(3)
        length = min(160, 12 + int(rng.expovariate(1 / 45)))
        rows.append(([(rng.randrange(20) + 20 * y) if rng.random() < 0.3 else rng.randrange(EVENTS) for _ in range(length)], y))
    with open(path, "wb") as f:
        pickle.dump(rows, f)


class SequenceNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(EVENTS + 1, 48, padding_idx=EVENTS)
        self.rnn = nn.GRU(48, 128, batch_first=True)
        self.cls = nn.Linear(128, 3)

    def forward(self, ids):
        keep = (ids != EVENTS).unsqueeze(-1)
        h, _ = self.rnn(self.emb(ids))
        return self.cls((h * keep).sum(1) / keep.sum(1))


class LengthBatches:
    """Batches of similar length for one rank, in a shuffled order per epoch."""

    def __init__(self, rows, rank):
        order = sorted(range(len(rows)), key=lambda i: len(rows[i][0]))
        groups = [order[i:i + BATCH] for i in range(0, len(order), BATCH)]
        share = len(groups) // WORLD
        self.groups = groups[rank * share:(rank + 1) * share]
        self.rows = rows

    def epoch(self, e):
        groups = list(self.groups)
        random.Random(e).shuffle(groups)
        for g in groups:
            ids = pad_sequence([torch.tensor(self.rows[i][0]) for i in g], batch_first=True, padding_value=EVENTS)
            yield ids, torch.tensor([self.rows[i][1] for i in g])


def run(rank, tmp):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", init_method=f"file://{tmp}/store", rank=rank, world_size=WORLD)
    with open(os.path.join(tmp, "events.pkl"), "rb") as f:
        rows = pickle.load(f)
    data = LengthBatches(rows, rank)
    model = DistributedDataParallel(SequenceNet())
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)

    def train_batch(ids, y):
        loss = F.cross_entropy(model(ids), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.detach()

    warm = data.epoch(0)
    for _ in range(3):
        train_batch(*next(warm))
    dist.barrier()
    steps = 0
    t0 = time.perf_counter()
    for e in range(EPOCHS):
        total = torch.zeros(1)
        for ids, y in data.epoch(e):
            total += train_batch(ids, y)
            steps += 1
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {e} loss {total.item() / (WORLD * len(data.groups)):.4f}", flush=True)
    dist.barrier()
    took = time.perf_counter() - t0
    if rank == 0:
        print(f"loop_s={took:.3f} steps={steps}", flush=True)
    dist.destroy_process_group()


def main():
    with tempfile.TemporaryDirectory() as tmp:
        simulate(os.path.join(tmp, "events.pkl"))
        mp.spawn(run, args=(tmp,), nprocs=WORLD, join=True)


if __name__ == "__main__":
    main()
