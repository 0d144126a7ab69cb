"""The command line of `workloads.fsdp_vlm`: which training, divided how."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workloads.options import amount, count, count_or_zero
from workloads.vlm.sizes import SIZES

EPILOG: Final = """\
examples:
  python -m workloads.fsdp_vlm                                          one rank, no torchrun needed
  torchrun --nproc-per-node 2 -m workloads.fsdp_vlm --prefetch on       as many ranks as torchrun starts
  profkit capture -- torchrun --nproc-per-node 2 -m workloads.fsdp_vlm  a trace of each rank

One step takes ranks x batch x accumulation samples. Halve the accumulation as the ranks double, and the work of a
step stays the same to the sample: strong scaling. Leave it, and the work grows with the ranks: weak scaling.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Everything that decides what one run does, besides its device and its ranks.

    `batch` counts samples per micro-batch and rank; `lora_rank` 0 trains the decoder whole; `lr` is AdamW's.
    """

    stage: int = 2
    size: str = "tiny"
    batch: int = 4
    accumulation: int = 1
    steps: int = 40
    skip: int = 5
    seed: int = 0
    lr: float = 1e-3
    precision: str = "fp32"
    lora_rank: int = 0
    is_tied: bool = True
    is_prefetched: bool = False
    is_checkpointed: bool = False
    threads: int = 1


def build_parser() -> argparse.ArgumentParser:
    """Gives the parser; its defaults are those of `Choices`."""
    usual = Choices()
    parser = argparse.ArgumentParser(
        prog="python -m workloads.fsdp_vlm",
        description="Train a tiny vision-language model under FSDP2 and time its steps.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: CUDA if there is one")
    parser.add_argument(
        "--backend", choices=("auto", "gloo", "nccl"), default="auto", help="auto: gloo on CPU, else nccl"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the result to FILE, a line of JSON")
    parser.add_argument("--label", default="", help="a word for the result's row")
    what = parser.add_argument_group("what is trained")
    what.add_argument(
        "--stage", type=int, choices=(1, 2), default=usual.stage, help="1: the projector; 2: the decoder too (2)"
    )
    what.add_argument("--size", choices=tuple(SIZES), default=usual.size, help="shape of the model (tiny)")
    what.add_argument(
        "--lora-rank", type=count_or_zero, default=usual.lora_rank, help="stage 2 by LoRA of this rank; 0: whole (0)"
    )
    what.add_argument("--head", choices=("tied", "own"), default="tied", help="the decoder's output weights (tied)")
    what.add_argument("--seed", type=count_or_zero, default=usual.seed, help="seed of weights and data (0)")
    what.add_argument("--lr", type=amount, default=usual.lr, help="learning rate of AdamW (0.001)")
    how = parser.add_argument_group("how")
    how.add_argument("--batch", type=count, default=usual.batch, help="samples per micro-batch and rank (4)")
    how.add_argument("--accumulation", type=count, default=usual.accumulation, help="micro-batches per step (1)")
    how.add_argument("--steps", type=count, default=usual.steps, help="training steps; a capture takes about 25 (40)")
    how.add_argument("--skip", type=count_or_zero, default=usual.skip, help="first steps left untimed (5)")
    how.add_argument("--prefetch", choices=("off", "on"), default="off", help="FSDP's explicit forward prefetch (off)")
    how.add_argument("--checkpoint", choices=("off", "on"), default="off", help="recompute decoder blocks (off)")
    how.add_argument(
        "--precision", choices=("fp32", "bf16"), default="fp32", help="bf16 by FSDP's policy: fp32 shards (fp32)"
    )
    how.add_argument(
        "--threads", type=count_or_zero, default=usual.threads, help="intra-op threads per rank, 0: torch's choice (1)"
    )
    return parser


def read_choices(arguments: Sequence[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace, Choices]:
    """Gives the parser, its raw result and the choices; ends with a usage error if no step would be timed."""
    parser = build_parser()
    args = parser.parse_args(arguments)
    if args.steps <= args.skip:
        parser.error(f"--steps {args.steps} leaves no step to time after the first {args.skip}")
    return (
        parser,
        args,
        Choices(
            stage=args.stage,
            size=args.size,
            batch=args.batch,
            accumulation=args.accumulation,
            steps=args.steps,
            skip=args.skip,
            seed=args.seed,
            lr=args.lr,
            precision=args.precision,
            lora_rank=args.lora_rank,
            is_tied=args.head == "tied",
            is_prefetched=args.prefetch == "on",
            is_checkpointed=args.checkpoint == "on",
            threads=args.threads,
        ),
    )
