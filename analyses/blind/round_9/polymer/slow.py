"""Glass transition temperature of copolymers from their monomer sequence; DDP on two CPU processes."""
import argparse
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

MONOMERS = 24


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--chains", type=int, default=2400)
    ap.add_argument("--min-len", type=int, default=8)
    ap.add_argument("--max-len", type=int, default=110)
    ap.add_argument("--batch-size", type=int, default=16, help="per process")
    ap.add_argument("--steps", type=int, default=120)
    ap.add_argument("--dim", type=int, default=96)
    ap.add_argument("--layers", type=int, default=3)
    ap.add_argument("--lr", type=float, default=5e-4)
    ap.add_argument("--seed", type=int, default=6)
    return ap.parse_args()


def make_chains(args):
    """List of (sequence, Tg), shortest chain first."""
    rng = np.random.default_rng(args.seed)
    stiffness = rng.normal(0, 1, MONOMERS)
    pair = rng.normal(0, 0.5, (MONOMERS, MONOMERS))
    chains = []
    for _ in range(args.chains):
        n = int(rng.integers(args.min_len, args.max_len + 1))
        block = int(rng.integers(2, 8))
        kinds = rng.choice(MONOMERS, 4, replace=False)
        seq = np.repeat(rng.choice(kinds, n // block + 1), block)[:n]
        tg = stiffness[seq].mean() + pair[seq[:-1], seq[1:]].mean() - 8.0 / n + rng.normal(0, 0.05)
        chains.append((torch.from_numpy(seq + 1), float(tg)))
    chains.sort(key=lambda c: len(c[0]))
    return chains


def pad(chains):
    seqs = nn.utils.rnn.pad_sequence([c[0] for c in chains], batch_first=True)
    return seqs, torch.tensor([c[1] for c in chains])


class PolymerNet(nn.Module):
    def __init__(self, dim, layers, max_len):
        super().__init__()
        self.embed = nn.Embedding(MONOMERS + 1, dim, padding_idx=0)
        self.place = nn.Embedding(max_len, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, 1))

    def forward(self, seq):
        empty = seq == 0
        x = self.embed(seq) + self.place.weight[: seq.shape[1]]
        x = self.encoder(x, src_key_padding_mask=empty)
        keep = (~empty).unsqueeze(-1).to(x.dtype)
        return self.out((x * keep).sum(1) / keep.sum(1)).squeeze(1)


def shard_batches(chains, rank, world, batch_size):
    """The batches of this process; chains of like length go together to save padding."""
    per_rank = len(chains) // world
    mine = chains[rank * per_rank:(rank + 1) * per_rank]
    return [pad(mine[i:i + batch_size]) for i in range(0, per_rank - batch_size + 1, batch_size)]


def endless(batches, seed):
    gen = torch.Generator().manual_seed(seed)
    while True:
        for k in torch.randperm(len(batches), generator=gen).tolist():
            yield batches[k]


def work(rank, world, init_file, args):
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=world)
    chains = make_chains(args)
    tg = torch.tensor([c[1] for c in chains])
    centre, spread = tg.mean(), tg.std()
    batches = shard_batches(chains, rank, world, args.batch_size)

    model = DDP(PolymerNet(args.dim, args.layers, args.max_len))
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
    feed = endless(batches, args.seed)

    dist.barrier()
    t0 = time.perf_counter()
    total = torch.zeros(())
    for step in range(1, args.steps + 1):
        seq, y = next(feed)
        loss = nn.functional.smooth_l1_loss(model(seq), (y - centre) / spread)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        total += loss.detach()
        if step % 30 == 0:
            mean = total / 30
            dist.all_reduce(mean)
            total.zero_()
            if rank == 0:
                print(f"step {step} loss {mean.item() / world:.4f}", flush=True)
    dist.barrier()
    took = time.perf_counter() - t0
    if rank == 0:
        print(f"loop_s={took:.3f} steps={args.steps}", flush=True)
    dist.destroy_process_group()


def main():
    args = parse()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, args=(2, os.path.join(folder, "rendezvous"), args), nprocs=2)


if __name__ == "__main__":
    main()
