"""What does the second window cost the timed steps? Captures with it and without it, in turns.

    python -m analyses.second_window.run [--pairs 24] [--steps 20]

A pair is two captures of the same job (`workloads.patterns optimizer`), one with the second window and one with
`--no-stacks`, in an order drawn for each pair. Of each it takes the timed steps alone: their wall time, the CPU time of
the training thread and of all threads (both from capture.json), and the load of the machine before. Each capture is a
row of timings.csv, beside this file, at once: what is there already is not run again. The answer is that of the test
on pairs that `profkit compare` uses. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from profkit.compare.stats.judge import Sample, judge

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
TABLE: Final = HERE / "timings.csv"
ARMS: Final = {"without": ("--no-stacks",), "with": ("--stack-steps", "2")}
TIMES: Final = ("wall_ns", "thread_cpu_ns", "process_cpu_ns")
COLUMNS: Final = ("pair", "arm", "order", "n_steps", *TIMES, "unprofiled_ns", "second_steps", "load_before")
Row = dict[str, Any]


def captured(arm: str, *, n_steps: int) -> Row:
    """One capture: what a timed step took, ns."""
    job = [sys.executable, "-m", "workloads.patterns", "optimizer", "--steps", str(n_steps + 40)]
    with tempfile.TemporaryDirectory() as folder:
        line = [
            sys.executable,
            "-m",
            "profkit",
            "capture",
            "-o",
            folder,
            "--steps",
            str(n_steps),
            *ARMS[arm],
            "--",
            *job,
        ]
        subprocess.run(line, cwd=ROOT, check=True, capture_output=True)
        (rank,) = json.loads((Path(folder) / "capture.json").read_text())["ranks"]
    timed, scheduled = rank["profiled"], rank["scheduling"]
    return {
        "n_steps": timed["n"],
        "wall_ns": timed["mean_ns"],
        "thread_cpu_ns": scheduled["run_ns"] // timed["n"],
        "process_cpu_ns": scheduled["all_run_ns"] // timed["n"],
        "unprofiled_ns": rank["baseline"]["mean_ns"],
        "second_steps": rank.get("places", {}).get("n_steps", 0),
    }


def measure(n_pairs: int, *, n_steps: int) -> None:
    """Run the captures that the table lacks."""
    done = {(row["pair"], row["arm"]) for row in rows()}
    for pair in range(n_pairs):
        draw = random.Random(pair)  # noqa: S311 - an order of runs needs a seed, not a secret
        for order, arm in enumerate(draw.sample(sorted(ARMS), len(ARMS))):
            if (str(pair), arm) not in done:
                load = round(os.getloadavg()[0], 2)
                row = {"pair": pair, "arm": arm, "order": order, "load_before": load, **captured(arm, n_steps=n_steps)}
                _append(row)
                print(row, flush=True)


def rows() -> list[Row]:
    """The captures so far."""
    if not TABLE.exists():
        return []
    with TABLE.open(newline="") as file:
        return list(csv.DictReader(file))


def _append(row: Row) -> None:
    is_new = not TABLE.exists()
    with TABLE.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def sample(found: list[Row], arm: str, column: str) -> Sample:
    """One side of the pairs that are whole."""
    whole = [pair for pair in {row["pair"] for row in found} if sum(row["pair"] == pair for row in found) == len(ARMS)]
    mine = sorted(
        (row for row in found if row["arm"] == arm and row["pair"] in whole), key=lambda row: int(row["pair"])
    )
    return Sample(
        name=arm,
        values=tuple(float(row[column]) for row in mine),
        unit="ns/step",
        higher_is_better=False,
        blocks=tuple(int(row["pair"]) for row in mine),
    )


def main() -> None:
    """Run what is missing, and say what all of it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=20)
    chosen = parser.parse_args()
    measure(chosen.pairs, n_steps=chosen.steps)
    found = rows()
    for column in TIMES:
        without, with_it = (sample(found, arm, column) for arm in ARMS)
        change = judge(without, with_it, metric=column)
        print(f"{column}: {with_it.mean / without.mean:.3f} with it over without, {change.sentence}")


if __name__ == "__main__":
    main()
