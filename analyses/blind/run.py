"""Time the programs of a blind round without a profiler, then ask profkit about each, once.

    python -m analyses.blind.run ROUND [--turns 2] [--only NAME] [--lock FILE] [--no-ask]

A turn that was timed is not timed again, and a first look is never taken again: where there is one, the answer is
kept as "seen". profkit is not asked about a program that has no time yet. No program is told which side it is.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from analyses.blind.rounds import FIRST, SEEN, SIDES, Found, Look, Timing, append, folder_of, read_round
from analyses.field.judge import commit_of

ROOT: Final = Path(__file__).resolve().parents[2]
_LIMIT_S: Final = 300
_LAST_LINE: Final = re.compile(r"^loop_s=([\d.]+) steps=(\d+)\s*$", re.MULTILINE)
_HELD_S: Final = 80
"""For so long locks are held before others have their turn. Chosen: three programs of both sides."""
_REST_S: Final = 2
"""For so long they are free then: who asks a few times a second gets one. Chosen."""
_UNLIKE: Final = 0.04
"""By how much the gains of two turns may differ before a third is asked. Chosen: more than a decoy costs."""
NAME: Final = "train.py"
"""What both sides are called when they run: a name on a screen must not tell the side."""


def main() -> None:
    """Times, then asks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("round", type=int)
    parser.add_argument(
        "--turns", type=int, default=2, help="times that both twins run in turns, one more if these differ"
    )
    parser.add_argument("--only", default="", help="the programs whose name holds this")
    parser.add_argument(
        "--lock",
        type=Path,
        action="append",
        default=[],
        help="a file that is locked while programs run, for a minute or so at a time; may stand several times",
    )
    parser.add_argument("--no-ask", action="store_true", help="time only")
    chosen = parser.parse_args()
    names = [name for name in read_round(chosen.round).truths if chosen.only in name]
    turns = [
        partial(_timed, chosen.round, name, turn, is_extra=turn == chosen.turns)
        for turn in range(chosen.turns + 1)
        for name in names
    ]
    looks = [partial(_asked, chosen.round, name, side) for name in names for side in SIDES]
    in_turns(turns if chosen.no_ask else turns + looks, chosen.lock)


def in_turns(tasks: Iterable[Callable[[], None]], locks: Sequence[Path]) -> None:
    """Does the tasks, and holds locks for `_HELD_S` at a time."""
    with contextlib.ExitStack() as held:
        since = 0.0
        for task in tasks:
            if time.monotonic() - since > _HELD_S:
                held.close()
                if locks:
                    time.sleep(_REST_S)  # for those who ask again and again
                for lock in locks:
                    fcntl.flock(held.enter_context(lock.open("r+")), fcntl.LOCK_EX)
                since = time.monotonic()
            task()


@contextlib.contextmanager
def _placed(number: int, name: str, side: str) -> Iterator[Path]:
    """A fresh folder that holds nothing but the program, under a name that both sides have."""
    with tempfile.TemporaryDirectory(prefix="blind-") as made:
        folder = Path(made)
        shutil.copy(folder_of(number) / name / f"{side}.py", folder / NAME)
        yield folder


def _timed(number: int, name: str, turn: int, *, is_extra: bool) -> None:
    """Times both twins; a turn more only where the gains of those before differ by more than `_UNLIKE`."""
    gains = [1 - one.healthy_s / one.slow_s for one in read_round(number).timings.get(name, [])]
    if len(gains) > turn or (is_extra and max(gains) - min(gains) <= _UNLIKE):
        return
    load, found = os.getloadavg()[0], {}
    for side in SIDES:
        with _placed(number, name, side) as folder:
            found[side] = timed(folder, f"{name}/{side}")
    row = Timing(name=name, slow_s=found["slow"][0], healthy_s=found["healthy"][0], steps=found["slow"][1], load=load)
    append(folder_of(number) / "timings.jsonl", row)
    print(f"{name}: gain {100 * (1 - row.healthy_s / row.slow_s):.1f} %, load {load:.1f}", flush=True)


def timed(folder: Path, name: str, arguments: Sequence[str] = ()) -> tuple[float, int]:
    """The loop's time of the program in a folder, s, and its steps; raises `SystemExit` where it fails."""
    done = _run([sys.executable, NAME, *arguments], folder)
    found = _loop(done.stdout)
    if done.returncode or not found[1]:
        raise SystemExit(f"{name}: exit {done.returncode}: {done.stderr.strip()[-400:]}")
    return found


def _asked(number: int, name: str, side: str) -> None:
    known = read_round(number)
    if name not in known.timings:
        return
    with _placed(number, name, side) as folder:
        look = looked_at(folder, name, side, SEEN if known.first(name, side) else FIRST)
    append(folder_of(number) / "looks.jsonl", look)


def looked_at(folder: Path, name: str, side: str, kind: str, arguments: Sequence[str] = ()) -> Look:
    """What profkit says of the program in a folder, which is asked once."""
    line = [sys.executable, "-m", "profkit", "run", "--no-color", "--", sys.executable, NAME, *arguments]
    done = _run(line, folder)
    told = _run([sys.executable, "-m", "profkit", "triage", "profkit-capture", "-f", "json"], folder)
    hidden = (str(folder.resolve()), str(folder), sys.executable, sys.prefix, str(ROOT))
    report = json.loads(told.stdout) if told.returncode in {0, 1} and told.stdout else None
    look = Look(
        look=kind,
        name=name,
        side=side,
        date=f"{datetime.now(UTC):%Y-%m-%d}",
        commit=commit_of(ROOT),
        exit_code=done.returncode,
        screen=_without(done.stderr, hidden),
        loop_s=_loop(done.stdout)[0],
        **({} if report is None else _said(report)),
    )
    print(f"{name}/{side}: {look.look}, {look.bottleneck or 'no report'}, exit {look.exit_code}", flush=True)
    return look


def _said(report: dict[str, Any]) -> dict[str, Any]:
    verdict = report["verdict"]
    step_ns = verdict["step_ns"] or (report["ranks"][0]["window"]["duration_ns"] if report["ranks"] else 0)
    return {
        "bottleneck": verdict["bottleneck"],
        "confidence": verdict["confidence"],
        "headline": verdict["headline"],
        "findings": tuple(
            Found(
                id=one["id"],
                title=one["title"],
                about=one["recoverable_ns"] / step_ns if step_ns else 0.0,
                at_most=(one.get("most_recoverable_ns") or one["recoverable_ns"]) / step_ns if step_ns else 0.0,
            )
            for one in report["findings"]
        ),
    }


def _loop(out: str) -> tuple[float, int]:
    found = _LAST_LINE.findall(out)
    return (float(found[-1][0]), int(found[-1][1])) if found else (0.0, 0)


def _without(text: str, hidden: tuple[str, ...]) -> str:
    for path in hidden:
        text = text.replace(f"{path}/", "").replace(path, ".")
    return text


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=_LIMIT_S, check=False, cwd=folder, env=env
    )


if __name__ == "__main__":
    main()
