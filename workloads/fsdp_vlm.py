"""Trains a tiny vision-language model under FSDP2 and times its steps; profiling is left to `profkit capture`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from workloads.options import resolve_device
from workloads.vlm.options import Choices, read_choices
from workloads.vlm.training import Outcome, build_job, run
from workloads.world import World, joined_world

# The first eight are the columns of the published study that profkit's scaling tables come from.
SHOWN: Final = {
    "world_size": "d",
    "per_gpu_batch": "d",
    "grad_accum": "d",
    "effective_batch": "d",
    "tokens_per_sec": ",.0f",
    "peak_mem_gb": ".3f",
    "activation_ckpt": "",
    "prefetch": "",
    "step_ms": ".1f",
    "padding_fraction": ".2f",
}


def row_of(outcome: Outcome, choices: Choices, world: World, *, label: str) -> dict[str, Any]:
    """Gives the run as one row of a table of runs: real tokens per second, memory in 1e9 bytes, step times in ms."""
    return {
        "label": label,
        "world_size": world.n_ranks,
        "per_gpu_batch": choices.batch,
        "grad_accum": choices.accumulation,
        "effective_batch": world.n_ranks * choices.batch * choices.accumulation,
        "tokens_per_sec": outcome.tokens_per_s,
        "peak_mem_gb": outcome.peak_bytes / 1e9,
        "activation_ckpt": choices.is_checkpointed,
        "prefetch": choices.is_prefetched,
        "stage": choices.stage,
        "size": choices.size,
        "lora_rank": choices.lora_rank,
        "precision": choices.precision,
        "seed": choices.seed,
        "device": world.device.type,
        "torch": torch.__version__,
        "step_ms": outcome.step_p50_ms,
        "padding_fraction": 1 - outcome.tokens / outcome.padded_tokens,
        "steps_timed": len(outcome.steps_ns),
        "steps_profiled": outcome.n_profiled,
        "first_loss": outcome.first_loss,
        "final_loss": outcome.final_loss,
        "steps_ms": [duration_ns / 1e6 for duration_ns in outcome.steps_ns],
    }


def table(row: dict[str, Any]) -> str:
    """Gives the row as a heading and a line for people."""
    cells = [(name, f"{row[name]:{form}}" if form else str(row[name])) for name, form in SHOWN.items()]
    widths = [max(len(name), len(text)) for name, text in cells]
    heading = "  ".join(name.rjust(width) for (name, _), width in zip(cells, widths, strict=True))
    line = "  ".join(text.rjust(width) for (_, text), width in zip(cells, widths, strict=True))
    return f"{heading}\n{line}"


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Appends the row to a file of one JSON object per line; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; rank 0 prints the result. Gives the exit code."""
    parser, args, choices = read_choices(arguments)
    device = resolve_device(parser, args.device)
    with joined_world(device.type, backend=args.backend) as world:
        job = build_job(choices, world)
        outcome = run(job)
    if world.rank == 0:
        row = row_of(outcome, choices, world, label=args.label)
        print(f"final loss {outcome.final_loss:.6f} (first {outcome.first_loss:.6f})")
        print(table(row))
        if args.json is not None:
            append_row(args.json, row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
