"""Trains one rung of the recipe and says how many real tokens per second it makes."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from workloads.options import resolve_device
from workloads.recipe.options import Doses, Layers, read_options
from workloads.recipe.training import Outcome, built_job, run


def row_of(outcome: Outcome, layers: Layers, doses: Doses, device: torch.device) -> dict[str, Any]:
    """Gives the run as a row of a table: real tokens per second, memory in 1e9 bytes, times in ms."""
    return {
        "stage": doses.stage,
        **asdict(layers),
        "vocabulary": doses.shape.vocabulary,
        "tower_depth": doses.shape.tower_depth,
        "loss_chunk": doses.loss_chunk,
        "lora_rank": doses.lora_rank,
        "shard": doses.shard,
        "lr": doses.lr,
        "threads": doses.threads,
        "is_tf32": doses.is_tf32,
        "is_pinned": doses.is_pinned,
        "seed": doses.seed,
        "device": device.type,
        "torch": torch.__version__,
        "real_tokens_per_sec": outcome.tokens_per_s,
        "peak_mem_gb": outcome.peak_bytes / 1e9,
        "pad_fraction": outcome.pad_fraction,
        "step_ms": outcome.step_p50_ms,
        "tokens": outcome.tokens,
        "samples": outcome.samples,
        "steps_timed": len(outcome.steps_ns),
        "first_loss": outcome.losses[0],
        "final_loss": outcome.losses[-1],
        "mean_loss": sum(outcome.losses) / len(outcome.losses),
        "steps_ms": [duration_ns / 1e6 for duration_ns in outcome.steps_ns],
    }


def as_text(row: dict[str, Any]) -> str:
    """Gives the row as a line for people."""
    return (
        f"stage {row['stage']}, batch {row['batch']}: {row['real_tokens_per_sec']:,.0f} real tokens/s,"
        f" step {row['step_ms']:.1f} ms, padding {100 * row['pad_fraction']:.1f} %,"
        f" peak {row['peak_mem_gb']:.2f} GB, loss {row['first_loss']:.4f} to {row['final_loss']:.4f}"
    )


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Appends the row to a file of one JSON object per line; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and prints the result; gives the exit code."""
    parser, args, layers, doses = read_options(arguments)
    device = resolve_device(parser, args.device)
    with built_job(layers, doses, device, folder=args.cache_dir) as job:
        outcome = run(job)
    row = {"label": args.label, **row_of(outcome, layers, doses, device)}
    print(as_text(row))
    if args.json is not None:
        append_row(args.json, row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
