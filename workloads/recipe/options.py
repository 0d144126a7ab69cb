"""The command line of `workloads.recipe`: which layers of the recipe, on which model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from workloads.options import amount, count, count_or_zero
from workloads.vlm.sizes import SIZES, Sizes
from workloads.vlm.splice import FIRST_WORD

EPILOG: Final = """\
layers, in the order of the published recipe; the defaults are where it starts:
  --precision bf16            weights in bf16. autocast-off-trap is fp32 in disguise: autocast is on, the Linear
                              layers sit behind a function that asks for fp32, and keep what they always did
  --batch 16 --bucketing on   more samples per step, of like length
  --fusion chunked-ce         head and loss in chunks of --loss-chunk tokens, gradient at once: no logits are kept
  --packing on                samples end to end: no padding, but for attention, which lays them side by side again
  --checkpointing off         keep activations, if memory permits
  --cached-features rows      the frozen tower runs once, before training, into a memory-mapped file; with shards, all
                              of a shard of --shard samples is converted to fp32 to read one of them

examples:
  python -m workloads.recipe --stage 2
  python -m workloads.recipe --batch 16 --packing on --checkpointing off
  profkit run -- python -m workloads.recipe --precision autocast-off-trap

Steps at different --batch do different work: compare real tokens per second, over --samples of the same seed.
"""

# Chosen: mini's head is as much work as its blocks, its tower a sixth of a step, its samples half of the longest, so
# that each layer of the recipe has something to take away on two cores; small is for a GPU.
SHAPES: Final[dict[str, Sizes]] = {
    "mini": Sizes(
        image=32,
        patch=8,
        tower_width=192,
        tower_depth=6,
        tower_heads=6,
        width=128,
        depth=4,
        heads=4,
        kv_heads=2,
        mlp=352,
        vocabulary=16384,
        max_text=64,
    ),
    "small": SIZES["small"],
}
PRECISIONS: Final = ("fp32", "bf16", "autocast-off-trap")
FUSIONS: Final = ("none", "compile", "chunked-ce")
CACHES: Final = ("off", "rows", "shards")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """The layers of one rung; the defaults are the base of the ladder."""

    precision: str = "fp32"
    batch: int = 2
    is_bucketed: bool = False
    fusion: str = "none"
    is_packed: bool = False
    is_checkpointed: bool = True
    cache: str = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Doses:
    """Everything else that decides a run.

    `loss_chunk` counts tokens, `shard` and `samples` samples: of a shard of features, and of the timed steps.
    """

    stage: int = 2
    shape: Sizes = SHAPES["mini"]
    lora_rank: int = 8
    loss_chunk: int = 64
    shard: int = 256
    samples: int = 128
    skip: int = 4
    seed: int = 0
    lr: float = 1e-3
    threads: int = 0
    is_tf32: bool = False
    is_pinned: bool = True

    def n_steps(self, batch: int) -> int:
        """The steps of a run, those that are not timed included."""
        return self.skip + -(-self.samples // batch)


def build_parser() -> argparse.ArgumentParser:
    """Gives the parser; its defaults are those of `Layers` and `Doses`."""
    base, usual = Layers(), Doses()
    parser = argparse.ArgumentParser(
        prog="python -m workloads.recipe",
        description="Train a small vision-language model by layers of a recipe and count its real tokens per second.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: CUDA if there is one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the result to FILE, a line of JSON")
    parser.add_argument("--label", default="", help="a word for the result's row")
    layers = parser.add_argument_group("layers")
    layers.add_argument("--precision", choices=PRECISIONS, default=base.precision, help="(fp32)")
    layers.add_argument("--batch", type=count, default=base.batch, help="samples per step (2)")
    layers.add_argument("--bucketing", choices=("off", "on"), default="off", help="samples of like length (off)")
    layers.add_argument("--fusion", choices=FUSIONS, default=base.fusion, help="(none)")
    layers.add_argument("--packing", choices=("off", "on"), default="off", help="samples end to end (off)")
    layers.add_argument("--checkpointing", choices=("off", "on"), default="on", help="recompute decoder blocks (on)")
    layers.add_argument("--cached-features", choices=CACHES, default=base.cache, help="(off)")
    layers.add_argument("--cache-dir", type=Path, metavar="DIR", help="where the features go (a temporary folder)")
    layers.add_argument("--tf32", choices=("off", "on"), default="off", help="CUDA: fp32 products in TF32 (off)")
    layers.add_argument("--pinned", choices=("off", "on"), default="on", help="CUDA: batches in pinned memory (on)")
    doses = parser.add_argument_group("doses")
    doses.add_argument(
        "--stage", type=int, choices=(1, 2), default=usual.stage, help="1: the projector; 2: LoRA too (2)"
    )
    doses.add_argument(
        "--size", choices=tuple(SHAPES), default="mini", help="shape of the model (mini; small for a GPU)"
    )
    doses.add_argument("--vocabulary", type=count, help="words of the vocabulary (the size's own)")
    doses.add_argument("--tower-depth", type=count_or_zero, help="blocks of the vision tower (the size's own)")
    doses.add_argument("--lora-rank", type=count, default=usual.lora_rank, help="(8)")
    doses.add_argument("--loss-chunk", type=count, default=usual.loss_chunk, help="tokens per chunk of the loss (64)")
    doses.add_argument("--shard", type=count, default=usual.shard, help="samples per shard of the features (256)")
    doses.add_argument("--samples", type=count, default=usual.samples, help="samples of the timed steps (128)")
    doses.add_argument("--steps", type=count, help="this many steps instead; a capture takes about 30")
    doses.add_argument("--skip", type=count_or_zero, default=usual.skip, help="first steps left untimed (4)")
    doses.add_argument("--seed", type=count_or_zero, default=usual.seed, help="seed of weights, data and order (0)")
    doses.add_argument("--lr", type=amount, default=usual.lr, help="learning rate of AdamW (0.001)")
    doses.add_argument(
        "--threads", type=count_or_zero, default=usual.threads, help="intra-op threads, 0: torch's choice"
    )
    return parser


def shape_of(args: argparse.Namespace) -> Sizes:
    """Gives the model's shape with the doses from the command line."""
    given = {"vocabulary": args.vocabulary, "tower_depth": args.tower_depth}
    return replace(SHAPES[args.size], **{name: value for name, value in given.items() if value is not None})


def read_options(arguments: Sequence[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace, Layers, Doses]:
    """Gives the parser, its raw result, the layers and the doses; a usage error where layers exclude each other."""
    parser = build_parser()
    args = parser.parse_args(arguments)
    if args.bucketing == "on" and args.packing == "on":
        parser.error("--packing on leaves no padding for --bucketing on to save: choose one")
    if args.precision == "autocast-off-trap" and args.fusion == "chunked-ce":
        parser.error("--fusion chunked-ce multiplies by itself: the trap would not hold its products")
    if args.steps is not None and args.steps <= args.skip:
        parser.error(f"--steps {args.steps} leaves none to time after --skip {args.skip}")
    if args.vocabulary is not None and args.vocabulary <= FIRST_WORD:
        parser.error(f"--vocabulary {args.vocabulary} has no words: padding and the placeholder take {FIRST_WORD}")
    layers = Layers(
        precision=args.precision,
        batch=args.batch,
        is_bucketed=args.bucketing == "on",
        fusion=args.fusion,
        is_packed=args.packing == "on",
        is_checkpointed=args.checkpointing == "on",
        cache=args.cached_features,
    )
    doses = Doses(
        stage=args.stage,
        shape=shape_of(args),
        lora_rank=args.lora_rank,
        loss_chunk=args.loss_chunk,
        shard=args.shard,
        samples=args.samples if args.steps is None else (args.steps - args.skip) * args.batch,
        skip=args.skip,
        seed=args.seed,
        lr=args.lr,
        threads=args.threads,
        is_tf32=args.tf32 == "on",
        is_pinned=args.pinned == "on",
    )
    return parser, args, layers, doses
