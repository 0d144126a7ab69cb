"""Operators of the timed steps matched with those of the steps that were recorded once more, with Python stacks.

Both windows are of one process, so a step is matched with a step, a thread with the same thread, and operators by the
order of their names. Where the order is the same all of them are matched. Where it is not, there may be several longest
common sequences (a layer more in one of two equal steps: which?): `first` is the one that matches early, `last` the one
that matches late, and what both say is certain. Ids that the profiler gives run on between windows: they match nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from profkit.model.arrays import I64, distinct, looked_up
from profkit.model.trace import CpuOps, Trace

_MOST_CELLS: Final = 1_000_000
"""Cells of the table that finds a longest common sequence exactly: milliseconds (chosen)."""
_MOST_CELLS_IN_ALL: Final = 50_000_000
_MOST_LEFT_OUT: Final = 64
"""Operators that may be missing on either side of two long windows for an exact match: 20 ms each (chosen)."""
_MOST_SEARCHES: Final = 64
_LENGTHS: Final = (64, 16, 4, 1)
"""Lengths of runs of names that anchor a match where they stand once on each side (chosen: longer ones first)."""


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """For each operator of the timed trace, the row of the same one in the other trace, -1 where there is none.

    Shapes (n_ops,). `first` and `last` differ where several matches are equally long.
    """

    first: I64
    last: I64
    step_of: I64
    """For each step of the timed trace the place of the step it was matched with, -1 for none, shape (n_steps,)."""
    n_in_steps: int
    """The operators of the timed trace that lie in steps."""

    @property
    def rows(self) -> I64:
        """What is certain: the row where both agree, else -1."""
        return np.where(self.first == self.last, self.first, -1)

    @property
    def share(self) -> float:
        """The part of the operators in steps that are certainly matched, 0 of none."""
        return float((self.rows >= 0).sum()) / self.n_in_steps if self.n_in_steps else 0.0


def match_ops(timed: Trace, other: Trace) -> Match:
    """The operators of a timed trace in another trace of the same process; those outside steps have none."""
    first, last = np.full(len(timed.ops), -1, np.int64), np.full(len(timed.ops), -1, np.int64)
    names, other_names = _common_names(timed, other)
    others = [dict(_by_thread(other, rows)) for rows in _in_steps(other)]
    sizes = [sum(rows.size for rows in step.values()) for step in others]
    step_of, n_in_steps, budget = np.full(len(timed.steps), -1, np.int64), 0, _Budget()
    for number, rows in enumerate(_in_steps(timed)):
        mine = dict(_by_thread(timed, rows))
        n_best, n_in_steps = 0, n_in_steps + rows.size
        for place in sorted(range(len(others)), key=lambda place: abs(sizes[place] - rows.size)):
            early, late = _of_step(mine, others[place], (names, other_names), budget)
            n_certain = int(((early == late) & (early >= 0)).sum())
            if n_certain > n_best:
                first[rows], last[rows] = early, late
                step_of[number], n_best = place, n_certain
            if n_best == rows.size:
                break
    return Match(first=first, last=last, step_of=step_of, n_in_steps=n_in_steps)


def _of_step(
    mine: dict[tuple[str, str], I64], theirs: dict[tuple[str, str], I64], names: tuple[I64, I64], budget: _Budget
) -> tuple[I64, I64]:
    """For the operators of a step, in the order of their rows, those of another step: early and late."""
    n_rows = sum(rows.size for rows in mine.values())
    low = min((int(rows[0]) for rows in mine.values()), default=0)
    early, late = np.full(n_rows, -1, np.int64), np.full(n_rows, -1, np.int64)
    for thread, rows in mine.items():
        if thread in theirs:
            first, last = _aligned(names[0][rows], names[1][theirs[thread]], budget)
            early[rows - low], late[rows - low] = looked_up(theirs[thread], first), looked_up(theirs[thread], last)
    return early, late


class _Budget:
    """What may still be spent on matching windows that differ."""

    def __init__(self) -> None:
        self._n_cells = _MOST_CELLS_IN_ALL
        self._n_searches = _MOST_SEARCHES

    def has_room(self, n_cells: int) -> bool:
        """Whether there is room for an exact table of so many cells, which is then taken."""
        if n_cells > min(_MOST_CELLS, self._n_cells):
            return False
        self._n_cells -= n_cells
        return True

    def has_searches(self) -> bool:
        """Whether one more search may be made."""
        self._n_searches -= 1
        return self._n_searches >= 0


def _common_names(timed: Trace, other: Trace) -> tuple[I64, I64]:
    """The names of the operators of both traces as codes of one table."""
    codes: dict[str, int] = {}
    found = []
    for trace in (timed, other):
        used, inverse = np.unique(trace.ops.name, return_inverse=True)
        table = np.array([codes.setdefault(trace.strings[code], len(codes)) for code in used.tolist()], np.int64)
        found.append(table[inverse] if table.size else np.empty(0, np.int64))
    return found[0], found[1]


def _in_steps(trace: Trace) -> Iterator[I64]:
    """The rows of the operators that start in each step."""
    starts = trace.ops.start_ns
    for step in trace.steps:
        low, high = np.searchsorted(starts, (step.start_ns, step.end_ns))
        yield np.arange(low, high)


def _by_thread(trace: Trace, rows: I64) -> Iterator[tuple[tuple[str, str], I64]]:
    """The rows of each thread, by the ids that the trace writes."""
    ops: CpuOps = trace.ops
    threads = ops.thread[rows]
    for thread in distinct(threads).tolist():
        named = trace.threads[thread]
        yield (named.pid, named.tid), rows[threads == thread]


def _aligned(mine: I64, theirs: I64, budget: _Budget) -> tuple[I64, I64]:
    """For each of mine the place among theirs, -1 for none: matched as early as can be, and as late."""
    if mine.size == theirs.size and bool((mine == theirs).all()):
        same = np.arange(mine.size)
        return same, same
    early = _earliest(mine, theirs, budget)
    late = _earliest(mine[::-1], theirs[::-1], budget)[::-1]
    return early, np.where(late >= 0, theirs.size - 1 - late, -1)


def _earliest(mine: I64, theirs: I64, budget: _Budget) -> I64:
    """A long common sequence of both, its parts matched as early as can be: the place of each of mine, -1 for none."""
    found = np.full(mine.size, -1, np.int64)
    open_parts = [(0, mine.size, 0, theirs.size)]
    while open_parts:
        low, high, first, stop = open_parts.pop()
        n_same = _n_ahead(mine[low:high], theirs[first:stop])
        found[low : low + n_same] = np.arange(first, first + n_same)
        low, first = low + n_same, first + n_same
        one, two = mine[low:high], theirs[first:stop]
        if not one.size or not two.size:
            continue
        if budget.has_room(one.size * two.size):
            runs = _exactly(one, two)
        elif budget.has_searches():
            runs = _nearly(one, two)
        else:
            continue
        for begin, other, size in runs:
            found[low + begin : low + begin + size] = np.arange(first + other, first + other + size)
        if not runs:
            anchors = next((pairs for length in _LENGTHS if (pairs := _anchors(one, two, length))), [])
            edges = [(low + begin, first + other) for begin, other in anchors]
            edges = [(low, first), *edges, (high, stop)] if anchors else []
            open_parts += [(begin[0], end[0], begin[1], end[1]) for begin, end in pairwise(edges)]
    return found


def _n_same(one: I64, two: I64) -> int:
    """How many both begin with."""
    differs = one != two
    return int(differs.argmax()) if differs.any() else one.size


def _nearly(mine: I64, theirs: I64) -> list[tuple[int, int, int]]:
    """A longest common sequence of two that differ little, as runs: place on each side, size; [] if they differ more.

    Myers' greedy search: for each number of left out operators the furthest that each shift between the sides leads to.
    """
    if abs(mine.size - theirs.size) > _MOST_LEFT_OUT:
        return []
    furthest = {1: 0}
    history: list[dict[int, int]] = []
    for n_out in range(_MOST_LEFT_OUT + 1):
        history.append(dict(furthest))
        for shift in range(-n_out, n_out + 1, 2):
            skips_theirs = shift == -n_out or (shift != n_out and furthest[shift - 1] < furthest[shift + 1])
            row = furthest[shift + 1] if skips_theirs else furthest[shift - 1] + 1
            if row > mine.size or row - shift > theirs.size:
                furthest[shift] = row
                continue
            row += _n_ahead(mine[row:], theirs[row - shift :])
            furthest[shift] = row
            if row >= mine.size and row - shift >= theirs.size:
                return _runs(history, mine.size, theirs.size)
    return []


def _runs(history: list[dict[int, int]], row: int, place: int) -> list[tuple[int, int, int]]:
    """The equal runs on the way that the search has found, from its end back."""
    runs = []
    for n_out in range(len(history) - 1, -1, -1):
        furthest, shift = history[n_out], row - place
        skips_theirs = shift == -n_out or (shift != n_out and furthest[shift - 1] < furthest[shift + 1])
        before = shift + 1 if skips_theirs else shift - 1
        begun = furthest[before] + (not skips_theirs) if n_out else 0
        runs.append((begun, begun - shift, row - begun))
        row = begun - (not skips_theirs)
        place = row - before
    return runs


def _n_ahead(mine: I64, theirs: I64) -> int:
    """How many both begin with, looked for in a few steps: mostly the first ones differ."""
    most = min(mine.size, theirs.size)
    done, size = 0, 8
    while done < most:
        n_same = _n_same(mine[done : min(done + size, most)], theirs[done : min(done + size, most)])
        done += n_same
        if n_same < size:
            break
        size *= 8
    return done


def _exactly(mine: I64, theirs: I64) -> list[tuple[int, int, int]]:
    """The same of two short ones, however they differ, by the table of lengths from each pair of places on."""
    lengths = np.zeros((mine.size + 1, theirs.size + 1), np.int32)
    for row in range(mine.size - 1, -1, -1):
        below = lengths[row + 1]
        best = np.maximum(below[:-1], below[1:] + (theirs == mine[row]))
        lengths[row, :-1] = np.maximum.accumulate(best[::-1])[::-1]
    runs = [(0, 0, 0)]
    row = place = 0
    while row < mine.size and place < theirs.size:
        if mine[row] == theirs[place]:
            runs.append((row, place, 1))
            row, place = row + 1, place + 1
        elif lengths[row + 1, place] >= lengths[row, place + 1]:
            row += 1
        else:
            place += 1
    return runs


def _anchors(mine: I64, theirs: I64, length: int) -> list[tuple[int, int]]:
    """Places of runs of names that stand once on each side, in the same order on both."""
    if min(mine.size, theirs.size) < length:
        return []
    one, two = _hashes(mine, length), _hashes(theirs, length)
    values, places, counts = np.unique(one, return_index=True, return_counts=True)
    others, other_places, other_counts = np.unique(two, return_index=True, return_counts=True)
    _, left, right = np.intersect1d(values[counts == 1], others[other_counts == 1], return_indices=True)
    pairs = np.stack([places[counts == 1][left], other_places[other_counts == 1][right]], axis=1)
    pairs = pairs[np.argsort(pairs[:, 0])]
    chosen = pairs[_increasing(pairs[:, 1])]
    is_same = np.ones(len(chosen), bool)
    for step in range(length):  # a hash may mislead
        is_same &= mine[chosen[:, 0] + step] == theirs[chosen[:, 1] + step]
    return [(int(mine_at), int(their_at)) for mine_at, their_at in chosen[is_same]]


def _hashes(codes: I64, length: int) -> I64:
    """A number for each run of that length."""
    hashes = np.zeros(codes.size - length + 1, np.int64)
    for step in range(length):
        hashes = hashes * np.int64(1_000_003) + codes[step : step + hashes.size] + 1
    return hashes


def _increasing(values: I64) -> I64:
    """The places of a longest increasing sequence."""
    ends: list[int] = []
    rows: list[int] = []
    before = np.full(values.size, -1, np.int64)
    for row, value in enumerate(values.tolist()):
        place = bisect_left(ends, value)
        before[row] = rows[place - 1] if place else -1
        ends[place : place + 1] = [value]
        rows[place : place + 1] = [row]
    chosen = []
    row = rows[-1] if rows else -1
    while row >= 0:
        chosen.append(row)
        row = int(before[row])
    return np.array(chosen[::-1], np.int64)
