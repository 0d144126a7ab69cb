"""`make bench`: a whole `profkit triage` beside HTA and a bare decoder, on one trace of about 50 MB.

profkit and HTA are timed as processes, interpreter and imports included; the ratio without HTA's imports is
printed as well. The floor is gunzip plus typed decode of the same bytes and no analysis (bench/floor.py).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench import contest, inputs, table
from bench.contest import FLOOR, GUNZIP, HTA, PROFKIT, PROFKIT_PLAIN
from bench.table import Ratio

TEXT_BYTES = 50_000_000
LEAST_STARTS = 7
"""Rounds of what takes a fraction of a second: fewer say little on a machine that does other things too."""
RATIOS = (
    Ratio(over=HTA, under=PROFKIT, quantity=table.WALL, least=15),
    Ratio(over=HTA, under=PROFKIT, quantity=table.WALL_WITHOUT_HTA_IMPORTS, least=15),
    Ratio(over=HTA, under=PROFKIT, quantity=table.CPU),
    Ratio(over=HTA, under=PROFKIT, quantity=table.PEAK),
    Ratio(over=PROFKIT, under=GUNZIP, quantity=table.WALL_OF_GUNZIP),
    Ratio(over=PROFKIT, under=FLOOR, quantity=table.WALL),
    Ratio(over=PROFKIT, under=FLOOR, quantity=table.CPU),
    Ratio(over=PROFKIT_PLAIN, under=PROFKIT, quantity=table.CPU),
)


def main() -> int:
    """Run the contest and print the table; the exit code is 1 where a contender failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.triage", description=__doc__)
    parser.add_argument("--trace", type=Path, help="a .json or .json.gz; default: a real one of about 50 MB")
    parser.add_argument("--repeats", type=int, default=3, help="rounds, each contender once in each (3)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="profkit-bench-") as scratch:
        trace = _input(options.trace, Path(scratch))
        with contest.folder_with_only(trace) as folder:
            runs = contest.run_in_turns(contest.contenders(trace, folder), options.repeats)
        print(f"{table.format_setting(trace, runs)}\n")
    print(f"{table.format_runs(runs)}\n\n{table.format_ratios(RATIOS, runs)}")
    is_small_measured = print_small(options.repeats)
    return 0 if all(runs.values()) and is_small_measured else 1


def print_small(n_rounds: int) -> bool:
    """Print what a whole triage of a 1 MB trace takes, and what its start takes alone; gives whether it ran."""
    trace = inputs.small_trace()
    if trace is None:
        print("\n1 MB trace: none at hand")
        return False
    runs = contest.run_in_turns([contest.profkit(trace.name, trace), *contest.STARTS], max(n_rounds, LEAST_STARTS))
    usages = runs.pop(trace.name)
    print(f"\n{table.format_small(trace, inputs.text_bytes(trace), usages)}\n{table.format_starts(runs)}")
    return bool(usages)


def _input(trace: Path | None, scratch: Path) -> Path:
    """Give a trace that HTA reads too: `trace`, or a real one, repeated to 50 MB where it is smaller."""
    source = trace or inputs.large_source()
    if not source.exists():
        raise SystemExit(f"bench: {source}: no such file")
    is_large = trace is not None or inputs.text_bytes(source) >= TEXT_BYTES
    if is_large and inputs.is_fit_for_hta(source):
        return source
    destination = scratch / f"{source.name.partition('.')[0]}.json.gz"
    inputs.build(source, destination, None if is_large else TEXT_BYTES)
    return destination


if __name__ == "__main__":
    sys.exit(main())
