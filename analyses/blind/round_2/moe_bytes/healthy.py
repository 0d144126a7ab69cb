import argparse
import math
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(b, t, d))


class Expert(nn.Sequential):
    def __init__(self, dim, hidden):
        super().__init__(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))


class MoE(nn.Module):
    def __init__(self, dim, hidden, n_experts, top_k):
        super().__init__()
        self.top_k = top_k
        self.router = nn.Linear(dim, n_experts, bias=False)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(n_experts))

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        probs = self.router(x).softmax(dim=-1)
        weight, index = probs.topk(self.top_k, dim=-1)
        weight = weight / weight.sum(dim=-1, keepdim=True)
        gates = torch.zeros_like(probs).scatter(1, index, weight)

        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows = gates[:, e].nonzero().squeeze(1)
            out = out.index_add(0, rows, gates[rows, e].unsqueeze(1) * expert(x[rows]))

        load = (gates > 0).float().mean(dim=0)
        balance = (load * probs.mean(dim=0)).sum() * probs.shape[-1]
        return out.view(shape), balance


class Block(nn.Module):
    def __init__(self, dim, heads, hidden, n_experts, top_k):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.moe = MoE(dim, hidden, n_experts, top_k)

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        y, balance = self.moe(self.ln2(x))
        return x + y, balance


class ByteLM(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.emb = nn.Embedding(256, args.dim)
        self.pos = nn.Embedding(args.seq_len, args.dim)
        self.blocks = nn.ModuleList(
            Block(args.dim, 4, 2 * args.dim, args.experts, args.top_k) for _ in range(args.layers)
        )
        self.ln = nn.LayerNorm(args.dim)
        self.head = nn.Linear(args.dim, 256)

    def forward(self, ids):
        x = self.emb(ids) + self.pos(torch.arange(ids.shape[1]))
        aux = 0.0
        for block in self.blocks:
            x, balance = block(x)
            aux = aux + balance
        return self.head(self.ln(x)), aux


def make_corpus(n_words, seed):
    rng = random.Random(seed)
    words = ["".join(rng.choice("abcdefghijklmnop") for _ in range(rng.randint(2, 8))) for _ in range(400)]
    text = " ".join(rng.choice(words) for _ in range(n_words))
    return torch.tensor(list(text.encode()), dtype=torch.long)


def get_batch(data, gen, args):
    start = torch.randint(0, len(data) - args.seq_len - 1, (args.batch,), generator=gen)
    rows = torch.stack([data[s : s + args.seq_len + 1] for s in start.tolist()])
    return rows[:, :-1], rows[:, 1:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=80)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--seq-len", type=int, default=96)
    p.add_argument("--dim", type=int, default=128)
    p.add_argument("--layers", type=int, default=2)
    p.add_argument("--experts", type=int, default=8)
    p.add_argument("--top-k", type=int, default=2)
    args = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)

    data = make_corpus(20000, 1)
    gen = torch.Generator().manual_seed(2)
    model = ByteLM(args)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def train_step(step):
        x, y = get_batch(data, gen, args)
        logits, aux = model(x)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten()) + 0.01 * aux
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in opt.param_groups:
            group["lr"] = 3e-4 * (0.5 + 0.5 * math.cos(math.pi * step / args.steps))
        opt.step()
        return loss

    for _ in range(3):
        train_step(0)
    t0 = time.perf_counter()
    for step in range(args.steps):
        loss = train_step(step)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}")
    print(f"loop_s={time.perf_counter() - t0:.3f} steps={args.steps}")


if __name__ == "__main__":
    main()
