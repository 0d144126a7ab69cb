"""How much more than the time of its cause a removal gives on a CPU: `BEYOND` of `profkit/verdict/on_cpu.py`.

    python -m analyses.accuracy.bounds [results.jsonl]

The smallest addition with which 19 of 20 ceilings are not below the interval of the measured gain; each family by what
the others say.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from analyses.accuracy import score
from analyses.accuracy.again import TOOL
from analyses.accuracy.results import RESULTS, read_rows
from analyses.accuracy.score import Judged
from analyses.accuracy.shares import Share, share_of
from profkit.verdict.on_cpu import BEYOND

WANTED: Final = 0.95
GRID: Final = tuple(number / 100 for number in range(0, 101, 5))


class Family(msgspec.Struct, frozen=True):
    """A family, what the others say is to be added, and its ceilings that hold with that."""

    family: str
    beyond: float
    held: Share


def held(of: Sequence[Judged], beyond: float) -> Share:
    """The ceilings that hold if causes are worth so much more than their time, a share of it."""
    return share_of([_time_share(one) * (1 + beyond) >= _least(one) for one in _known(of)])


def chosen(of: Sequence[Judged]) -> float:
    """The least addition with which as many hold as are wanted; the largest of the grid where none does it."""
    return next((one for one in GRID if (share := held(of, one)).n and share.k >= WANTED * share.n), GRID[-1])


def families(of: Sequence[Judged]) -> list[Family]:
    """Each family by the addition that the others ask for."""
    groups = score.grouped(of, lambda cell: cell.family)
    found = []
    for name, own in groups.items():
        others = chosen([one for one in of if one.cell.family != name])
        found.append(Family(name, others, held(own, others)))
    return found


def held_out(found: Sequence[Family]) -> Share:
    """All families, each with the addition of the others."""
    return Share(sum(one.held.k for one in found), sum(one.held.n for one in found))


def _known(of: Sequence[Judged]) -> list[Judged]:
    return [one for one in score.with_gain(of) if one.ceiling is not None and one.cell.gain is not None]


def _time_share(one: Judged) -> float:
    """The share of the step that the cause itself takes, of a row judged with `BEYOND`."""
    return (one.ceiling or 0.0) / (1 + BEYOND)


def _least(one: Judged) -> float:
    """The least that the removal surely gave."""
    return (one.cell.gain_interval or (one.cell.gain or 0.0,))[0]


def main() -> None:
    """Prints the choice, and each family by the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    of = score.judged(read_rows(parser.parse_args().results), TOOL)
    for one in GRID:
        print(f"{one:5.2f}  {held(of, one)}")
    print("chosen:", chosen(of), " in use:", BEYOND)
    found = families(of)
    print("\n".join(f"{one.family:12} {one.beyond:5.2f}  {one.held}" for one in found))
    print("each family by the others:", held_out(found))


if __name__ == "__main__":
    main()
