"""How often and how long each name comes: kernels, copies, CUDA and OS calls, ranges and operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64
from profkit.model.trace import CpuOps, Kind, RuntimeCalls, Spans, Trace

TABLES: Final = ("kernels", "copies", "calls", "waits", "ranges", "operators")


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """All rows of one name; `share` (0-1) is of the time of all rows of its table, times are ns."""

    name: str
    n: int
    share: float
    total_ns: int
    mean_ns: float
    median_ns: float
    min_ns: int
    max_ns: int
    stddev_ns: float
    """Of the rows as a sample (n - 1); 0 of one row."""


def first_ns(trace: Trace) -> int:
    """When the first row of any table begins; 0 without rows."""
    starts = [int(start.min()) for _, (_, start, _) in _tables(trace) if start.size]
    return min(starts, default=0)


def totals(trace: Trace, between_ns: tuple[int, int] | None = None) -> Mapping[str, tuple[Total, ...]]:
    """The names of each table (`TABLES`) that has rows, the largest total first.

    `between_ns` takes the rows that begin in this stretch (first included, last not), counted from `first_ns`.
    """
    low, high = between_ns if between_ns is not None else (0, 0)
    origin = first_ns(trace)
    found: dict[str, tuple[Total, ...]] = {}
    for table, (names, start, end) in _tables(trace):
        inside = (start - origin >= low) & (start - origin < high) if between_ns is not None else slice(None)
        if names[inside].size:
            each = _of_names(trace, names[inside], (end - start)[inside])
            found[table] = tuple(sorted(each, key=lambda one: -one.total_ns))
    return found


_Columns = tuple[NDArray[np.int32], I64, I64]


def _tables(trace: Trace) -> Iterable[tuple[str, _Columns]]:
    gpu = trace.gpu
    copies = gpu.kind == Kind.COPY
    for table, rows in (("kernels", ~copies), ("copies", copies)):
        yield table, (gpu.name[rows], gpu.start_ns[rows], gpu.end_ns[rows])
    host: dict[str, RuntimeCalls | Spans | CpuOps] = {
        "calls": trace.calls,
        "waits": trace.waits,
        "ranges": trace.spans,
        "operators": trace.ops,
    }
    for table, one in host.items():
        yield table, (one.name, one.start_ns, one.end_ns)


def _of_names(trace: Trace, names: NDArray[np.int32], duration: I64) -> Iterable[Total]:
    """One `Total` for each name; durations are sorted within names, so that medians are places."""
    order = np.lexsort((duration, names))
    names, duration = names[order], duration[order]
    edges = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), names.size]
    whole = float(duration.sum(dtype=np.float64))
    for first, last in pairwise(edges):
        mine = duration[first:last]
        total, n = int(mine.sum()), last - first
        yield Total(
            name=trace.name(int(names[first])),
            n=n,
            share=total / whole if whole else 0.0,
            total_ns=total,
            mean_ns=total / n,
            median_ns=(int(mine[(n - 1) // 2]) + int(mine[n // 2])) / 2,
            min_ns=int(mine[0]),
            max_ns=int(mine[-1]),
            stddev_ns=float(np.std(mine.astype(np.float64), ddof=1)) if n > 1 else 0.0,
        )
