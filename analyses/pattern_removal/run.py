"""Does "could give at most" hold for work that a setting spares? Each flaw of `workloads.patterns`, and its removal.

    python -m analyses.pattern_removal.run [--repeats 3]

Each case is captured with its flaw, and profkit's share of the step that a fix saves at most is taken. The truth is an
intervention: the job without it (gc.disable(), fused=True, weights in bfloat16, no checkpointing, one shape),
timed without a profiler beside the flawed one. Writes timings.csv, one row per repeat of a case, beside itself.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import profkit
from workloads.patterns import steps

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
FINDINGS = {
    "gc": "host.gc",
    "recompile": "host.recompile",
    "optimizer": "host.optimizer_loop",
    "casts": "precision.casts",
    "recompute": "work.recompute",
}
N_TURNS, N_SKIPPED = 80, 5
PAUSES = ("gc", "recompile")
"""Cases whose flaw is in some steps: their mean step counts. Of the others the median, in turns in one process."""
COLUMNS = ("case", "repeat", "step_ms", "healthy_step_ms", "ceiling", "found")


def in_turns(case: str) -> tuple[float, float]:
    """The median step with the flaw and without it, ms, of two jobs in one process that take turns."""
    twins = [steps(case, is_flawed=is_flawed, n_steps=N_TURNS) for is_flawed in (True, False)]
    pairs = list(zip(*twins, strict=True))[N_SKIPPED:]
    flawed, healthy = (1e3 * statistics.median(side) for side in zip(*pairs, strict=True))
    return flawed, healthy


def timed(case: str, *more: str) -> float:
    """The mean step of a process of its own without a profiler, ms."""
    line = [sys.executable, "-m", "workloads.patterns", case, *more]
    done = subprocess.run(line, cwd=ROOT, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)["step_mean_ms"])


def ceiling(case: str) -> float | None:
    """The share (0-1) of the step that profkit says removing the flaw saves at most; None where it names none."""
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "profkit", "capture", "-o", folder, "--shapes", "--"]
        job = [sys.executable, "-m", "workloads.patterns", case]
        subprocess.run([*line, *job], cwd=ROOT, check=True, capture_output=True)
        report = profkit.triage([folder])
    found = next((one for one in report.findings if one.id == FINDINGS[case]), None)
    return found.recoverable_ns / report.verdict.step_ns if found and report.verdict.step_ns else None


def measure(repeats: int) -> list[dict[str, Any]]:
    """A row per repeat of each case; a slow minute of the machine falls on both sides of a row."""
    rows = []
    for repeat in range(repeats):
        for case in FINDINGS:
            flawed, healthy = (timed(case), timed(case, "--healthy")) if case in PAUSES else in_turns(case)
            said = ceiling(case)
            row = {
                "case": case,
                "repeat": repeat,
                "step_ms": round(flawed, 3),
                "healthy_step_ms": round(healthy, 3),
                "ceiling": round(said or 0.0, 4),
                "found": said is not None,
            }
            rows.append(row)
            print(row, flush=True)
    return rows


def main() -> None:
    """Run the study and print the README's table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    rows = measure(parser.parse_args().repeats)
    with (HERE / "timings.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    for case, finding in FINDINGS.items():
        mine = [row for row in rows if row["case"] == case]
        gains = [1 - row["healthy_step_ms"] / row["step_ms"] for row in mine]
        said = statistics.median(row["ceiling"] for row in mine)
        step = statistics.median(row["step_ms"] for row in mine)
        between = f"{statistics.median(gains):.0%} ({min(gains):.0%} to {max(gains):.0%})"
        count = f"{sum(row['found'] for row in mine)} of {len(mine)}"
        print(f"| {case} | `{finding}` | {step:.1f} | {between} | {said:.0%} | {count} |")


if __name__ == "__main__":
    main()
