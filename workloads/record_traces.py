"""Records the committed traces of `traces/` and writes their MANIFEST.toml."""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from workloads import own_python
from workloads.scrub import scrub_capture

ROOT: Final = Path(__file__).resolve().parent.parent
MANIFEST_HEADER: Final = """\
# Traces recorded by `python -m workloads.record_traces`; `command` makes one again, from the repository root, as
# rank0.pt.trace.json.gz in its folder (here without the host's name).
# `truth` is what the workload was built to do, whatever an analysis says; `healthy` marks the faultless twin.
"""
EPILOG: Final = """\
examples:
  python -m workloads.record_traces
  python -m workloads.record_traces --only kernel_cpu --takes 5
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How one trace is made and what is true of it."""

    name: str
    regime: str
    bottleneck: str
    truth: str
    flags: tuple[str, ...] = ()
    window: tuple[str, ...] = ()
    healthy: bool = False

    @property
    def file(self) -> str:
        """The file name of the trace."""
        return f"{self.name}.pt.trace.json.gz"

    def arguments(self) -> list[str]:
        """Gives the arguments of `python` that run the workload."""
        return ["-m", "workloads.train", "--regime", self.regime, "--device", "cpu", *self.flags]

    @property
    def command(self) -> str:
        """The command line that makes the trace again."""
        return " ".join(["profkit capture", *self.window, "-- python", *self.arguments()])


RECIPES: Final = (
    Recipe(
        name="baseline_cpu",
        regime="baseline",
        bottleneck="kernel-bound",
        healthy=True,
        truth="Healthy: an MLP whose matmuls fill the step, fed by batches that lie ready in memory.",
    ),
    Recipe(
        name="data_cpu",
        regime="data",
        bottleneck="data-bound",
        truth="Every sample sleeps 2 ms in __getitem__ and nothing loads ahead: each step waits for it.",
    ),
    Recipe(
        name="data_workers2_cpu",
        regime="data",
        bottleneck="data-bound",
        flags=("--num-workers", "2"),
        truth="Two workers load the same slow samples and cannot keep up: long and short waits take turns.",
    ),
    Recipe(
        name="overhead_cpu",
        regime="overhead",
        bottleneck="overhead-bound",
        flags=("--rounds", "96"),
        truth="Hundreds of elementwise operators on 2,048 elements each: dispatch outweighs arithmetic.",
    ),
    Recipe(
        name="kernel_cpu",
        regime="kernel",
        bottleneck="kernel-bound",
        truth="Eight rounds of gate, gelu and layer norm on 2 MB tensors: elementwise kernels fill the step.",
    ),
)


def record(recipe: Recipe, *, folder: Path, n_takes: int) -> dict[str, Any]:
    """Records the trace `n_takes` times, keeps the calmest take in `folder` and gives its manifest row.

    The calmest take has the lowest mean step time, before the window plus in it: on a shared machine noise
    only adds, and both times must be free of it, since their ratio states the profiler's cost.
    Raises `subprocess.CalledProcessError` if a run fails.
    """
    with tempfile.TemporaryDirectory(prefix="workloads-") as name:
        takes = [(capture(recipe, Path(name) / str(take)), take) for take in range(n_takes)]
        rank, best = min(takes, key=lambda pair: pair[0]["baseline"]["mean_ns"] + pair[0]["profiled"]["mean_ns"])
        trace = folder / recipe.file
        scrub_capture(Path(name) / str(best) / rank["trace"], trace)
    means = ", ".join(
        f"{taken['baseline']['mean_ns'] / 1e6:.2f}/{taken['profiled']['mean_ns'] / 1e6:.2f}" for taken, _ in takes
    )
    size_kb = trace.stat().st_size / 1e3
    print(f"{recipe.file}: {size_kb:.0f} kB, unprofiled/profiled {means} ms, kept {best + 1}", file=sys.stderr)
    return {
        "file": recipe.file,
        "sha256": hashlib.sha256(trace.read_bytes()).hexdigest(),
        "command": recipe.command,
        "torch": rank["torch"],
        "device": rank["device"]["type"],
        "date": dt.datetime.now(tz=dt.UTC).date(),
        "regime": recipe.regime,
        "truth": recipe.truth,
        "bottleneck": recipe.bottleneck,
        "healthy": recipe.healthy,
    }


def capture(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Captures the workload into `folder`; gives what capture.json says of its one rank."""
    line = [sys.executable, "-m", "profkit", "capture", "-o", str(folder), *recipe.window, "--"]
    subprocess.run(
        [*line, "python", *recipe.arguments()],
        cwd=ROOT,
        env=own_python.environment(),
        stdout=subprocess.DEVNULL,
        check=True,
    )
    manifest = json.loads((folder / "capture.json").read_text(encoding="utf-8"))
    rank: dict[str, Any] = manifest["ranks"][0]
    return rank


def manifest_text(rows: Sequence[dict[str, Any]]) -> str:
    """Gives the manifest: one [[trace]] table per row, strings and dates as TOML writes them."""
    tables = []
    for row in rows:
        lines = [f"{key} = {toml_value(value)}" for key, value in row.items()]
        tables.append("\n".join(["", "[[trace]]", *lines, ""]))
    return MANIFEST_HEADER + "".join(tables)


def toml_value(value: object) -> str:
    """Gives a bool, string or date as TOML; a JSON string of ASCII is a TOML basic string."""
    return value.isoformat() if isinstance(value, dt.date) else json.dumps(value)


def read_manifest(path: Path) -> dict[str, dict[str, Any]]:
    """Gives the rows of a manifest by file name, none if there is no manifest yet."""
    if not path.exists():
        return {}
    return {row["file"]: row for row in tomllib.loads(path.read_text(encoding="utf-8"))["trace"]}


def build_parser() -> argparse.ArgumentParser:
    """Gives the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads.record_traces",
        description=__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [recipe.name for recipe in RECIPES]
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="traces to record (all)")
    parser.add_argument("--takes", type=int, default=3, help="runs per trace, of which the calmest is kept (3)")
    parser.add_argument("--out", type=Path, default=ROOT / "traces", help="folder to write to (traces/)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Records the chosen traces, keeps the rows of the others; gives the exit code."""
    parser = build_parser()
    args = parser.parse_args(arguments)
    if args.takes < 1:
        parser.error(f"--takes must be at least 1, not {args.takes}")
    manifest = args.out / "MANIFEST.toml"
    rows = read_manifest(manifest)
    for recipe in RECIPES:
        if recipe.name in args.only:
            rows[recipe.file] = record(recipe, folder=args.out, n_takes=args.takes)
    ordered = [rows[recipe.file] for recipe in RECIPES if recipe.file in rows]
    manifest.write_text(manifest_text(ordered), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
