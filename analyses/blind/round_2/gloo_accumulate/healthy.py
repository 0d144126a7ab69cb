import argparse
import os
import shutil
import tempfile
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Clicks(Dataset):
    """Sessions of item ids; the label is the next item's group."""

    def __init__(self, n, items, length, groups):
        g = torch.Generator().manual_seed(0)
        base = torch.randint(items, (n, 1), generator=g)
        walk = torch.randint(0, 40, (n, length), generator=g).cumsum(1)
        self.x = (base + walk) % items
        self.y = (self.x[:, -1] * groups // items).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class SessionNet(nn.Module):
    def __init__(self, items, dim, hidden, groups):
        super().__init__()
        self.emb = nn.Embedding(items, dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim * 10, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, groups)
        )

    def forward(self, x):
        return self.mlp(self.emb(x).flatten(1))


def worker(rank, world, args, folder):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{folder}/init", rank=rank, world_size=world)
    data = Clicks(args.samples, 4000, 10, 20)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=1)
    loader = DataLoader(data, batch_size=args.micro_batch, sampler=sampler, drop_last=True)
    model = DDP(SessionNet(4000, 64, 1280, 20))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def backward(x, y):
        loss = F.cross_entropy(model(x), y) / args.accumulate
        loss.backward()
        return loss.detach()

    backward(*next(iter(loader)))
    opt.zero_grad()
    dist.barrier()
    steps = 0
    start = time.perf_counter()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for i, (x, y) in enumerate(loader):
            update = (i + 1) % args.accumulate == 0
            with nullcontext() if update else model.no_sync():
                total += backward(x, y)
            if update:
                opt.step()
                opt.zero_grad()
            steps += 1
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch} loss {total.item() * args.accumulate / world / len(loader):.3f}")
    dist.barrier()
    if rank == 0:
        print(f"loop_s={time.perf_counter() - start:.3f} steps={steps}", flush=True)
    dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--samples", type=int, default=5760)
    ap.add_argument("--micro-batch", type=int, default=24)
    ap.add_argument("--accumulate", type=int, default=6)
    ap.add_argument("--epochs", type=int, default=2)
    args = ap.parse_args()
    folder = tempfile.mkdtemp()
    try:
        mp.spawn(worker, args=(2, args, folder), nprocs=2)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
