"""The command line of `workloads.train`: a regime and its doses."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import torch

from workloads.presets import DEVICE_TYPES, DTYPES, PRESETS, REGIMES, Doses, preset_table

EPILOG: Final = f"""\
examples:
  python -m workloads.train --regime baseline
  python -m workloads.train --regime data --num-workers 2 --json
  profkit run -- python -m workloads.train --regime overhead --device cpu

Nothing here profiles: the phases of a step are seen by `profkit capture`, as in anybody's script.

presets (a column is a flag):
{preset_table()}
"""


def count(text: str) -> int:
    """Reads a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, not {number}")
    return number


def count_or_zero(text: str) -> int:
    """Reads a whole number of at least 0."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"must be at least 0, not {number}")
    return number


def amount(text: str) -> float:
    """Reads a finite number of at least 0."""
    number = float(text)
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be at least 0 and finite, not {text}")
    return number


DOSE_FLAGS: Final[dict[str, tuple[Callable[[str], float], str]]] = {
    "hidden": (count, "width of the hidden layer"),
    "batch": (count, "samples per step"),
    "features": (count, "width of an input sample"),
    "classes": (count, "number of classes"),
    "rounds": (count_or_zero, "rounds of tiny operators (overhead) or big kernels (kernel) in the model"),
    "item_sleep_ms": (amount, "sleep per sample in the loader, in milliseconds"),
    "item_rounds": (count_or_zero, "rounds of tanh and roll per sample in the loader"),
    "num_workers": (count_or_zero, "loader processes; 0 loads in the training process"),
    "samples": (count, "samples held in memory, drawn with replacement"),
    "steps": (count, "training steps (at least 32: a capture takes 25, 31 with two loader workers)"),
    "lr": (amount, "learning rate of AdamW (0.001)"),
    "threads": (count_or_zero, "intra-op threads on the host, 0 for torch's choice"),
    "seed": (count_or_zero, "seed of weights, data and sampling (0)"),
}


def build_parser() -> argparse.ArgumentParser:
    """Gives the parser; a dose that is not on the command line stays None."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads.train",
        description="Train a small classifier in one of four regimes and time its steps.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--regime", choices=REGIMES, required=True, help="which bottleneck the run has")
    parser.add_argument(
        "--device", choices=("auto", *DEVICE_TYPES), default="auto", help="auto takes CUDA where there is one"
    )
    parser.add_argument("--skip", type=count_or_zero, default=2, help="first steps left untimed (2)")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON line")
    doses = parser.add_argument_group("doses", "defaults by regime and device: see the table below")
    for name, (read, text) in DOSE_FLAGS.items():
        doses.add_argument(f"--{name.replace('_', '-')}", type=read, help=text)
    doses.add_argument("--dtype", choices=DTYPES, help="fp32 (default), or bf16 by autocast (fp32 weights)")
    doses.add_argument(
        "--heap-mib",
        type=count_or_zero,
        default=512,
        help="heap to touch before a CPU run without loader workers, in MiB (512)",
    )
    return parser


def resolve_device(parser: argparse.ArgumentParser, name: str) -> torch.device:
    """Gives the device for "auto", "cpu" or "cuda"; a usage error if CUDA is asked for and absent."""
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        parser.error("--device cuda: this torch sees no CUDA device")
    return torch.device("cuda" if has_cuda and name != "cpu" else "cpu")


def resolve(parser: argparse.ArgumentParser, args: argparse.Namespace, device_type: str) -> Doses:
    """Gives the preset with the doses from the command line over it.

    Ends with a usage error if the run has too few steps to time any.
    """
    given = {name: getattr(args, name) for name in (*DOSE_FLAGS, "dtype") if getattr(args, name) is not None}
    doses = replace(PRESETS[args.regime, device_type], **given)
    if doses.steps <= args.skip:
        parser.error(f"--steps {doses.steps} leaves no step to time after the first {args.skip}")
    return doses
