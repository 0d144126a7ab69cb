"""Two-process (gloo) language model training on synthetic text."""
import argparse
import logging
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class SyntheticText(Dataset):
    """Fixed-length windows over one long token stream with local structure."""

    def __init__(self, n_windows, seq_len, vocab, seed=11):
        g = torch.Generator().manual_seed(seed)
        n = n_windows * seq_len + 1
        base = torch.rand(n, generator=g).pow(3).mul(vocab).long()
        copy = torch.rand(n, generator=g) < 0.5
        shifted = (base.roll(1) * 17 + 5) % vocab
        self.stream = torch.where(copy, shifted, base)
        self.n, self.seq_len = n_windows, seq_len

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        window = self.stream[i * self.seq_len:(i + 1) * self.seq_len + 1]
        return window[:-1], window[1:]


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        att = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(att.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ln_2(x))))


class TextLM(nn.Module):
    def __init__(self, vocab, seq_len, dim=128, heads=4, depth=3):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, dim), nn.Embedding(seq_len, dim)
        self.layers = nn.ModuleList(Layer(dim, heads) for _ in range(depth))
        self.ln_f = nn.LayerNorm(dim)
        self.lm_head = nn.Linear(dim, vocab, bias=False)
        nn.init.normal_(self.wte.weight, std=0.02)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[:ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.ln_f(x))


class TokenAccuracy:
    def __init__(self):
        self.history = []

    @torch.no_grad()
    def update(self, logits, target):
        hits = (logits.argmax(-1) == target).sum()
        counts = torch.stack([hits, torch.tensor(target.numel())])
        dist.all_reduce(counts)
        self.history.append((counts[0] / counts[1]).item())

    def last(self, n):
        tail = self.history[-n:]
        return sum(tail) / len(tail)


def worker(rank, world, port, args):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    logging.basicConfig(level=logging.INFO if rank == 0 else logging.WARNING, format="rank0 %(message)s")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)

    data = SyntheticText(4096, args.seq_len, args.vocab)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=args.seed, drop_last=True)
    loader = DataLoader(data, batch_size=args.batch_size, sampler=sampler, drop_last=True)
    model = DDP(TextLM(args.vocab, args.seq_len), gradient_as_bucket_view=True)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), fused=True)
    metric = TokenAccuracy()
    warmup = 3

    step, epoch = -warmup, 0
    started = time.perf_counter()
    while step < args.steps:
        sampler.set_epoch(epoch)
        for ids, target in loader:
            if step == 0:
                dist.barrier()
                started = time.perf_counter()
            logits = model(ids)
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            metric.update(logits.detach(), target)
            step += 1
            if step > 0 and step % 20 == 0:
                logging.info("step %d loss %.3f token accuracy %.4f", step, loss.item(), metric.last(20))
            if step == args.steps:
                break
        epoch += 1
    dist.barrier()
    elapsed = time.perf_counter() - started
    if rank == 0:
        print("loop_s=%.3f steps=%d" % (elapsed, args.steps), flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=6000)
    ap.add_argument("--seq-len", type=int, default=48)
    ap.add_argument("--batch-size", type=int, default=16, help="for each rank")
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--lr", type=float, default=5e-4)
    ap.add_argument("--seed", type=int, default=2)
    args = ap.parse_args()
    mp.spawn(worker, args=(2, free_port(), args), nprocs=2)
