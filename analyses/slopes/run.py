"""Are the slopes of `profkit probe` right? Jobs of known truth, probed again and again, each beside a plain run.

    python -m analyses.slopes.run [--repeats 8] [--only CASE]

A repeat runs each case twice, plain and probed, in an order drawn for it; the schedule of the delays is drawn anew for
each repeat, the job is the same. A run is a row of runs.csv and a probed one also a row of slopes.csv for each place,
both beside this file and written at once: what is there is not run again. results.json has what is then printed: for
each case and place the mean slope, how far it varies from repeat to repeat, how often the interval holds the truth, and
whether it came out as the case says. Run it on a quiet machine, and look at the column `load_before`.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from analyses.slopes.cases import CASES, Case
from analyses.slopes.told import as_table, summary

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
RUNS: Final = HERE / "runs.csv"
SLOPES: Final = HERE / "slopes.csv"
RESULTS: Final = HERE / "results.json"
ARMS: Final = ("plain", "probed")
_MEASURED: Final = ("step_ns", "probed_ns", "cost", "n_probed", "mean_ms", "sum", "sum_low", "sum_high")
COLUMNS: Final = {
    RUNS: ("case", "repeat", "arm", "order", "wall_s", "output", *_MEASURED, "load_before", "load_after"),
    SLOPES: ("case", "repeat", "place", "slope", "low", "high", "reading", "n_treated", "time_ns"),
}
_TIMES: Final = re.compile(r'"(?:step_[a-z0-9]+_ms|samples_per_s|step_ms)": (?:\[[^]]*\]|[^,}]+),? ?')
"""What of the line of `workloads.train --json` differs from run to run."""
_MEAN: Final = re.compile(r'"step_mean_ms": ([0-9.]+)')
Row = dict[str, Any]


def measure(cases: tuple[Case, ...], n_repeats: int) -> None:
    """Run what the tables lack."""
    done = {(row["case"], row["repeat"], row["arm"]) for row in rows(RUNS)}
    for repeat in range(n_repeats):
        draw = random.Random(repeat)  # noqa: S311 - an order of runs needs a seed, not a secret
        order = [(case, arm) for case in draw.sample(CASES, len(CASES)) for arm in draw.sample(ARMS, len(ARMS))]
        for place, (case, arm) in enumerate(order):
            if case in cases and (case.name, str(repeat), arm) not in done:
                _keep_run(case, repeat, arm, place)


def _keep_run(case: Case, repeat: int, arm: str, order: int) -> None:
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "probe.json"
        line = [sys.executable, *case.command]
        if arm == "probed":
            seed = ["--seed", str(repeat), "-o", str(path)]
            line = [sys.executable, "-m", "profkit", "probe", *case.options, *seed, "--", *line]
        begun = time.perf_counter()
        ended = subprocess.run(line, cwd=ROOT, check=True, capture_output=True, text=True)
        wall_s = time.perf_counter() - begun
        found = json.loads(path.read_text()) if arm == "probed" else {}
    row = {
        "case": case.name,
        "repeat": repeat,
        "arm": arm,
        "order": order,
        "wall_s": round(wall_s, 3),
        "output": fingerprint(ended.stdout),
        "mean_ms": next(iter(_MEAN.findall(ended.stdout)), None),
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
    }
    if found:
        low, high = found["total_interval"] or (None, None)
        row |= {name: found[name] for name in ("step_ns", "probed_ns", "cost", "n_probed")}
        row |= {"sum": found["total"], "sum_low": low, "sum_high": high}
        for one in [*found["slopes"], *([found["host"]] if found["host"] else [])]:
            _append(SLOPES, {"case": case.name, "repeat": repeat, **slope_row(one)})
    _append(RUNS, row)
    print(f"repeat {repeat}, {case.name}, {arm}: {wall_s:.1f} s, load {load_before:.1f}", flush=True)


def slope_row(found: Row) -> Row:
    """A slope of the report as a row."""
    low, high = found["interval"]
    return {
        **{name: found[name] for name in ("place", "slope", "reading", "n_treated", "time_ns")},
        "low": low,
        "high": high,
    }


def fingerprint(text: str) -> str:
    """What a job prints, its last loss to the last bit, but for its times."""
    return hashlib.sha256(_TIMES.sub("", text).encode()).hexdigest()[:16]


def rows(table: Path) -> list[Row]:
    """The rows so far."""
    if not table.exists():
        return []
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def _append(table: Path, row: Row) -> None:
    is_new = not table.exists()
    with table.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS[table])
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def main() -> None:
    """Run what is missing, and say what all of it says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=8)
    parser.add_argument("--only", metavar="CASE", choices=[case.name for case in CASES], help="run this case alone")
    chosen = parser.parse_args()
    measure(tuple(case for case in CASES if chosen.only in (None, case.name)), chosen.repeats)
    found = summary(CASES, rows(RUNS), rows(SLOPES))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    print(as_table(found))


if __name__ == "__main__":
    main()
