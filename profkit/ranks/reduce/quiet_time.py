"""Host time in which a trace has nothing: no operator, no call, no range. A sleep looks so, a lock, a page fault."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64
from profkit.model.intervals import Intervals
from profkit.model.table import NO_CODE
from profkit.model.trace import I32, SpanKind, Trace
from profkit.ranks.reduce.activity import most_by_row, threads_of
from profkit.ranks.reduce.records import LeadRanges

MIN_QUIET_NS: Final = 1_000_000
"""A shorter gap is Python between operators. Chosen: eager modules leave 10 to 200 us."""
_NEVER_WORK: Final = (SpanKind.STEP,)


def quiet_before(trace: Trace, issued_ns: I64, tops: NDArray[Any]) -> LeadRanges:
    """The quiet host time before each collective (times of issue, rising), by what the host did next.

    A range counts as recorded where no operator begins in it: of `forward` it is not known what it did between two.
    """
    start, end, name = _recorded(trace, tops)
    quiet = Intervals.of(start, end).gaps(*trace.window_ns)
    rows = np.flatnonzero(quiet.lengths_ns >= MIN_QUIET_NS)
    begun, over = quiet.start_ns[rows], quiet.end_ns[rows]
    order = np.argsort(start, kind="stable")
    place = np.searchsorted(start[order], over)
    following = np.append(name[order], NO_CODE)[place].astype(np.int64)
    row = np.searchsorted(issued_ns, begun, "right")
    inside = row < issued_ns.size
    over = np.minimum(over[inside], issued_ns[row[inside]]) if inside.any() else over[inside]
    return most_by_row(row[inside], following[inside], over - begun[inside])


def _recorded(trace: Trace, tops: NDArray[Any]) -> tuple[I64, I64, I32]:
    """Start, end and name of all that the training threads are known to have done, and of gloo's own work."""
    ops, calls, spans = trace.ops.take(tops), trace.calls, trace.spans
    threads = threads_of(trace)
    called = calls.take(np.isin(calls.thread, threads))
    ranged = spans.take(np.isin(spans.thread, threads) & ~np.isin(spans.kind, _NEVER_WORK))
    is_leaf = np.searchsorted(ops.start_ns, ranged.end_ns) == np.searchsorted(ops.start_ns, ranged.start_ns)
    ranged = ranged.take(is_leaf | (ranged.kind == SpanKind.LOADER))
    gloo = spans.take(spans.kind == SpanKind.COMM)
    tables = (ops, called, ranged, gloo)
    start, end, name = (
        np.concatenate([getattr(table, column) for table in tables]) for column in ("start_ns", "end_ns", "name")
    )
    return start, end, name
