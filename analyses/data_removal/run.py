"""Does "could give at most" hold? Loader waits of known dose, and what their removal really gave.

    python analyses/data_removal/run.py [--repeats 3]

Each cell runs the data workload with a sleep per sample and a number of workers, captures it, and takes profkit's
recoverable time per step. The truth is an intervention: the same workload without sleep and transforms, timed without
a profiler, interleaved with the faulty runs. Writes timings.csv (one row per run) and results.json beside itself.
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

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SLEEPS_MS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
WORKERS = (0, 2)
COLUMNS = (
    "item_sleep_ms",
    "num_workers",
    "repeat",
    "step_ns",
    "clean_step_ns",
    "predicted_ns",
    "bottleneck",
    "confidence",
)


def captured(arguments: list[str]) -> tuple[float, profkit.Report]:
    """Run the workload; give the mean unprofiled step (ns) and the report on its trace."""
    with tempfile.TemporaryDirectory() as folder:
        line = [sys.executable, "-m", "profkit", "capture", "-o", folder, "--"]
        workload = [sys.executable, "-m", "workloads.train", "--regime", "data", "--device", "cpu", *arguments]
        subprocess.run([*line, *workload], cwd=ROOT, check=True, capture_output=True)
        rank = json.loads((Path(folder) / "capture.json").read_text())["ranks"][0]
        return float(rank["baseline"]["mean_ns"]), profkit.triage([folder])


def measure(repeats: int) -> list[dict[str, Any]]:
    """Give one row per faulty run, each with a clean run beside it."""
    rows = []
    for repeat in range(repeats):
        for workers in WORKERS:
            for sleep_ms in SLEEPS_MS:
                clean, _ = captured(["--item-sleep-ms", "0", "--item-rounds", "0", "--num-workers", str(workers)])
                step, report = captured(["--item-sleep-ms", str(sleep_ms), "--num-workers", str(workers)])
                found = [finding for finding in report.findings if finding.id == "input.starved"]
                rows.append(
                    {
                        "item_sleep_ms": sleep_ms,
                        "num_workers": workers,
                        "repeat": repeat,
                        "step_ns": round(step),
                        "clean_step_ns": round(clean),
                        "predicted_ns": found[0].recoverable_ns if found else 0,
                        "bottleneck": report.verdict.bottleneck.value,
                        "confidence": report.verdict.confidence,
                    }
                )
                cell = f"sleep {sleep_ms} ms, {workers} workers: {step / 1e6:.2f} ms"
                print(f"{len(rows):3} {cell}, {report.verdict.headline}", flush=True)
    return rows


def summarised(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Give each cell's measured gain against the predicted ceiling, and how often the ceiling held."""
    cells = []
    for workers in WORKERS:
        for sleep_ms in SLEEPS_MS:
            mine = [row for row in rows if (row["item_sleep_ms"], row["num_workers"]) == (sleep_ms, workers)]
            step = statistics.mean(row["step_ns"] for row in mine)
            gain = statistics.mean((row["step_ns"] - row["clean_step_ns"]) / row["step_ns"] for row in mine)
            predicted = statistics.mean(row["predicted_ns"] / row["step_ns"] for row in mine)
            cells.append(
                {
                    "item_sleep_ms": sleep_ms,
                    "num_workers": workers,
                    "n": len(mine),
                    "step_ms": step / 1e6,
                    "measured_gain": gain,
                    "predicted_ceiling": predicted,
                    "called_data_bound": sum(row["bottleneck"] == "data-bound" for row in mine),
                }
            )
    held = [cell["measured_gain"] <= cell["predicted_ceiling"] + 0.01 for cell in cells]
    return {
        "cells": cells,
        "n_cells": len(cells),
        "ceiling_held_within_1_point": sum(held),
        "mean_absolute_error": statistics.mean(abs(c["measured_gain"] - c["predicted_ceiling"]) for c in cells),
    }


def main() -> None:
    """Run the study and write its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    rows = measure(parser.parse_args().repeats)
    with (HERE / "timings.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    results = summarised(rows)
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    for cell in results["cells"]:
        print({key: round(value, 3) if isinstance(value, float) else value for key, value in cell.items()})
    print({key: value for key, value in results.items() if key != "cells"})


if __name__ == "__main__":
    main()
