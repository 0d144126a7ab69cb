"""Trains a character-level GPT, in the manner of nanoGPT's train.py; the code is our own.

    python -m workloads.miniatures.char_gpt --steps 100

What is slow in it, as in many copies of the original on a CPU, and what mends it:

- AdamW works through its 44 small tensors one by one, since fused is chosen on CUDA alone: `--optimizer fused`
- one intra-op thread, as in a job that was given one core: `--threads 2`
- a step is two small micro-batches, whose operators cost more to call than to compute: `--batch_size 8
  --gradient_accumulation_steps 1` computes the same sum of gradients, up to rounding
- estimate_loss stops the training each `--eval_interval` steps for 2 x `--eval_iters` batches
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention

SPLITS: Final = {"train": 100_000, "val": 10_000}
"""Characters in each file."""
LETTERS: Final = " abcdefghijklmnopqrstuvwxyz.,\n"


class Attention(nn.Module):
    """Causal self-attention with one projection for queries, keys and values."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the positions of x, shape (batch, time, width)."""
        n_batch, n_time, width = x.shape
        query, key, value = (
            part.view(n_batch, n_time, self.n_heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, dim=2)
        )
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(n_batch, n_time, width))


class Block(nn.Module):
    """Attention and two linear layers, each after a norm and beside a residual."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, n_heads)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Transform x, shape (batch, time, width)."""
        x = x + self.attention(self.norm_1(x))
        return x + self.narrow(gelu(self.wide(self.norm_2(x))))


class GPT(nn.Module):
    """A decoder over characters; the embedding is the last layer as well."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.tokens = nn.Embedding(len(LETTERS), args.n_embd)
        self.places = nn.Embedding(args.block_size, args.n_embd)
        self.blocks = nn.ModuleList(Block(args.n_embd, args.n_head) for _ in range(args.n_layer))
        self.norm = nn.LayerNorm(args.n_embd)
        self.head = nn.Linear(args.n_embd, len(LETTERS), bias=False)
        self.apply(_start)
        self.head.weight = self.tokens.weight

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean loss of predicting y from x, both of shape (batch, time)."""
        hidden = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            hidden = block(hidden)
        logits = self.head(self.norm(hidden))
        return cross_entropy(logits.flatten(0, 1), y.flatten())


def _start(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)


def write_text(folder: Path, seed: int) -> None:
    """Two files of characters as uint16: words of a made-up language, so that there is something to learn."""
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list(LETTERS[1:27]), rng.integers(2, 9))) for _ in range(400)]
    ends = [" "] * 8 + [", ", ".\n"]
    codes = {letter: code for code, letter in enumerate(LETTERS)}
    for name, size in SPLITS.items():
        picks = np.minimum(rng.zipf(1.4, size // 4), len(words)) - 1
        stops = rng.integers(len(ends), size=len(picks))
        text = "".join(words[pick] + ends[stop] for pick, stop in zip(picks, stops, strict=True))[:size]
        np.array([codes[letter] for letter in text], dtype=np.uint16).tofile(folder / f"{name}.bin")


def get_batch(folder: Path, split: str, args: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """Random windows of a file and the same windows one character on; the file is mapped anew each time."""
    data = np.memmap(folder / f"{split}.bin", dtype=np.uint16, mode="r")
    begins = torch.randint(len(data) - args.block_size - 1, (args.batch_size,))
    windows = torch.stack([torch.from_numpy(data[i : i + args.block_size + 1].astype(np.int64)) for i in begins])
    return windows[:, :-1], windows[:, 1:]


@torch.no_grad()
def estimate_loss(model: GPT, folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """The mean loss over `eval_iters` batches of each file."""
    model.eval()
    means = {}
    for split in SPLITS:
        losses = torch.zeros(args.eval_iters)
        for turn in range(args.eval_iters):
            losses[turn] = model(*get_batch(folder, split, args)).item()
        means[split] = losses.mean().item()
    model.train()
    return means


def make_optimizer(model: nn.Module, args: argparse.Namespace) -> torch.optim.AdamW:
    """AdamW with weight decay for matrices alone."""
    parameters = list(model.parameters())
    groups = [
        {"params": [one for one in parameters if one.dim() >= 2], "weight_decay": args.weight_decay},
        {"params": [one for one in parameters if one.dim() < 2], "weight_decay": 0.0},
    ]
    kind = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[args.optimizer]
    return torch.optim.AdamW(groups, lr=args.learning_rate, betas=(0.9, 0.99), **kind)


def learning_rate(step: int, args: argparse.Namespace) -> float:
    """Rises for `warmup_iters` steps, then falls along a cosine to a tenth."""
    if step < args.warmup_iters:
        return args.learning_rate * (step + 1) / (args.warmup_iters + 1)
    done = (step - args.warmup_iters) / max(args.steps - args.warmup_iters, 1)
    return args.learning_rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(done, 1.0))))


def train(args: argparse.Namespace, folder: Path) -> float:
    """Train `args.steps` steps; the loss of the last one."""
    torch.manual_seed(args.seed)
    model = GPT(args)
    optimizer = make_optimizer(model, args)
    n_micro = args.gradient_accumulation_steps
    x, y = get_batch(folder, "train", args)
    total = float("nan")
    began = time.perf_counter()
    for step in range(args.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, args)
        if step and args.eval_interval and step % args.eval_interval == 0:
            found = estimate_loss(model, folder, args)
            print(f"step {step}: train loss {found['train']:.4f}, val loss {found['val']:.4f}")
        total = 0.0
        loss = torch.zeros(())
        for _ in range(n_micro):
            loss = model(x, y) / n_micro
            x, y = get_batch(folder, "train", args)  # the next batch, while a device would be busy
            loss.backward()
        if args.grad_clip:
            nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % args.log_interval == 0 or step == args.steps - 1:
            total = loss.item() * n_micro  # of the last micro-batch
            took_ms = (time.perf_counter() - began) * 1e3
            print(f"iter {step}: loss {total:.4f}, {took_ms / (step + 1):.2f} ms a step so far")
    return total


def build_parser() -> argparse.ArgumentParser:
    """The flags, named as in the original where it has them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", "--max_iters", type=int, default=200)
    parser.add_argument("--batch_size", type=int, default=4, help="sequences in a micro-batch")
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2)
    parser.add_argument("--block_size", type=int, default=48, help="characters of context")
    parser.add_argument("--n_layer", type=int, default=4)
    parser.add_argument("--n_head", type=int, default=4)
    parser.add_argument("--n_embd", type=int, default=64)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--weight_decay", type=float, default=0.1)
    parser.add_argument("--warmup_iters", type=int, default=20)
    parser.add_argument("--grad_clip", type=float, default=1.0, help="0: none")
    parser.add_argument("--eval_interval", type=int, default=100, help="0: never")
    parser.add_argument("--eval_iters", type=int, default=10)
    parser.add_argument("--log_interval", type=int, default=10)
    parser.add_argument("--optimizer", choices=("loop", "foreach", "fused"), default="loop")
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    args = build_parser().parse_args(arguments)
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        write_text(Path(folder), args.seed)
        print(f"final loss {train(args, Path(folder))!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
