"""Does profkit see a slow network, and is its ceiling true? Jobs over hosts of one machine, with the limit and without.

    python -m analyses.netlab.run [--blocks 4] [--captures out/netlab]

A block runs the same DDP job (2.3 MB of gradients a step, a rank on each host) once in each cell, in an order drawn
for it: with all links at 200 Mbit/s, with one host's link or one direction of it, and without a limit. Each cell runs
twice: timed, without a profiler, for what removing the limit gains (timings.csv), and captured. The captures stay in a
folder. Each is judged as it is, and with the clock of host1 set apart by 40 ms and by 3 s (verdicts.csv, in which those
on captures that are there are made anew). What is in timings.csv or in the folder already is not run again. It needs a
machine that `python -m workloads.netlab --check` accepts. `--blocks 0` runs nothing.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import profkit
from workloads import own_python
from workloads.netlab import why_not
from workloads.netlab.clocks import set_apart

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parent.parent
TIMINGS, VERDICTS = HERE / "timings.csv", HERE / "verdicts.csv"
RATE: Final = "200mbit"
CELLS: Final = {
    "all_2": (2, "all"),
    "out_2": (2, "host1:out"),
    "none_2": (2, "none"),
    "host1_3": (3, "host1"),
    "none_3": (3, "none"),
}
OFFSETS_MS: Final = (0, 40, 3_000)
JOB: Final = ("-m", "workloads.ddp", "--hidden", "256", "--batch", "32")
TIMED: Final = ("block", "cell", "order", "step_ms", "load_before")
JUDGED: Final = (
    *("block", "cell", "offset_ms", "bottleneck", "finding", "confidence", "step_ms", "saves_ms", "ceiling", "late"),
    "title",
)
Row = dict[str, Any]


def command(cell: str, *more: str, capture: Path | None = None) -> list[str]:
    """The command that runs the job in a cell, captured into a folder where one is given."""
    n_hosts, slow = CELLS[cell]
    into = () if capture is None else ("-o", str(capture), "--steps", "20")
    lab = ("-m", "workloads.netlab", "--hosts", str(n_hosts), "--rate", RATE, "--slow", slow, *into)
    return [sys.executable, *lab, "--", *JOB, *more]


def measure(n_blocks: int, captures: Path) -> None:
    """Run what the table and the folder lack."""
    done = {(row["block"], row["cell"]) for row in rows(TIMINGS)}
    for block in range(n_blocks):
        draw = random.Random(block)  # noqa: S311 - an order of runs needs a seed, not a secret
        for order, cell in enumerate(draw.sample(sorted(CELLS), len(CELLS))):
            if (str(block), cell) not in done:
                load = round(os.getloadavg()[0], 2)
                said = ran(command(cell, "--steps", "40", "--json")).stdout
                step_ms = round(json.loads(said.splitlines()[-1])["step_p50_ms"], 3)
                row = {"block": block, "cell": cell, "order": order, "step_ms": step_ms, "load_before": load}
                _append(TIMINGS, TIMED, row)
                print(row, flush=True)
            folder = captures / f"{cell}.{block}"
            if not (folder / "capture.json").exists():
                ran(command(cell, "--steps", "50", capture=folder))


def ran(line: list[str]) -> subprocess.CompletedProcess[str]:
    """One run that ended well; gloo may abort at the end of a process (torch 2.13), and then it is run again."""
    for is_last in (False, False, True):
        done = subprocess.run(
            line, cwd=ROOT, env=own_python.environment(), check=is_last, capture_output=True, text=True
        )
        if done.returncode == 0:
            break
    return done


def judge(captures: Path) -> list[Row]:
    """What profkit says of each capture, with host1's clock as it is and apart."""
    found = []
    for folder in sorted(captures.glob("*.*")):
        cell, _, block = folder.name.partition(".")
        for offset_ms in OFFSETS_MS:
            with tempfile.TemporaryDirectory() as apart:
                set_apart(folder, Path(apart), {1: offset_ms * 10**6})
                found.append({"block": block, "cell": cell, "offset_ms": offset_ms, **said_of(apart)})
    return found


def keep(judged: list[Row]) -> None:
    """Write the verdicts in the place of those on the same captures; rows on captures that are gone stay."""
    key = ("block", "cell", "offset_ms")
    told = {tuple(str(row[name]) for name in key): row for row in (*rows(VERDICTS), *judged)}
    VERDICTS.unlink(missing_ok=True)
    for place in sorted(told):
        _append(VERDICTS, JUDGED, told[place])


def said_of(folder: str) -> Row:
    """The verdict on a capture in a row."""
    report = profkit.triage([folder])
    verdict = report.verdict
    top = verdict.findings[0] if verdict.findings else None
    return {
        "bottleneck": verdict.bottleneck.value,
        "finding": "" if top is None else top.id,
        "confidence": round(verdict.confidence, 2),
        "step_ms": round((verdict.step_ns or 0) / 1e6, 2),
        "saves_ms": round((verdict.recoverable_ns or 0) / 1e6, 2),
        "ceiling": round(verdict.speedup_ceiling or 1, 2),
        "late": " ".join(str(one.rank) for one in report.findings if one.id == "straggler.rank"),
        "title": "" if top is None else top.title,
    }


def rows(path: Path) -> list[Row]:
    """The rows of a table, none where there is no table."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _append(path: Path, columns: Iterable[str], row: Row) -> None:
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, columns)
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def summary() -> Iterable[str]:
    """What the tables say: of each slow cell the gain, the ceilings beside it, and the verdicts."""
    timed, judged = rows(TIMINGS), rows(VERDICTS)
    for cell, (n_hosts, slow) in CELLS.items():
        mine = [row for row in judged if row["cell"] == cell]
        same = [row for row in mine if row["offset_ms"] == "0"]
        kinds: dict[str, int] = {}
        for row in same:
            kinds[row["finding"]] = kinds.get(row["finding"], 0) + 1
        base = {(row["block"]): row for row in same}
        moved = sum(row["title"] != base[row["block"]]["title"] for row in mine)
        ceilings = sorted(float(row["ceiling"]) for row in same)
        yield f"{cell} ({n_hosts} hosts, slow: {slow}): {kinds}, verdict moved by clocks: {moved} of {len(mine)}"
        yield f"  ceilings {ceilings}, steps {[row['step_ms'] for row in timed if row['cell'] == cell]} ms"
        if slow != "none":
            gains = _gains(timed, cell, f"none_{n_hosts}")
            yield f"  gain by block {gains}, median {statistics.median(gains) if gains else None}"


def _gains(timed: list[Row], cell: str, without: str) -> list[float]:
    """How many times as fast the job is without the limit, by block."""
    steps = {(row["cell"], row["block"]): float(row["step_ms"]) for row in timed}
    blocks = sorted({block for name, block in steps if name == cell and (without, block) in steps})
    return [round(steps[cell, block] / steps[without, block], 2) for block in blocks]


def main() -> None:
    """Run what is missing, judge all captures, and say what the tables say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--captures", type=Path, default=ROOT / "out" / "netlab")
    chosen = parser.parse_args()
    if chosen.blocks and (reason := why_not()):
        raise SystemExit(f"no lab of hosts can be made here: {reason}")
    measure(chosen.blocks, chosen.captures)
    keep(judge(chosen.captures))
    for line in summary():
        print(line)


if __name__ == "__main__":
    main()
