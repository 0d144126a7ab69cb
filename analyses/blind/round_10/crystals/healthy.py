"""CGCNN-like regression of formation energies, data parallel over two gloo processes."""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

NEIGHBOURS = 12
ELEMENTS = 40


def synthetic_crystals(n, seed):
    """Random cells, listed by the number of atoms as the source database lists them."""
    rng = np.random.default_rng(seed)
    atoms = np.sort(rng.integers(4, 61, n))
    trait = rng.normal(size=ELEMENTS)
    crystals = []
    for count in atoms:
        species = rng.integers(0, ELEMENTS, count)
        side = 2.2 * count ** (1 / 3)
        pos = rng.random((count, 3)) * side
        delta = pos[:, None] - pos[None]
        delta -= side * np.round(delta / side)
        dist2 = (delta ** 2).sum(-1) + np.eye(count) * side ** 2 * 2
        order = np.argsort(dist2, 1)[:, :NEIGHBOURS]
        order = order[:, np.arange(NEIGHBOURS) % order.shape[1]]
        length = np.sqrt(np.take_along_axis(dist2, order, 1))
        bond = -np.abs(trait[species][:, None] - trait[species[order]]) * np.exp(-length / 2)
        crystals.append((torch.from_numpy(species), torch.from_numpy(order),
                         torch.from_numpy(length.astype(np.float32)), float(bond.sum(1).mean())))
    energy = np.array([c[3] for c in crystals])
    mean, std = energy.mean(), energy.std()
    return [(s, o, d, (e - mean) / std) for s, o, d, e in crystals]


def pack(items):
    species, order, length, owner, base = [], [], [], [], 0
    for i, (s, o, d, _) in enumerate(items):
        species.append(s)
        order.append(o + base)
        length.append(d)
        owner.append(torch.full((len(s),), i))
        base += len(s)
    target = torch.tensor([it[3] for it in items], dtype=torch.float32)
    return torch.cat(species), torch.cat(order), torch.cat(length), torch.cat(owner), target


class CrystalConv(nn.Module):
    def __init__(self, dim, edge):
        super().__init__()
        self.own = nn.Linear(dim, 2 * dim)
        self.other = nn.Linear(dim, 2 * dim, bias=False)
        self.bond = nn.Linear(edge, 2 * dim, bias=False)
        self.norm = nn.LayerNorm(dim)

    def forward(self, h, order, bond):
        z = self.own(h)[:, None] + self.other(h)[order] + self.bond(bond)
        gate, core = z.chunk(2, -1)
        message = (gate.sigmoid() * F.softplus(core)).sum(1)
        return F.softplus(h + self.norm(message))


class EnergyModel(nn.Module):
    def __init__(self, dim=48, layers=3, edge=24):
        super().__init__()
        self.embed = nn.Embedding(ELEMENTS, dim)
        self.convs = nn.ModuleList(CrystalConv(dim, edge) for _ in range(layers))
        self.head = nn.Sequential(nn.Linear(dim, 96), nn.Softplus(), nn.Linear(96, 1))
        self.register_buffer("grid", torch.linspace(0, 8, edge))

    def forward(self, species, order, length, owner, n):
        bond = torch.exp(-4 * (length[..., None] - self.grid) ** 2)
        h = self.embed(species)
        for conv in self.convs:
            h = conv(h, order, bond)
        total = h.new_zeros(n, h.shape[1]).index_add_(0, owner, h)
        count = torch.bincount(owner, minlength=n).unsqueeze(1)
        return self.head(total / count).squeeze(1)


def main_process(rank, world, args, init_file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=world)
    torch.manual_seed(args.seed)
    everything = synthetic_crystals(args.crystals, args.seed)
    held = everything[::16]
    train = [c for i, c in enumerate(everything) if i % 16]
    mine = train[:len(train) // world * world][rank::world]
    test = pack(held[rank::world])
    model = DDP(EnergyModel())
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    rng = np.random.default_rng(args.seed + rank)

    dist.barrier()
    t0 = time.perf_counter()
    steps = 0
    for epoch in range(args.epochs):
        model.train()
        order = rng.permutation(len(mine))
        total = torch.zeros(3)
        for i in range(0, len(order) - args.batch + 1, args.batch):
            *graph, target = pack([mine[j] for j in order[i:i + args.batch]])
            loss = F.smooth_l1_loss(model(*graph, len(target)), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            steps += 1
            total[0] += loss.item()
        model.eval()
        with torch.no_grad():
            *graph, target = test
            error = (model.module(*graph, len(target)) - target).abs()
        total[1], total[2] = error.sum(), len(error)
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch}: loss {total[0] / world / (steps / (epoch + 1)):.4f}  "
                  f"mae {total[1] / total[2]:.4f}", flush=True)
    dist.barrier()
    seconds = time.perf_counter() - t0
    dist.destroy_process_group()
    if rank == 0:
        print(f"loop_s={seconds:.3f} steps={steps}", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--crystals", type=int, default=1000)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=8)
    args = ap.parse_args()
    with tempfile.TemporaryDirectory(prefix="crystals_") as folder:
        mp.spawn(main_process, args=(2, args, os.path.join(folder, "init")), nprocs=2)
