"""`make bench-large`: the same contest on a trace of 1 GB, made by repeating the events of a real one.

HTA takes minutes and some 6 GB there, so it runs once, and only with --hta. The floor holds the whole text
and all events in memory: its time is a bound, its memory is not.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median

from isal import igzip

from bench import contest, inputs, table
from bench.contest import FLOOR, GUNZIP, HTA, PROFKIT, PROFKIT_PLAIN, PROFKIT_TEXT, Runs
from bench.measure import REPO_ROOT
from bench.table import Ratio
from bench.triage import print_small

PEAK_MB = 300
"""The peak memory wanted of profkit on 1 GB of text."""
CPU_S = 2.8
"""The CPU time wanted of it."""
TEXT_MB_PER_S = 800
"""What it is to read and analyse of uncompressed text."""
RATIOS = (
    Ratio(over=PROFKIT, under=GUNZIP, quantity=table.WALL_OF_GUNZIP, most=2.5),
    Ratio(over=PROFKIT, under=FLOOR, quantity=table.WALL),
    Ratio(over=PROFKIT, under=FLOOR, quantity=table.CPU),
    Ratio(over=PROFKIT_PLAIN, under=PROFKIT, quantity=table.CPU),
)
HTA_RATIOS = (
    Ratio(over=HTA, under=PROFKIT, quantity=table.WALL, least=65),
    Ratio(over=HTA, under=PROFKIT, quantity=table.WALL_WITHOUT_HTA_IMPORTS, least=65),
    Ratio(over=HTA, under=PROFKIT, quantity=table.PEAK, least=15),
)


def main() -> int:
    """Build the trace, run the contest and print the table; the exit code is 1 where a contender failed."""
    options = _options()
    with _folder(options.out) as folder:
        trace = _input(options.source, folder, int(options.gb * 1e9))
        with contest.folder_with_only(trace) if options.hta else nullcontext() as hta_folder:
            chosen = [
                *contest.contenders(trace, hta_folder, hta_rounds=1),
                contest.profkit(PROFKIT_TEXT, _plain(trace)),
            ]
            with busy_core() if options.busy else nullcontext():
                runs = contest.run_in_turns(chosen, options.repeats)
        print(f"{table.format_setting(trace, runs)}\n")
    print(f"{table.format_runs(runs)}\n(floor: whole text and all events in memory; its peak is no bound)\n")
    print(table.format_ratios((*HTA_RATIOS, *RATIOS) if options.hta else RATIOS, runs))
    _print_wanted(runs)
    is_small_measured = print_small(options.repeats)
    return 0 if all(runs.values()) and is_small_measured else 1


def _print_wanted(runs: Runs) -> None:
    if runs[PROFKIT]:
        peak_mb = max(usage.peak_bytes for usage in runs[PROFKIT]) / 1e6
        cpu_s = median(usage.cpu_s for usage in runs[PROFKIT])
        print(f"{PROFKIT}, highest peak MB {peak_mb:>32.0f}{table.format_wanted(peak_mb, most=PEAK_MB)}")
        print(f"{PROFKIT}, CPU s {cpu_s:>42.2f}{table.format_wanted(cpu_s, most=CPU_S)}")
    if runs[PROFKIT_TEXT] and runs[GUNZIP]:
        n_bytes = table.child_result(runs[GUNZIP][0])["n_bytes"]
        speed = n_bytes / 1e6 / median(usage.wall_s for usage in runs[PROFKIT_TEXT])
        print(f"{PROFKIT_TEXT}, MB of text per s {speed:>31.0f}{table.format_wanted(speed, least=TEXT_MB_PER_S)}")


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core busy meanwhile."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


def _plain(trace: Path) -> Path:
    """Give the trace without its compression, beside it."""
    plain = trace.with_suffix("")
    if not plain.exists():
        with igzip.open(trace, "rb") as packed, plain.open("wb") as file:
            shutil.copyfileobj(packed, file, inputs.CHUNK_BYTES)
    return plain


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.large", description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0, help="least size of the text, in 10^9 bytes (1)")
    parser.add_argument("--source", type=Path, help="the trace to repeat, in Kineto's layout; default: a real one")
    parser.add_argument("--out", type=Path, help="keep the trace in this folder and use it again; not in the repo")
    parser.add_argument("--repeats", type=int, default=5, help="rounds, each contender once in each (5)")
    parser.add_argument("--busy", action="store_true", help="keep one core busy meanwhile, as a neighbour would")
    parser.add_argument("--hta", action="store_true", help="run HTA too, once")
    return parser.parse_args()


@contextmanager
def _folder(out: Path | None) -> Iterator[Path]:
    if out is None:
        with tempfile.TemporaryDirectory(prefix="profkit-bench-") as scratch:
            yield Path(scratch)
        return
    if out.resolve().is_relative_to(REPO_ROOT):
        raise SystemExit(f"bench: {out} is inside the repository; choose a folder elsewhere")
    out.mkdir(parents=True, exist_ok=True)
    yield out


def _input(source: Path | None, folder: Path, n_bytes: int) -> Path:
    source = source or inputs.large_source()
    destination = folder / f"{source.name.partition('.')[0]}-{n_bytes // 1_000_000}MB.json.gz"
    if not destination.exists():
        inputs.build(source, destination, n_bytes)
    return destination


if __name__ == "__main__":
    sys.exit(main())
