"""Records the committed pairs of captures in `traces/`, one folder per side, and writes their PAIRS.toml."""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
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
from workloads.record_traces import ROOT, toml_value
from workloads.scrub import scrub_capture, scrub_trace

MANIFEST_HEADER: Final = """\
# Pairs recorded by `python -m workloads.record_pairs`: two folders as `profkit capture` writes them, a trace per rank,
# that differ in one flag. `command` makes a folder again, from the repository root (here without the host's name).
# `unprofiled_step_ms` holds every take of both sides, in turns, each the mean of the steps before the profiler on the
# slower rank: what the machine's luck does to a run. The folder keeps the calmest take.
"""
EPILOG: Final = """\
examples:
  python -m workloads.record_pairs
  python -m workloads.record_pairs --only fsdp_vlm_prefetch --takes 5
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How a pair is made: one command, and the flag that tells its sides apart."""

    name: str
    arguments: tuple[str, ...]
    flag: str
    sides: tuple[str, str]
    truth: str
    window: tuple[str, ...] = ("--steps", "3")
    n_ranks: int = 2

    def folder(self, side: str) -> str:
        """Gives the name of a side's folder."""
        return f"{self.name}_{side}"

    def command(self, side: str) -> list[str]:
        """Gives the command that runs the workload, as torchrun takes it."""
        launched = ["torchrun", "--nproc-per-node", str(self.n_ranks), "-m", *self.arguments]
        return [*launched, self.flag, side]

    def capture_command(self, side: str) -> str:
        """Gives the command line that makes the folder again."""
        return shlex.join(["profkit", "capture", *self.window, "--", *self.command(side)])


RECIPES: Final = (
    Recipe(
        name="fsdp_vlm_prefetch",
        # Stage 1 and wide: few operators and large parameters, so that the all-gathers weigh and the trace does not.
        arguments=("workloads.fsdp_vlm", "--device", "cpu", "--size", "wide", "--stage", "1", "--batch", "2"),
        flag="--prefetch",
        sides=("off", "on"),
        truth="The sides differ in FSDP's explicit forward prefetch alone: the same samples, collectives and losses. "
        "With it, a block's all-gather runs while the block before it computes; two ranks share two cores.",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """One captured run of a side: its folder, and the mean step in ns before and under the profiler."""

    folder: Path
    unprofiled_ns: float
    profiled_ns: float


def record(recipe: Recipe, *, folder: Path, n_takes: int) -> dict[str, Any]:
    """Records both sides in turns, keeps the calmest take of each in `folder` and gives the pair's manifest row.

    The calmest, because on a shared machine noise only adds, and a trace is to show the program and not its neighbours;
    what the sides differ by is to be judged on all takes. Raises `subprocess.CalledProcessError` if a run fails.
    """
    takes: dict[str, list[Take]] = {side: [] for side in recipe.sides}
    with tempfile.TemporaryDirectory(prefix="workloads-") as name:
        for number in range(n_takes):
            for side in recipe.sides:
                take = capture(recipe, side, Path(name) / f"{side}{number}")
                takes[side].append(take)
                print(f"{recipe.folder(side)}: {take.unprofiled_ns / 1e6:.1f} ms a step", file=sys.stderr)
        files = {}
        for side, taken in takes.items():
            best = min(taken, key=lambda take: take.unprofiled_ns + take.profiled_ns)
            files[side] = keep(best.folder, folder / recipe.folder(side))
    manifest = json.loads((folder / recipe.folder(recipe.sides[0]) / "capture.json").read_text(encoding="utf-8"))
    return {
        "name": recipe.name,
        "sides": list(recipe.sides),
        "truth": recipe.truth,
        "torch": manifest["ranks"][0]["torch"],
        "device": manifest["ranks"][0]["device"]["type"],
        "date": dt.datetime.now(tz=dt.UTC).date(),
        "side": [
            {
                "folder": recipe.folder(side),
                "command": recipe.capture_command(side),
                "sha256": files[side],
                "unprofiled_step_ms": [round(take.unprofiled_ns / 1e6, 2) for take in takes[side]],
            }
            for side in recipe.sides
        ],
    }


def capture(recipe: Recipe, side: str, folder: Path) -> Take:
    """Captures one run of a side into `folder`."""
    line = [sys.executable, "-m", "profkit", "capture", "-o", str(folder), *recipe.window, "--", *recipe.command(side)]
    env = own_python.environment() | {"OMP_NUM_THREADS": "1"}  # torchrun sets it where nobody has, and says so
    subprocess.run(line, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, check=True)
    ranks = json.loads((folder / "capture.json").read_text(encoding="utf-8"))["ranks"]
    times = {name: max(statistics.fmean(rank[name]["steps_ns"]) for rank in ranks) for name in ("baseline", "profiled")}
    return Take(folder=folder, unprofiled_ns=times["baseline"], profiled_ns=times["profiled"])


def keep(captured: Path, folder: Path) -> dict[str, str]:
    """Copies a capture to `folder` without the host's name; gives the SHA-256 of its traces by file name."""
    manifest = json.loads((captured / "capture.json").read_text(encoding="utf-8"))
    hashes = {}
    for rank in manifest["ranks"]:
        trace = folder / rank["trace"]
        scrub_capture(captured / rank["trace"], trace)
        hashes[trace.name] = rank["sha256"] = hashlib.sha256(trace.read_bytes()).hexdigest()
    text = json.dumps(manifest, indent=1) + "\n"
    (folder / "capture.json").write_text(scrub_trace(text), encoding="utf-8")
    return hashes


def manifest_text(rows: Sequence[dict[str, Any]]) -> str:
    """Gives the manifest: a [[pair]] table per row, a [[pair.side]] table for each of its sides."""
    tables = []
    for row in rows:
        lines = ["", "[[pair]]", *(f"{key} = {toml_value(value)}" for key, value in row.items() if key != "side")]
        for side in row["side"]:
            lines += ["", "[[pair.side]]", *(f"{key} = {_toml(value)}" for key, value in side.items())]
        tables.append("\n".join([*lines, ""]))
    return MANIFEST_HEADER + "".join(tables)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_value(key)} = {toml_value(item)}" for key, item in value.items()) + " }"
    return toml_value(value)


def read_manifest(path: Path) -> dict[str, dict[str, Any]]:
    """Gives the rows of a manifest by the name of the pair, none if there is no manifest yet."""
    if not path.exists():
        return {}
    return {row["name"]: row for row in tomllib.loads(path.read_text(encoding="utf-8"))["pair"]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Records the chosen pairs, keeps the rows of the others; gives the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads.record_pairs",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [recipe.name for recipe in RECIPES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="pairs to record (all)")
    parser.add_argument("--takes", type=int, default=5, help="runs per side, of which the calmest is kept (5)")
    parser.add_argument("--out", type=Path, default=ROOT / "traces", help="folder to write to (traces/)")
    args = parser.parse_args(arguments)
    if args.takes < 1:
        parser.error(f"--takes must be at least 1, not {args.takes}")
    manifest = args.out / "PAIRS.toml"
    rows = read_manifest(manifest)
    for recipe in RECIPES:
        if recipe.name in args.only:
            rows[recipe.name] = record(recipe, folder=args.out, n_takes=args.takes)
    ordered = [rows[recipe.name] for recipe in RECIPES if recipe.name in rows]
    manifest.write_text(manifest_text(ordered), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
