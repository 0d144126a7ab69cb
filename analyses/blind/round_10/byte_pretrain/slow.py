"""Pre-train a small byte-level decoder on synthetic log text; matrices by Muon, the rest by AdamW."""
import argparse
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def make_corpus(n_bytes, seed):
    rng = np.random.default_rng(seed)
    verbs = ["open", "close", "read", "write", "sync", "lock", "fail", "retry"]
    things = ["socket", "ledger", "table", "index", "bucket", "stream", "page"]
    out, size = [], 0
    while size < n_bytes:
        line = (f"{rng.integers(0, 24):02d}:{rng.integers(0, 60):02d} "
                f"{verbs[rng.integers(len(verbs))]} {things[rng.integers(len(things))]} "
                f"id={rng.integers(0, 999)}\n")
        out.append(line)
        size += len(line)
    return torch.from_numpy(np.frombuffer("".join(out).encode(), dtype=np.uint8).copy())


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.up = nn.Linear(dim, 4 * dim, bias=False)
        self.down = nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class ByteLM(nn.Module):
    def __init__(self, dim, layers, heads, context):
        super().__init__()
        self.tok = nn.Embedding(256, dim)
        self.pos = nn.Embedding(context, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 256, bias=False)

    def forward(self, idx):
        x = self.tok(idx) + self.pos.weight[: idx.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def orthogonalize(g, iters=5):
    a, b, c = 3.4445, -4.7750, 2.0315
    x = g / (g.norm() + 1e-7)
    for _ in range(iters):
        s = x @ x.T
        x = a * x + (b * s + c * s @ s) @ x
    return x


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if not self.state[p]:
                    self.state[p]["buf"] = torch.zeros_like(p)
                buf = self.state[p]["buf"]
                buf.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonalize(p.grad.lerp(buf, group["momentum"]))
                scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
                p.add_(update, alpha=-group["lr"] * scale)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=140)
    ap.add_argument("--dim", type=int, default=96)
    ap.add_argument("--layers", type=int, default=3)
    ap.add_argument("--heads", type=int, default=4)
    ap.add_argument("--context", type=int, default=96)
    ap.add_argument("--batch", type=int, default=12)
    ap.add_argument("--seed", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(args.seed)

    corpus = make_corpus(400_000, args.seed)
    model = ByteLM(args.dim, args.layers, args.heads, args.context)
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    opts = [Muon(matrices, lr=0.01), torch.optim.AdamW(others, lr=2e-3, betas=(0.9, 0.95))]
    scheds = [torch.optim.lr_scheduler.LambdaLR(
        o, lambda s: min(1, (s + 1) / 10) * (0.55 + 0.45 * math.cos(math.pi * s / args.steps)))
        for o in opts]

    offsets = torch.arange(args.context + 1)
    start = time.perf_counter()
    for step in range(args.steps):
        first = torch.randint(0, len(corpus) - args.context - 1, (args.batch, 1))
        window = corpus[first + offsets].long()
        logits = model(window[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        for o in opts:
            o.zero_grad()
        loss.backward()
        for o, s in zip(opts, scheds):
            o.step()
            s.step()
        if step % 20 == 0 or step == args.steps - 1:
            print(f"step {step:4d}  loss {loss.item():.3f}  bits/byte {loss.item() / math.log(2):.3f}")
    loop = time.perf_counter() - start
    print(f"loop_s={loop:.3f} steps={args.steps}")


if __name__ == "__main__":
    main()
