"""Retention time of peptides: attention over residue and k-mer features. Data parallel on two gloo ranks."""
import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

AMINO = 20


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--peptides", type=int, default=7680)
    p.add_argument("--length", type=int, default=32)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--kmer-dim", type=int, default=256)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--seed", type=int, default=17)
    return p.parse_args()


class Peptides(Dataset):
    def __init__(self, n, length, seed):
        g = torch.Generator().manual_seed(seed)
        self.seq = torch.randint(0, AMINO, (n, length), generator=g)
        hydro = torch.randn(AMINO, generator=g)
        pos = torch.linspace(1.3, 0.7, length)
        rt = (hydro[self.seq] * pos).sum(1)
        rt = rt + 0.4 * (hydro[self.seq[:, 1:]] * hydro[self.seq[:, :-1]]).sum(1)
        self.rt = (rt - rt.mean()) / rt.std() + 0.05 * torch.randn(n, generator=g)

    def __len__(self):
        return len(self.seq)

    def __getitem__(self, i):
        return self.seq[i], self.rt[i]


def kmer_features(dim, seed):
    """Stands for the exported features of all tripeptides (frozen, from an earlier protein model)."""
    g = torch.Generator().manual_seed(seed + 1)
    return torch.randn(AMINO ** 3, dim, generator=g) * 0.3


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.ff = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, w))
        return x + self.ff(self.n2(x))


class RetentionNet(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.residue = nn.Embedding(AMINO, a.width)
        self.position = nn.Parameter(torch.zeros(a.length, a.width))
        self.register_buffer("kmers", kmer_features(a.kmer_dim, a.seed))
        self.adapt = nn.Linear(a.kmer_dim, a.width)
        self.blocks = nn.ModuleList(Block(a.width, a.heads) for _ in range(a.layers))
        self.norm = nn.LayerNorm(a.width)
        self.score = nn.Linear(a.width, 1)
        self.head = nn.Sequential(nn.Linear(a.width, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, seq):
        tri = seq[:, :-2] * AMINO * AMINO + seq[:, 1:-1] * AMINO + seq[:, 2:]
        local = self.adapt(F.embedding(tri, self.kmers))
        x = self.residue(seq) + self.position
        x = x + F.pad(local, (0, 0, 1, 1))
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        w = self.score(x).softmax(1)
        return self.head((w * x).sum(1)).squeeze(1)


def worker(rank, world, a, init):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=world)
    torch.manual_seed(a.seed)
    data = Peptides(a.peptides, a.length, a.seed)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=a.seed)
    loader = DataLoader(data, batch_size=a.batch, sampler=sampler, drop_last=True)
    model = DDP(RetentionNet(a), broadcast_buffers=False)
    opt = torch.optim.AdamW(model.parameters(), lr=a.lr, fused=True)
    dist.barrier()

    steps, start = 0, time.perf_counter()
    for epoch in range(a.epochs):
        sampler.set_epoch(epoch)
        seen = torch.zeros(())
        for seq, rt in loader:
            loss = F.smooth_l1_loss(model(seq), rt)
            opt.zero_grad()
            loss.backward()
            opt.step()
            seen += loss.detach()
            steps += 1
            if rank == 0 and steps % 25 == 0:
                print(f"step {steps} loss {loss.item():.4f}", flush=True)
        dist.all_reduce(seen)
        if rank == 0:
            print(f"epoch {epoch} mean loss {seen.item() / (world * len(loader)):.4f}", flush=True)
    loop = time.perf_counter() - start
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (loop, steps), flush=True)
    dist.destroy_process_group()


def main():
    a = get_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as d:
        mp.spawn(worker, args=(2, a, f"file://{d}/rendezvous"), nprocs=2)


if __name__ == "__main__":
    main()
