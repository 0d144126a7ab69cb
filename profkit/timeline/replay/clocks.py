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
    n = len(events.behind) + 1
    host = spent.astype(np.float64)
    is_wait = events.lane == WAIT
    reached = host + np.where(is_gone, 0.0, events.reach)
    joined = np.full((n, n, host.size), -np.inf)
    joined[0, 0] = np.where(is_wait, reached, host)
    for lane, column in enumerate(events.behind, 1):
        joined[lane, lane] = 0.0
        joined[0, lane, is_wait] = np.where(is_gone, -np.inf, column)[is_wait]
    for lane in range(1, n):
        is_mine = events.lane == lane - 1
        joined[lane, 0, is_mine] = reached[is_mine]
        for other, column in enumerate(events.behind, 1):
            joined[lane, other, is_mine] = column[is_mine]
    while joined.shape[2] > 1:
        joined = _halved(joined)
    first = np.array((0.0, *before))
    return [float((row[:, 0] + first).max()) for row in joined]


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
