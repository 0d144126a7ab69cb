"""Part-of-speech style tagger trained on two ranks with gradient accumulation."""
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

VOCAB, TAGS, WORLD, ACCUM, UPDATES = 16000, 12, 2, 4, 80


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, 64)
        self.rnn = nn.LSTM(64, 64, batch_first=True, bidirectional=True)
        self.out = nn.Linear(128, TAGS)

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


class Sentences(torch.utils.data.Dataset):
    def __init__(self, path, rank):
        z = np.load(path)
        self.ids, self.tags = z["ids"][rank::WORLD], z["tags"][rank::WORLD]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i].astype(np.int64), self.tags[i].astype(np.int64)


def batches(data, rank):
    gen = torch.Generator().manual_seed(rank)
    while True:
        loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True, drop_last=True, generator=gen)
        yield from loader


def update(model, opt, stream):
    opt.zero_grad()
    total = 0.0
    for k in range(ACCUM):
        ids, tags = next(stream)
        loss = F.cross_entropy(model(ids).flatten(0, 1), tags.flatten()) / ACCUM
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    return total


def worker(rank, tmp):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{tmp}/rendezvous", rank=rank, world_size=WORLD)
    stream = batches(Sentences(os.path.join(tmp, "sents.npz"), rank), rank)
    model = DDP(Tagger())
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(2):
        update(model, opt, stream)
    dist.barrier()
    t0 = time.perf_counter()
    for it in range(UPDATES):
        loss = update(model, opt, stream)
        if rank == 0 and it % 20 == 19:
            print(f"update {it + 1} loss {loss:.4f}", flush=True)
    dist.barrier()
    took = time.perf_counter() - t0
    if rank == 0:
        print(f"loop_s={took:.3f} steps={UPDATES * ACCUM}", flush=True)
    dist.destroy_process_group()


def make_data(path):
    rng = np.random.default_rng(2)
    ids = np.minimum(rng.zipf(1.3, size=(1200, 24)), VOCAB - 1).astype(np.int32)
    np.savez(path, ids=ids, tags=((ids * 7 + np.roll(ids, 1, 1)) % TAGS).astype(np.int16))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as tmp:
        make_data(os.path.join(tmp, "sents.npz"))
        mp.spawn(worker, args=(tmp,), nprocs=WORLD)
