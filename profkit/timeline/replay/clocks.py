"""The clocks of host and streams, run through launches and waits (`profkit/timeline/replay/__init__.py`)."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64
from profkit.native import algebra

F64 = NDArray[np.float64]

WAIT: Final = -1
_AT_ONCE: Final = 2**14
"""Meetings of clocks that are joined at a time. Chosen: matrices of that many stay in the cache, and those of a large
trace need not all be in memory."""


class Events(msgspec.Struct, frozen=True, kw_only=True):
    """Launches and waits in the host's order; times in ns, shape (n,) each."""

    at_ns: I64
    """When the host came to it."""
    left_ns: I64
    """When the host went on."""
    lane: NDArray[np.int8]
    """The stream of a launch, from 0, the busiest, on; `WAIT`."""
    reach: F64
    """`y` of launches, `o` of waits."""
    behind: tuple[F64, ...]
    """For each stream: `x` or `z` of launches, `d` of waits; minus infinity where it waits for none of it."""


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """Events with all that does not depend on the host's time: as runs of launches, each up to a meeting of clocks."""

    meets: NDArray[np.intp]
    """The events that set one clock by another: waits, launches behind another stream, and the last, shape (m,)."""
    first: NDArray[np.intp]
    """The first event of each run, shape (m,)."""
    behind: tuple[F64, ...]
    """`behind` of `meets`, shape (m,) each."""
    taken: tuple[F64, ...]
    """What each stream takes for a run's launches one after the other, shape (m,) each."""
    rest: tuple[F64, ...]
    """For each stream and launch: its `y` and what the stream takes after it until the run ends, shape (n,) each."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """Events, of which there is one at least, and their runs where numpy takes them: C goes from event to event."""

    events: Events
    runs: Runs | None


def program_of(events: Events) -> Program:
    """The program of events."""
    is_compiled = events.lane.size >= algebra.LEAST and algebra.is_in_use()
    return Program(events=events, runs=None if is_compiled else runs_of(events))


def runs_of(events: Events) -> Runs:
    """The runs of events."""
    is_met = events.lane == WAIT
    for lane, column in enumerate(events.behind):
        is_met |= (events.lane != lane) & (column > -np.inf)
    is_met[-1] = True
    meets = np.flatnonzero(is_met)
    run_of = np.cumsum(is_met) - is_met
    taken, rest = [], []
    for lane, column in enumerate(events.behind):
        mine = ~is_met & (events.lane == lane)
        passed = np.cumsum(np.where(mine, column, 0.0))
        taken.append(np.diff(passed[meets], prepend=0.0))
        rest.append(np.where(mine, events.reach + passed[meets][run_of] - passed, -np.inf))
    return Runs(
        meets=meets,
        first=np.concatenate(([0], meets[:-1] + 1)),
        behind=tuple(column[meets] for column in events.behind),
        taken=tuple(taken),
        rest=tuple(rest),
    )


def run(program: Program, spent: I64, is_gone: NDArray[np.bool_], before: tuple[int, ...]) -> list[float]:
    """Where the host and each stream end up, from the host's beginning on, with this host time between events.

    `is_gone`: the waits that hold nobody any more.
    """
    events, runs = program.events, program.runs
    if runs is None:
        found = algebra.clocks(spent, is_gone, events.lane, (events.reach, events.behind), before)
        if found is not None:
            return found
        runs = runs_of(events)
    return _by_matrices(events, runs, (spent, is_gone), before)


def _by_matrices(
    events: Events, runs: Runs, given: tuple[I64, NDArray[np.bool_]], before: tuple[int, ...]
) -> list[float]:
    """Run matrices over (max, +): each event is one, and so is any run of them.

    A run of launches is one by sums, then pairs are joined until one is left, of so many at a time.
    """
    spent, is_gone = given
    host = np.cumsum(spent, dtype=np.float64)
    clocks = np.array((0.0, *before))
    for first in range(0, runs.meets.size, _AT_ONCE):
        joined = _joined(events, runs, (host, is_gone), slice(first, first + _AT_ONCE))
        while joined.shape[2] > 1:
            joined = _halved(joined)
        clocks = (joined[:, :, 0] + clocks).max(axis=1)
    found: list[float] = clocks.tolist()
    return found


def _joined(events: Events, runs: Runs, given: tuple[F64, NDArray[np.bool_]], some: slice) -> F64:
    """A matrix for each of some runs of launches with the event that ends it, shape (k, k, m).

    Given: the host's time until each event, and `is_gone` of each event.
    """
    (host, is_gone), meets, first = given, runs.meets[some], runs.first[some]
    n = len(runs.taken) + 1
    joined = np.full((n, n, meets.size), -np.inf)
    within = slice(int(first[0]), int(meets[-1]) + 1)
    begun = np.where(first > 0, host[first - 1], 0.0)
    joined[0, 0] = host[meets] - begun
    for lane in range(1, n):
        joined[lane, lane] = runs.taken[lane - 1][some]
        rest = runs.rest[lane - 1][within] + host[within]
        np.maximum.reduceat(rest, first - first[0], out=joined[lane, 0])
        joined[lane, 0] -= begun
    lane_of, is_gone = events.lane[meets], is_gone[meets]
    reached = joined[0, 0] + np.where(is_gone, 0.0, events.reach[meets])
    launched = joined[1:, 0].copy()
    for place in range(n):
        rows = np.flatnonzero(lane_of == (WAIT if place == 0 else place - 1))
        if rows.size == 0:
            continue
        ends = reached[rows]
        for lane in range(1, n):
            behind = runs.behind[lane - 1][some][rows]
            if place == 0:
                behind[is_gone[rows]] = -np.inf
            np.maximum(ends, behind + launched[lane - 1, rows], out=ends)
            joined[place, lane, rows] = behind + runs.taken[lane - 1][some][rows]
        joined[place, 0, rows] = ends
    return joined


def _halved(joined: F64) -> F64:
    """Matrices one after the other, shape (k, k, n), each joined with its successor; a last one without stays."""
    k, _, n = joined.shape
    half = n // 2
    out = np.empty((k, k, half + n % 2))
    one, two = joined[:, :, 0 : 2 * half : 2], joined[:, :, 1 : 2 * half : 2]
    for row in range(k):
        into = out[row, :, :half]
        np.add(two[row, 0], one[0], out=into)
        for via in range(1, k):
            np.maximum(into, two[row, via] + one[via], out=into)
    if n % 2:
        out[:, :, half] = joined[:, :, -1]
    return out
