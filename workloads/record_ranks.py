"""Records the committed captures of many ranks in `traces/`, one folder per case of the labs, and writes RANKS.toml."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from workloads import own_python
from workloads.rank_cases import CASES, Case
from workloads.record_pairs import keep
from workloads.record_traces import ROOT, toml_value

_MAX_RUNS: Final = 4
MANIFEST_HEADER: Final = """\
# Captures of several ranks recorded by `python -m workloads.record_ranks`: folders as `profkit capture` writes them, a
# trace per rank. `command` makes a folder again, from the repository root (here without the host's name).
# `truth` is what the workload was built to do, whatever an analysis says; `workloads.rank_cases` has it in ids.
# `unprofiled_step_ms` holds every take, each the mean of the steps before the profiler on the slowest rank; the folder
# keeps the calmest take.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """One captured run: its folder, and the mean step in ns before and under the profiler, of the slowest rank."""

    folder: Path
    unprofiled_ns: float
    profiled_ns: float


def command_of(case: Case) -> list[str]:
    """Gives the command that runs the case, as torchrun takes it."""
    return ["torchrun", *case.arguments()]


def capture_command(case: Case) -> str:
    """Gives the command line that makes the folder again."""
    return shlex.join(["profkit", "capture", "--steps", str(case.n_steps), "--", *command_of(case)])


def record(case: Case, *, folder: Path, n_takes: int) -> dict[str, Any]:
    """Records a case, keeps the calmest take in `folder` and gives its manifest row.

    The calmest, because on a shared machine noise only adds, and a trace is to show the program and not its neighbours;
    nobody has looked at what an analysis says of it. Raises `subprocess.CalledProcessError` if a run keeps failing.
    """
    with tempfile.TemporaryDirectory(prefix="workloads-") as name:
        takes = [capture(case, Path(name) / str(number)) for number in range(n_takes)]
        best = min(takes, key=lambda take: take.unprofiled_ns + take.profiled_ns)
        files = keep(best.folder, folder / case.name)
    rank = json.loads((folder / case.name / "capture.json").read_text(encoding="utf-8"))["ranks"][0]
    size_kb = sum(path.stat().st_size for path in (folder / case.name).glob("*.gz")) / 1e3
    times = [round(take.unprofiled_ns / 1e6, 2) for take in takes]
    print(f"{case.name}: {size_kb:.0f} kB, unprofiled ms {times}, kept {takes.index(best) + 1}", file=sys.stderr)
    return {
        "folder": case.name,
        "command": capture_command(case),
        "torch": rank["torch"],
        "device": rank["device"]["type"],
        "date": dt.datetime.now(tz=dt.UTC).date(),
        "truth": case.truth,
        "unprofiled_step_ms": times,
        "sha256": files,
    }


def capture(case: Case, folder: Path) -> Take:
    """Captures one run into `folder`; a run that crashes is made again, at most three times.

    gloo aborts now and then when a process ends (torch 2.13); the traces are written before.
    """
    window = ["-m", "profkit", "capture", "-o", str(folder), "--overwrite", "--steps", str(case.n_steps), "--"]
    env = own_python.environment() | {"OMP_NUM_THREADS": "1"}  # torchrun sets it where nobody has, and says so
    for number in range(_MAX_RUNS):
        line = [sys.executable, *window, *command_of(case)]
        done = subprocess.run(line, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=number == _MAX_RUNS - 1)
        if done.returncode == 0:
            break
        print(f"{case.name}: crashed with {done.returncode}, captured again", file=sys.stderr)
    ranks = json.loads((folder / "capture.json").read_text(encoding="utf-8"))["ranks"]
    times = {name: max(statistics.fmean(rank[name]["steps_ns"]) for rank in ranks) for name in ("baseline", "profiled")}
    return Take(folder=folder, unprofiled_ns=times["baseline"], profiled_ns=times["profiled"])


def manifest_text(rows: Sequence[dict[str, Any]]) -> str:
    """Gives the manifest: a [[capture]] table per row, its hashes as a table by file name."""
    tables = []
    for row in rows:
        lines = [f"{key} = {toml_value(value)}" for key, value in row.items() if key != "sha256"]
        hashes = [f"{toml_value(name)} = {toml_value(digest)}" for name, digest in row["sha256"].items()]
        tables.append("\n".join(["", "[[capture]]", *lines, "", "[capture.sha256]", *hashes, ""]))
    return MANIFEST_HEADER + "".join(tables)


def read_manifest(path: Path) -> dict[str, dict[str, Any]]:
    """Gives the rows of a manifest by folder, none if there is no manifest yet."""
    if not path.exists():
        return {}
    return {row["folder"]: row for row in tomllib.loads(path.read_text(encoding="utf-8"))["capture"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Records the chosen cases, keeps the rows of the others; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m workloads.record_ranks", description=__doc__)
    names = [case.name for case in CASES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="cases to record (all)")
    parser.add_argument("--takes", type=int, default=3, help="runs per case, of which the calmest is kept (3)")
    parser.add_argument("--out", type=Path, default=ROOT / "traces", help="folder to write to (traces/)")
    args = parser.parse_args(arguments)
    if args.takes < 1:
        parser.error(f"--takes must be at least 1, not {args.takes}")
    manifest = args.out / "RANKS.toml"
    rows = read_manifest(manifest)
    for case in CASES:
        if case.name in args.only:
            rows[case.name] = record(case, folder=args.out, n_takes=args.takes)
            ordered = [rows[other.name] for other in CASES if other.name in rows]
            manifest.write_text(manifest_text(ordered), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
