"""How much more than the time of its cause a removal gives on a CPU: `BEYOND` of `profkit/verdict/on_cpu.py`.

    python -m analyses.accuracy.bounds [results.jsonl]

The smallest addition with which nine of ten ceilings are not below the measured gain itself; each family, and each
pathology, by what the others say. What is scored is whether a ceiling is not below the interval of the gain.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from analyses.accuracy import score
from analyses.accuracy.again import TOOL
from analyses.accuracy.cell import CellResult
from analyses.accuracy.results import RESULTS, read_rows
from analyses.accuracy.score import Judged
from analyses.accuracy.shares import Share, share_of
from profkit.verdict.on_cpu import BEYOND, most_share

WANTED: Final = 0.9
GRID: Final = tuple(number / 100 for number in range(0, 101, 5))


class Group(msgspec.Struct, frozen=True):
    """Cells of one family or pathology, what the others say is to be added, and its ceilings that hold with that."""

    name: str
    beyond: float
    held: Share


def held(of: Sequence[Judged], beyond: float) -> Share:
    """The ceilings not below the interval of the gain, where causes are worth so much more than their time."""
    return share_of([ceiling >= low for ceiling, low, _ in _known(of, beyond)])


def covered(of: Sequence[Judged], beyond: float) -> Share:
    """The same, not below the gain itself."""
    return share_of([ceiling >= gain for ceiling, _, gain in _known(of, beyond)])


def _known(of: Sequence[Judged], beyond: float) -> list[tuple[float, float, float]]:
    """Ceiling with the addition, the least that the removal surely gave, and what it gave."""
    rows = [(one.time_share, one.cell.gain, one.cell.gain_interval) for one in score.with_gain(of)]
    return [
        (most_share(share, beyond), (interval or (gain,))[0], gain)
        for share, gain, interval in rows
        if share is not None and gain is not None
    ]


def chosen(of: Sequence[Judged]) -> float:
    """The least addition that covers as many as are wanted; the largest of the grid where none does it."""
    return next((one for one in GRID if (share := covered(of, one)).n and share.k >= WANTED * share.n), GRID[-1])


def by_others(of: Sequence[Judged], by: Callable[[CellResult], str]) -> list[Group]:
    """Each group of cells by the addition that the others ask for."""
    found = []
    for name, own in score.grouped(of, by).items():
        others = chosen([one for one in of if by(one.cell) != name])
        found.append(Group(name, others, held(own, others)))
    return found


def families(of: Sequence[Judged]) -> list[Group]:
    """Each family by the others."""
    return by_others(of, lambda cell: cell.family)


def pathologies(of: Sequence[Judged]) -> list[Group]:
    """Each pathology by the others."""
    return by_others(of, lambda cell: cell.pathology)


def held_out(found: Sequence[Group]) -> Share:
    """All groups, each with the addition of the others."""
    return Share(sum(one.held.k for one in found), sum(one.held.n for one in found))


def main() -> None:
    """Prints the choice, and each family by the others."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="?", type=Path, default=RESULTS)
    of = score.judged(read_rows(parser.parse_args().results), TOOL)
    for one in GRID:
        print(f"{one:5.2f}  {held(of, one)}  {covered(of, one)}")
    print("chosen:", chosen(of), " in use:", BEYOND)
    found = families(of)
    print("\n".join(f"{one.name:12} {one.beyond:5.2f}  {one.held}" for one in found))
    print("each family by the others:", held_out(found))
    print("each pathology by the others:", held_out(pathologies(of)))


if __name__ == "__main__":
    main()
