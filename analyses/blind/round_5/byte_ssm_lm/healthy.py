"""Byte-level language model with diagonal state-space layers (S4D-style), trained on synthetic log text.

The sequence mixer is a long convolution: every layer materialises its kernel from the
discretised diagonal SSM and applies it in the frequency domain.
"""
import argparse
import math
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.fft import next_fast_len


# ----------------------------------------------------------------------------- corpus
SERVICES = ["auth", "billing", "cart", "search", "gateway", "mailer", "ledger", "profile"]
LEVELS = ["DEBUG", "INFO", "INFO", "INFO", "WARN", "ERROR"]
VERBS = ["accepted", "rejected", "queued", "retried", "flushed", "expired", "committed"]


def make_corpus(n_lines, seed):
    rng = random.Random(seed)
    lines = []
    t = 1_700_000_000
    for _ in range(n_lines):
        t += rng.randint(0, 3)
        lines.append(
            f"{t} {rng.choice(LEVELS)} {rng.choice(SERVICES)}[{rng.randint(1, 64)}]: "
            f"request {rng.getrandbits(24):06x} {rng.choice(VERBS)} in {rng.randint(1, 900)}ms"
        )
    return torch.from_numpy(np.frombuffer("\n".join(lines).encode(), dtype=np.uint8).copy())


class ByteWindows:
    """Random windows of `length + 1` bytes."""

    def __init__(self, corpus, length, batch, seed):
        self.corpus = corpus
        self.length = length
        self.batch = batch
        self.gen = torch.Generator().manual_seed(seed)
        self.offsets = torch.arange(length + 1)

    def next(self):
        start = torch.randint(0, len(self.corpus) - self.length - 1, (self.batch,), generator=self.gen)
        window = self.corpus[start[:, None] + self.offsets].long()
        return window[:, :-1], window[:, 1:]


# ----------------------------------------------------------------------------- model
class S4DKernel(nn.Module):
    def __init__(self, d_model, n_state, dt_min=1e-3, dt_max=1e-1):
        super().__init__()
        log_dt = torch.rand(d_model) * (math.log(dt_max) - math.log(dt_min)) + math.log(dt_min)
        self.log_dt = nn.Parameter(log_dt)
        self.C = nn.Parameter(torch.view_as_real(torch.randn(d_model, n_state, dtype=torch.cfloat)))
        self.log_a_real = nn.Parameter(torch.log(0.5 * torch.ones(d_model, n_state)))
        self.a_imag = nn.Parameter(math.pi * torch.arange(n_state).float().repeat(d_model, 1))

    def forward(self, length):
        dt = self.log_dt.exp()
        C = torch.view_as_complex(self.C)
        A = torch.complex(-self.log_a_real.exp(), self.a_imag)
        dtA = A * dt[:, None]
        vand = torch.exp(dtA[..., None] * torch.arange(length))
        C = C * (torch.exp(dtA) - 1.0) / A
        return 2 * torch.einsum("hn,hnl->hl", C, vand).real


class SSMBlock(nn.Module):
    def __init__(self, d_model, n_state):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.kernel = S4DKernel(d_model, n_state)
        self.skip = nn.Parameter(torch.randn(d_model))
        self.out = nn.Linear(d_model, 2 * d_model)

    def long_conv(self, u):
        L = u.shape[-1]
        k = self.kernel(L)
        n = next_fast_len(u.shape[-1] + k.shape[-1] - 1, real=True)
        y = torch.fft.irfft(torch.fft.rfft(u, n=n) * torch.fft.rfft(k, n=n), n=n)[..., :L]
        return y + u * self.skip[:, None]

    def forward(self, x):
        y = self.long_conv(self.norm(x).transpose(1, 2)).transpose(1, 2)
        return x + F.glu(self.out(F.gelu(y)), dim=-1)


class ByteSSM(nn.Module):
    def __init__(self, d_model, n_layers, n_state):
        super().__init__()
        self.embed = nn.Embedding(256, d_model)
        self.blocks = nn.ModuleList(SSMBlock(d_model, n_state) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, 256)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def param_groups(model, lr, wd):
    ssm = [p for n, p in model.named_parameters() if ".kernel." in n]
    rest = [p for n, p in model.named_parameters() if ".kernel." not in n]
    return [{"params": ssm, "lr": lr * 0.1, "weight_decay": 0.0}, {"params": rest, "lr": lr, "weight_decay": wd}]


@torch.no_grad()
def bits_per_byte(model, windows, batches):
    model.eval()
    nll = 0.0
    for _ in range(batches):
        x, y = windows.next()
        nll += F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()
    model.train()
    return nll / batches / math.log(2)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--d-model", type=int, default=96)
    ap.add_argument("--layers", type=int, default=3)
    ap.add_argument("--n-state", type=int, default=4)
    ap.add_argument("--seq-len", type=int, default=1020)
    ap.add_argument("--batch", type=int, default=10)
    ap.add_argument("--steps", type=int, default=40)
    ap.add_argument("--lr", type=float, default=4e-3)
    ap.add_argument("--wd", type=float, default=0.01)
    ap.add_argument("--eval-every", type=int, default=20)
    ap.add_argument("--seed", type=int, default=7)
    args = ap.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    corpus = make_corpus(20_000, args.seed)
    split = int(0.95 * len(corpus))
    train = ByteWindows(corpus[:split], args.seq_len, args.batch, seed=1)
    valid = ByteWindows(corpus[split:], args.seq_len, args.batch, seed=2)

    model = ByteSSM(args.d_model, args.layers, args.n_state)
    opt = torch.optim.AdamW(param_groups(model, args.lr, args.wd), fused=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e3:.0f}k parameters, {len(corpus)} bytes")

    x, y = train.next()
    F.cross_entropy(model(x).flatten(0, 1), y.flatten()).backward()
    opt.zero_grad()

    t0 = time.perf_counter()
    for step in range(1, args.steps + 1):
        x, y = train.next()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        sched.step()
        if step % 10 == 0:
            print(f"step {step:4d}  loss {loss.item():.3f}  lr {sched.get_last_lr()[1]:.2e}")
        if step % args.eval_every == 0:
            print(f"step {step:4d}  valid bpb {bits_per_byte(model, valid, 2):.3f}")
    loop_s = time.perf_counter() - t0
    print("loop_s=%.3f steps=%d" % (loop_s, args.steps))


if __name__ == "__main__":
    main()
