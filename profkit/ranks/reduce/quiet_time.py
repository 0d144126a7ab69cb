"""Host time in which a trace has nothing: no operator, no call, no range. A sleep looks so, a lock, a page fault."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64
from profkit.model.intervals import Intervals
from profkit.model.table import NO_CODE
from profkit.model.trace import I32, CpuOps, RuntimeCalls, SpanKind, Spans, Trace
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
    quiet = _blocks(start, end).gaps(*trace.window_ns)
    rows = np.flatnonzero(quiet.lengths_ns >= MIN_QUIET_NS)
    begun, over = quiet.start_ns[rows], quiet.end_ns[rows]
    place = np.searchsorted(start, over)
    following = np.append(name, NO_CODE)[place].astype(np.int64)
    row = np.searchsorted(issued_ns, begun, "right")
    inside = row < issued_ns.size
    over = np.minimum(over[inside], issued_ns[row[inside]]) if inside.any() else over[inside]
    return most_by_row(row[inside], following[inside], over - begun[inside])


def _blocks(start: I64, end: I64) -> Intervals:
    """What lies around the quiet times: the set of these intervals, by start, with all shorter gaps in it closed."""
    lasting = end > start
    if not lasting.all():
        start, end = start[lasting], end[lasting]
    if start.size == 0:
        return Intervals.empty()
    reach = np.maximum.accumulate(end)
    begins = np.flatnonzero(start[1:] - reach[:-1] >= MIN_QUIET_NS) + 1
    return Intervals(start[np.append(0, begins)], reach[np.append(begins - 1, -1)])


def _recorded(trace: Trace, tops: NDArray[Any]) -> tuple[I64, I64, I32]:
    """Start, end and name of all that the training threads are known to have done, and of gloo's own work, by start."""
    ops, calls, spans = trace.ops, trace.calls, trace.spans
    threads = threads_of(trace)
    start = ops.start_ns[tops]
    ranged = np.isin(spans.thread, threads) & ~np.isin(spans.kind, _NEVER_WORK)
    is_leaf = np.searchsorted(start, spans.end_ns) == np.searchsorted(start, spans.start_ns)
    ranged &= is_leaf | (spans.kind == SpanKind.LOADER)
    chosen: tuple[tuple[CpuOps | RuntimeCalls | Spans, NDArray[Any]], ...] = (
        (ops, tops),
        (calls, np.isin(calls.thread, threads)),
        (spans, ranged),
        (spans, spans.kind == SpanKind.COMM),
    )
    start = np.concatenate([table.start_ns[rows] for table, rows in chosen])
    order = np.argsort(start, kind="stable")
    start = start[order]  # one copy of each at a time: of a large trace they are the peak of memory
    end = np.concatenate([table.end_ns[rows] for table, rows in chosen])[order]
    return start, end, np.concatenate([table.name[rows] for table, rows in chosen])[order]
