"""Values over time: the memory of each device."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64
from profkit.model.documents.tracks import Curve
from profkit.model.trace import Trace
from profkit.timeline.allocations import pools

_BUCKETS: Final = 2000
"""Chosen: about a screen's width in pixels; each bucket keeps its first, least, greatest and last point."""


def curves_of(trace: Trace) -> tuple[Curve, ...]:
    """Allocated and reserved bytes inside the window; none where allocations were not recorded."""
    low, high = trace.window_ns
    found = []
    for pool in pools(trace):
        where = "host" if pool.is_host else f"GPU {pool.device}"
        columns = (("allocated", pool.allocated_bytes), ("reserved", pool.reserved_bytes))
        inside = np.flatnonzero((pool.start_ns >= low) & (pool.start_ns < high))
        for word, values in columns:
            if values is None or inside.size == 0:
                continue
            shown = inside[_outline(pool.start_ns[inside], values[inside])]
            found.append(
                Curve(
                    key=f"memory:{where}:{word}",
                    label=f"{where}: {word} memory",
                    unit="bytes",
                    at_ns=pool.start_ns[shown],
                    value=values[shown],
                )
            )
    return tuple(found)


def _outline(at_ns: I64, values: I64) -> NDArray[np.intp]:
    """The points that a line of `_BUCKETS` pixels can show: the greatest and the least are among them."""
    if at_ns.size <= 4 * _BUCKETS:
        return np.arange(at_ns.size)
    width = max(int(at_ns[-1] - at_ns[0]), 1)
    bucket = (at_ns - at_ns[0]) * _BUCKETS // (width + 1)
    first = np.flatnonzero(np.diff(bucket, prepend=-1))
    last = np.append(first[1:], at_ns.size) - 1
    order = np.lexsort((values, bucket))
    return np.unique(np.concatenate((first, last, order[first], order[last])))
