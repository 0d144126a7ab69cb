"""The clocks of host and streams, run through launches and waits (`profkit/timeline/replay/__init__.py`)."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64

F64 = NDArray[np.float64]

WAIT: Final = -1


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


def run(events: Events, spent: I64, is_gone: NDArray[np.bool_], before: tuple[int, ...]) -> list[float]:
    """Where the host and each stream end up, from the host's beginning on, with this host time between events.

    Each event is a matrix over (max, +), and so is any run of them: pairs are joined until one is left.
    """
    host = spent.astype(np.float64)
    reached = host + np.where(is_gone, 0.0, events.reach)
    behind = [np.where(is_gone, -np.inf, column) for column in events.behind]
    is_wait = events.lane == WAIT
    joined = [[np.where(is_wait, reached, host), *(np.where(is_wait, column, -np.inf) for column in behind)]]
    for lane in range(len(behind)):
        is_mine = events.lane == lane
        kept = [0.0 if column == lane else -np.inf for column in range(len(behind))]
        joined.append(
            [
                np.where(is_mine, reached, -np.inf),
                *(np.where(is_mine, column, stays) for column, stays in zip(behind, kept, strict=True)),
            ]
        )
    while joined[0][0].size > 1:
        joined = _halved(joined)
    first = (0.0, *(float(at) for at in before))
    return [max(float(cell[0]) + at for cell, at in zip(row, first, strict=True)) for row in joined]


def _halved(run: list[list[F64]]) -> list[list[F64]]:
    """Matrices one after the other, each joined with its successor; a last one without stays."""
    n = run[0][0].size // 2 * 2
    one = [[cell[0:n:2] for cell in row] for row in run]
    two = [[cell[1:n:2] for cell in row] for row in run]
    places = range(len(run))
    joined = [
        [np.maximum.reduce([two[row][via] + one[via][column] for via in places]) for column in places] for row in places
    ]
    if n == run[0][0].size:
        return joined
    return [[np.append(joined[row][column], run[row][column][-1]) for column in places] for row in places]
