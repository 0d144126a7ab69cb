"""Intervals that overlap, split into lanes of disjoint ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64


def lanes(start_ns: I64, end_ns: I64, most: int) -> tuple[list[NDArray[np.intp]], int]:
    """The rows of each lane (positions, in order of start), and how many rows lie deeper than `most` lanes.

    A row goes to the first lane in which it overlaps none that began before it: nested ranges stand under what
    encloses them. Zero-length rows count as one nanosecond. Rows must be sorted by start, the longer first.
    """
    rest: NDArray[np.intp] = np.arange(start_ns.size)
    ends = np.maximum(end_ns, start_ns + 1)
    found: list[NDArray[np.intp]] = []
    while rest.size and len(found) < most:
        start, end = start_ns[rest], ends[rest]
        is_free = np.ones(rest.size, np.bool_)
        is_free[1:] = start[1:] >= np.maximum.accumulate(end)[:-1]
        found.append(rest[is_free])
        rest = rest[~is_free]
    return found, int(rest.size)
