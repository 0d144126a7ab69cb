"""Time the faults of the table and their healthy twins without a profiler, then ask profkit about each.

    python -m analyses.blind.table [--only NAME] [--lock FILE] [--new] [--no-ask]

A fault that was timed is not timed again; an answer is appended, and the newest one counts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from analyses.blind.rounds import HEALTHY, SEEN, SIDES, SLOW, Timing, append
from analyses.blind.run import NAME, in_turns, looked_at, timed
from analyses.blind.table.answers import HERE, LOOKS, TIMINGS, Fault, faults, judged, looks, timings


def main() -> None:
    """Times, then asks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="the faults whose name holds this")
    parser.add_argument("--lock", type=Path, action="append", default=[], help="as of analyses.blind.run")
    parser.add_argument("--no-ask", action="store_true", help="time only")
    parser.add_argument("--new", action="store_true", help="the faults that were never asked about")
    chosen = parser.parse_args()
    asked = {name for name, side in looks() if chosen.new and side == HEALTHY}
    names = [name for name in faults() if chosen.only in name and name not in asked]
    tasks = []
    for name in names:  # without ids, the exit code is asked: it costs no time
        tasks += [partial(_timed, name)] if faults()[name].ids and name not in timings() else []
        tasks += [] if chosen.no_ask else [partial(_asked, name, side) for side in SIDES]
    in_turns(tasks, chosen.lock)
    for one in judged(looks()):
        print(f"{one.name}: {one.score}{', false alarm' if one.alarm else ''}: {one.why}")


@contextlib.contextmanager
def _placed(fault: Fault) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="table-") as made:
        shutil.copy(HERE / f"{fault.script}.py", Path(made) / NAME)
        yield Path(made)


def _arguments(name: str, side: str) -> list[str]:
    return ["--fault", name, *([] if side == SLOW else ["--healthy"])]


def _timed(name: str) -> None:
    load = os.getloadavg()[0]
    with _placed(faults()[name]) as folder:
        slow, healthy = (timed(folder, f"{name}/{side}", _arguments(name, side)) for side in SIDES)
    append(TIMINGS, Timing(name=name, slow_s=slow[0], healthy_s=healthy[0], steps=slow[1], load=load))
    print(f"{name}: {slow[0]:.1f} s, gain {100 * (1 - healthy[0] / slow[0]):.1f} %, load {load:.1f}", flush=True)


def _asked(name: str, side: str) -> None:
    with _placed(faults()[name]) as folder:
        append(LOOKS, looked_at(folder, name, side, SEEN, _arguments(name, side)))


if __name__ == "__main__":
    main()
