"""The runs: every cell once in each block, in an order drawn anew, each in a fresh process; what is there is kept."""

from __future__ import annotations

import csv
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from analyses.vlm_recipe.cells import Cell

ROOT: Final = Path(__file__).resolve().parents[2]
SKIP: Final = 4
COLUMNS: Final = (
    "rung",
    "layers",
    "stage",
    "batch",
    "vocabulary",
    "tower_depth",
    "real_tokens_per_sec",
    "step_ms",
    "pad_fraction",
    "peak_mem_gb",
    "block",
    "order",
    "slug",
    "steps_timed",
    "first_loss",
    "load_before",
)
Row = dict[str, Any]


def measure(cells: Sequence[Cell], path: Path, *, n_blocks: int, seed: int = 0) -> None:
    """Runs what the table lacks and appends each run to it.

    A slow hour of the machine falls on all cells of a block, and the order within it on none by rule. Raises
    `subprocess.CalledProcessError` if a run fails.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {(row["slug"], row["block"]) for row in read_rows(path)}
    for block in range(n_blocks):
        draw = random.Random(f"{seed} {block}")  # noqa: S311 - an order of runs needs a seed, not a secret
        for order, cell in enumerate(draw.sample(cells, len(cells))):
            if (cell.slug, str(block)) not in done:
                row = {**run_cell(cell), "block": block, "order": order}
                append(path, row)
                tell(f"block {block}, {cell.slug:24} {row['real_tokens_per_sec']:8,.0f} tokens/s")


def run_cell(cell: Cell) -> Row:
    """Runs a cell once and gives its row."""
    load = os.getloadavg()[0]
    samples = [] if cell.samples is None else ["--samples", str(cell.samples)]
    with tempfile.TemporaryDirectory(prefix="recipe-") as name:
        path = Path(name) / "row.jsonl"
        command = [sys.executable, "-m", "workloads.recipe", *cell.arguments, *samples, "--skip", str(SKIP)]
        subprocess.run([*command, "--json", str(path)], cwd=ROOT, env=environment(), check=True, capture_output=True)
        row: Row = json.loads(path.read_text(encoding="utf-8"))
    return {**row, **named(cell), "load_before": load}


def named(cell: Cell) -> Row:
    """Gives what the rows of a cell call it."""
    return {"slug": cell.slug, "rung": rung_of(cell), "layers": cell.layers}


def rung_of(cell: Cell) -> str:
    """Gives the cell's name within its stage."""
    return cell.slug.partition("/")[2]


def environment() -> dict[str, str]:
    """Gives the environment of every run: threads are the workload's own choice."""
    return {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}


def tell(line: str) -> None:
    """Says how far it is."""
    print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr, flush=True)


def append(path: Path, row: Row) -> None:
    """Appends a row, numbers to six digits: what differs beyond them is noise of the clock."""
    is_new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if is_new:
            writer.writerow(COLUMNS)
        writer.writerow([f"{row[name]:.6g}" if isinstance(row[name], float) else row[name] for name in COLUMNS])


def read_rows(path: Path) -> list[dict[str, str]]:
    """Gives the rows so far, as text by column."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
