"""The runs of the study: every cell once in each block, in an order drawn anew, each in fresh processes."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
GLOBAL_BATCH: Final = 16
MICRO_BATCH: Final = 4
COLUMNS: Final = (
    "block",
    "order",
    "world_size",
    "per_gpu_batch",
    "grad_accum",
    "effective_batch",
    "activation_ckpt",
    "prefetch",
    "tokens_per_sec",
    "step_ms",
    "steps_timed",
    "peak_rss_gb",
    "final_loss",
    "load_before",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One configuration of the study; a twin is a second sample of a cell, for the noise of the machine."""

    n_ranks: int
    is_checkpointed: bool
    is_prefetched: bool
    is_twin: bool = False

    def command(self, rows: Path, *, n_steps: int) -> list[str]:
        """Gives the command that runs the cell and appends its row to `rows`."""
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(self.n_ranks)]
        rendezvous = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]  # a free port, whoever else runs
        accumulation = GLOBAL_BATCH // (MICRO_BATCH * self.n_ranks)
        work = ["--device", "cpu", "--batch", str(MICRO_BATCH), "--accumulation", str(accumulation)]
        switches = [
            *("--checkpoint", "on" if self.is_checkpointed else "off"),
            *("--prefetch", "on" if self.is_prefetched else "off"),
        ]
        steps = ["--steps", str(n_steps), "--json", str(rows)]
        return [sys.executable, *launcher, *rendezvous, "-m", "workloads.fsdp_vlm", *work, *switches, *steps]


# A single rank gathers nothing, so prefetch has nothing to do there.
CELLS: Final = (
    *(Cell(n_ranks=1, is_checkpointed=kept, is_prefetched=False) for kept in (False, True)),
    *(
        Cell(n_ranks=n_ranks, is_checkpointed=kept, is_prefetched=ahead)
        for n_ranks in (2, 4)
        for kept in (False, True)
        for ahead in (False, True)
    ),
    *(Cell(n_ranks=n, is_checkpointed=False, is_prefetched=False, is_twin=True) for n in (2, 4)),
)


def measure(*, n_blocks: int, n_steps: int, seed: int = 0) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Gives the rows of the study and those of its twins, in the order they were run.

    A slow hour of the machine falls on all cells of a block, and the order within it on none by rule. Raises
    `subprocess.CalledProcessError` if a run fails.
    """
    draw = random.Random(seed)  # noqa: S311 - an order of runs needs a seed, not a secret
    rows: list[dict[str, Any]] = []
    twins: list[dict[str, Any]] = []
    for block in range(n_blocks):
        for order, cell in enumerate(draw.sample(CELLS, len(CELLS))):
            row = {**run_cell(cell, n_steps=n_steps), "block": block, "order": order}
            (twins if cell.is_twin else rows).append({name: row[name] for name in COLUMNS})
            print(_told(row, cell), file=sys.stderr, flush=True)
    return rows, twins


def run_cell(cell: Cell, *, n_steps: int) -> dict[str, Any]:
    """Runs a cell once and gives its row."""
    load = os.getloadavg()[0]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory(prefix="study-") as name:
        path = Path(name) / "row.jsonl"
        subprocess.run(cell.command(path, n_steps=n_steps), cwd=ROOT, env=env, check=True, capture_output=True)
        row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    # Resident memory of the host, not a device's: a name that no table reader takes for one.
    return {**row, "peak_rss_gb": row["peak_mem_gb"], "load_before": load}


def write_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Writes rows as CSV, numbers to six digits: what differs beyond them is noise of the clock."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow([f"{row[name]:.6g}" if isinstance(row[name], float) else row[name] for name in COLUMNS])


def _told(row: dict[str, Any], cell: Cell) -> str:
    switches = f"checkpoint {cell.is_checkpointed!s:5} prefetch {cell.is_prefetched!s:5}"
    seen = f"{row['tokens_per_sec']:7,.0f} tokens/s, load {row['load_before']:.1f}"
    clock = time.strftime("%H:%M:%S")
    return f"{clock} block {row['block']}, {cell.n_ranks} ranks, {switches}{' twin' * cell.is_twin}: {seen}"
