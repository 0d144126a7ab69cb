"""Secondary structure (helix, strand, coil) per residue from sequence profiles: a small transformer."""
import argparse
import csv
import pathlib
import tempfile
import time

import torch
from torch import nn
from torch.nn import functional as F

AMINO = 20
STATES = 3


def synth_proteins(n, length, seed):
    g = torch.Generator().manual_seed(seed)
    change = torch.rand(n, length, generator=g) < 0.12
    label = torch.randint(0, STATES, (n, length), generator=g)
    pos = torch.where(change, torch.arange(length), 0).cummax(1).values
    label = label.gather(1, pos)
    pref = torch.randn(STATES, AMINO, generator=g)
    profile = torch.softmax(pref[label] + 1.5 * torch.randn(n, length, AMINO, generator=g), -1)
    return profile, label


class Attention(nn.Module):
    def __init__(self, dim, heads, window):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.rel = nn.Parameter(torch.zeros(heads, 2 * window - 1))
        idx = torch.arange(window)
        self.register_buffer("offset", idx[None] - idx[:, None] + window - 1)

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        score = (q @ k.mT) * (d // self.heads) ** -0.5 + self.rel[:, self.offset]
        return self.proj((score.softmax(-1) @ v).transpose(1, 2).reshape(b, n, d))


class Layer(nn.Module):
    def __init__(self, dim, heads, window):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, window)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.mlp(self.n2(x))


class FoldState(nn.Module):
    def __init__(self, dim, depth, heads, window):
        super().__init__()
        self.inp = nn.Linear(AMINO, dim)
        self.layers = nn.Sequential(*[Layer(dim, heads, window) for _ in range(depth)])
        self.out = nn.Linear(dim, STATES)

    def forward(self, x):
        return self.out(self.layers(self.inp(x)))


class CsvLog:
    def __init__(self, path, names):
        self.f = open(path, "w", newline="")
        self.w = csv.writer(self.f)
        self.w.writerow(["step", "loss", "acc", *names])

    def row(self, *values):
        self.w.writerow([f"{v:.5g}" for v in values])
        self.f.flush()

    def close(self):
        self.f.close()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--proteins", type=int, default=900)
    ap.add_argument("--window", type=int, default=96)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--dim", type=int, default=192)
    ap.add_argument("--depth", type=int, default=4)
    ap.add_argument("--heads", type=int, default=6)
    ap.add_argument("--steps", type=int, default=100)
    ap.add_argument("--log-every", type=int, default=20)
    ap.add_argument("--lr", type=float, default=7e-4)
    ap.add_argument("--seed", type=int, default=12)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    profile, label = synth_proteins(args.proteins, args.window, args.seed)
    model = FoldState(args.dim, args.depth, args.heads, args.window)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
    named = [(n, p) for n, p in model.named_parameters()]
    out = pathlib.Path(tempfile.mkdtemp()) / "train.csv"
    table = CsvLog(out, [n for n, _ in named])

    F.cross_entropy(model(profile[:args.batch]).flatten(0, 1), label[:args.batch].flatten()).backward()
    opt.zero_grad(set_to_none=True)

    t0 = time.perf_counter()
    for step in range(1, args.steps + 1):
        idx = torch.randint(0, args.proteins, (args.batch,))
        y = label[idx].flatten()
        logits = model(profile[idx]).flatten(0, 1)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        if step % args.log_every == 0:
            acc = (logits.argmax(1) == y).float().mean()
            norms = [p.grad.norm().item() for _, p in named]
            table.row(step, loss.item(), acc.item(), *norms)
        opt.step()
        sched.step()
        opt.zero_grad(set_to_none=True)
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
    seconds = time.perf_counter() - t0
    table.close()
    out.unlink()
    out.parent.rmdir()
    print("loop_s=%.3f steps=%d" % (seconds, args.steps))


if __name__ == "__main__":
    main()
