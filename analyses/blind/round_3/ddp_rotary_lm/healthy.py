"""Two-process DDP training (gloo) of a small rotary-embedding language model."""
import argparse
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Rotary(nn.Module):
    def __init__(self, head_dim, max_position, base=10000.0):
        super().__init__()
        inv = base ** (-torch.arange(0, head_dim, 2).float() / head_dim)
        angle = torch.outer(torch.arange(max_position).float(), inv)
        angle = torch.cat([angle, angle], dim=-1)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, x):
        t = x.size(-2)
        a, b = x.chunk(2, dim=-1)
        return x * self.cos[:t] + torch.cat([-b, a], dim=-1) * self.sin[:t]


class Attention(nn.Module):
    def __init__(self, dim, heads, max_position):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.rope = Rotary(dim // heads, max_position)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(self.rope(q), self.rope(k), v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads, max_position):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.attn = Attention(dim, heads, max_position)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.down(F.silu(self.up(self.norm2(x))))


class RotaryLM(nn.Module):
    def __init__(self, vocab, dim, heads, layers, max_position):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, max_position) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.02)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def corpus(n, vocab, seed):
    """Noisy periodic token streams: each document repeats a private motif."""
    g = torch.Generator().manual_seed(seed)
    docs = []
    while sum(map(len, docs)) < n:
        motif = torch.randint(vocab, (int(torch.randint(5, 30, (1,), generator=g)),), generator=g)
        doc = motif.repeat(400 // len(motif))
        noise = torch.rand(len(doc), generator=g) < 0.05
        doc[noise] = torch.randint(vocab, (int(noise.sum()),), generator=g)
        docs.append(doc)
    return torch.cat(docs)[:n]


def windows(tokens, block, rank, world):
    usable = (len(tokens) - 1) // block * block
    x = tokens[:usable].view(-1, block)
    y = tokens[1:usable + 1].view(-1, block)
    return x[rank::world], y[rank::world]


def worker(rank, world, port, args):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=world)
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    x, y = windows(corpus(args.tokens, args.vocab, args.seed), args.block, rank, world)
    model = DDP(RotaryLM(args.vocab, args.dim, args.heads, args.layers, args.max_position),
                broadcast_buffers=False)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), fused=True)
    order = torch.Generator().manual_seed(args.seed + rank)

    dist.barrier()
    began = time.perf_counter()
    meter = torch.zeros(())
    for step in range(1, args.steps + 1):
        pick = torch.randint(len(x), (args.batch,), generator=order)
        loss = F.cross_entropy(model(x[pick]).flatten(0, 1), y[pick].flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        meter += loss.detach()
        if step % args.log_every == 0:
            dist.all_reduce(meter)
            if rank == 0:
                print(f"step {step} loss {meter.item() / world / args.log_every:.4f}", flush=True)
            meter.zero_()
    dist.barrier()
    seconds = time.perf_counter() - began
    if rank == 0:
        print(f"loop_s={seconds:.3f} steps={args.steps}", flush=True)
    dist.destroy_process_group()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=512)
    ap.add_argument("--dim", type=int, default=128)
    ap.add_argument("--heads", type=int, default=4)
    ap.add_argument("--layers", type=int, default=4)
    ap.add_argument("--block", type=int, default=96)
    ap.add_argument("--max-position", type=int, default=65536)
    ap.add_argument("--batch", type=int, default=8)
    ap.add_argument("--tokens", type=int, default=100_000)
    ap.add_argument("--steps", type=int, default=60)
    ap.add_argument("--log-every", type=int, default=20)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=31)
    cli = ap.parse_args()
    mp.spawn(worker, args=(2, free_port(), cli), nprocs=2, join=True)
