"""Fine-tunes a sequence classifier, in the manner of Hugging Face's run_glue_no_trainer.py; the code is our own.

    python -m workloads.miniatures.text_classifier --steps 100

What is slow in it, as in many copies of the original, and what mends it:

- AdamW works through its 104 small tensors one by one, which is the default on a CPU: `--optimizer fused`
- one intra-op thread: `--threads 2`; more threads than cores make it slower still: `--threads 16`
- batches are padded to their longest text, and lengths have a long tail: `--group_by_length` pads less, and trains on
  other batches
- metrics keep Python lists of each token: a full collection of garbage, some 0.2 s, stops one step in a hundred or so;
  `--no_token_metrics`, or `--freeze_objects` for what lives from the start
- with `--collect_steps 5` such a collection is asked for every five steps, as copies do that once ran out of memory:
  `--freeze_objects` leaves it little to look through
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention
from torch.utils.data import DataLoader

WORDS: Final = 2000
PADDING: Final = 0
START: Final = 1
LABELS: Final = 2
SHORTEST: Final = 6
"""Words of the shortest text."""
Example = dict[str, Any]


class Layer(nn.Module):
    """A layer of an encoder: attention and two linear layers, each with a norm behind it."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Transform x, shape (batch, time, width); `mask`, (batch, 1, 1, time), is true where there are words."""
        n_batch, n_time, width = x.shape
        query, key, value = (
            part(x).view(n_batch, n_time, self.n_heads, -1).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=mask)
        x = self.norm_1(x + self.drop(self.out(mixed.transpose(1, 2).reshape(n_batch, n_time, width))))
        return self.norm_2(x + self.drop(self.narrow(gelu(self.wide(x)))))


class Classifier(nn.Module):
    """An encoder whose first position is classified."""

    def __init__(self, args: argparse.Namespace) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, args.width, padding_idx=PADDING)
        self.places = nn.Embedding(args.max_length, args.width)
        self.norm = nn.LayerNorm(args.width)
        self.layers = nn.ModuleList(Layer(args.width, args.heads) for _ in range(args.layers))
        self.pooler = nn.Linear(args.width, args.width)
        self.classifier = nn.Linear(args.width, LABELS)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The logits, shape (batch, labels), of texts, shape (batch, time)."""
        hidden = self.norm(self.words(input_ids) + self.places(torch.arange(input_ids.shape[1])))
        mask = attention_mask[:, None, None].bool()
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self.classifier(torch.tanh(self.pooler(hidden[:, 0])))


def make_examples(n_examples: int, max_length: int, seed: int) -> list[Example]:
    """Texts as tokenizers give them, lists of numbers; which of two kinds of words is more frequent is the label."""
    rng = np.random.default_rng(seed)
    lengths = np.clip(rng.lognormal(2.8, 0.6, n_examples).astype(int), SHORTEST, max_length)
    examples = []
    for length in lengths.tolist():
        label = int(rng.integers(LABELS))
        words = rng.integers(2, WORDS // 2, length - 1) * 2 + (rng.random(length - 1) < 0.25 + 0.5 * label) - 2
        examples.append({"input_ids": [START, *words.tolist()], "attention_mask": [1] * length, "label": label})
    return examples


def collate(examples: Sequence[Example]) -> dict[str, Tensor]:
    """A batch, padded to its longest text."""
    longest = max(len(one["input_ids"]) for one in examples)
    padded = {
        name: [one[name] + [PADDING] * (longest - len(one[name])) for one in examples]
        for name in ("input_ids", "attention_mask")
    }
    columns = {name: torch.tensor(rows) for name, rows in padded.items()}
    return {**columns, "labels": torch.tensor([one["label"] for one in examples])}


def grouped(examples: Sequence[Example], batch: int, seed: int) -> list[list[int]]:
    """Batches of texts of about the same length, in random order."""
    order = sorted(range(len(examples)), key=lambda index: len(examples[index]["input_ids"]))
    batches = [order[begin : begin + batch] for begin in range(0, len(order), batch)]
    mixed = np.random.default_rng(seed).permutation(len(batches))
    return [batches[place] for place in mixed]


class Metrics:
    """Accuracy and F1 of what was seen, counted in Python; with `by_token` also how often each word was right."""

    def __init__(self, *, by_token: bool) -> None:
        self.by_token = by_token
        self.pairs: Counter[tuple[int, int]] = Counter()
        self.seen: list[Example] = []

    def add_batch(self, predictions: list[int], batch: dict[str, Tensor]) -> None:
        """Take in the predictions of a batch."""
        references = batch["labels"].tolist()
        self.pairs.update(zip(predictions, references, strict=True))
        if self.by_token:
            for guess, truth, words in zip(predictions, references, batch["input_ids"].tolist(), strict=True):
                self.seen.append({"right": guess == truth, "words": [[word, guess, truth] for word in words if word]})

    def compute(self) -> dict[str, float]:
        """Accuracy and F1 so far."""
        total = sum(self.pairs.values())
        right = sum(count for (guess, truth), count in self.pairs.items() if guess == truth)
        true = self.pairs[1, 1]
        wrong = self.pairs[1, 0] + self.pairs[0, 1]
        return {"accuracy": right / max(total, 1), "f1": 2 * true / max(2 * true + wrong, 1)}


def make_optimizer(model: nn.Module, args: argparse.Namespace) -> torch.optim.AdamW:
    """AdamW without weight decay for biases and norms."""
    named = list(model.named_parameters())
    spared = ("bias", "norm")
    groups = [
        {
            "params": [one for name, one in named if not any(word in name for word in spared)],
            "weight_decay": args.weight_decay,
        },
        {"params": [one for name, one in named if any(word in name for word in spared)], "weight_decay": 0.0},
    ]
    kind = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}[args.optimizer]
    return torch.optim.AdamW(groups, lr=args.learning_rate, **kind)


def train(args: argparse.Namespace) -> float:
    """Train `args.steps` steps; the loss of the last one."""
    torch.manual_seed(args.seed)
    examples = make_examples(args.examples, args.max_length, args.seed)
    batch = args.per_device_train_batch_size
    if args.group_by_length:
        loader = DataLoader(examples, batch_sampler=grouped(examples, batch, args.seed), collate_fn=collate)
    else:
        loader = DataLoader(examples, batch, shuffle=True, collate_fn=collate)
    model = Classifier(args)
    optimizer = make_optimizer(model, args)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / (args.num_warmup_steps + 1), max(1 - step / args.steps, 0.0)),
    )
    if args.freeze_objects:
        gc.collect()
        gc.freeze()
    metrics = Metrics(by_token=not args.no_token_metrics)
    step, mean, loss = 0, 0.0, torch.zeros(())
    while step < args.steps:
        for batch in loader:
            logits = model(batch["input_ids"], batch["attention_mask"])
            loss = cross_entropy(logits, batch["labels"])
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            metrics.add_batch(logits.argmax(-1).tolist(), batch)
            mean += (loss.item() - mean) / (step + 1)
            if step % args.logging_steps == 0:
                print(f"step {step}: loss {loss.item():.4f}, mean {mean:.4f}", metrics.compute())
            step += 1
            if args.collect_steps and step % args.collect_steps == 0:
                gc.collect()
            if step == args.steps:
                break
    return loss.item()


def build_parser() -> argparse.ArgumentParser:
    """The flags, named as in the original where it has them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", "--max_train_steps", type=int, default=200)
    parser.add_argument("--per_device_train_batch_size", type=int, default=8)
    parser.add_argument("--max_length", type=int, default=64)
    parser.add_argument("--examples", type=int, default=8000)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--learning_rate", type=float, default=2e-3)
    parser.add_argument("--weight_decay", type=float, default=0.01)
    parser.add_argument("--num_warmup_steps", type=int, default=10)
    parser.add_argument("--max_grad_norm", type=float, default=1.0)
    parser.add_argument("--logging_steps", type=int, default=10)
    parser.add_argument("--group_by_length", action="store_true")
    parser.add_argument("--optimizer", choices=("loop", "foreach", "fused"), default="loop")
    parser.add_argument("--collect_steps", type=int, default=0, help="gc.collect() every so many steps; 0: never")
    parser.add_argument("--freeze_objects", action="store_true", help="gc.freeze() after the set-up")
    parser.add_argument("--no_token_metrics", action="store_true", help="keep no numbers of each word")
    parser.add_argument("--threads", type=int, default=1, help="intra-op threads")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    args = build_parser().parse_args(arguments)
    torch.set_num_threads(args.threads)
    print(f"final loss {train(args)!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
