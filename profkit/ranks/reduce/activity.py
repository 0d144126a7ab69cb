"""What a rank's host and device did by name, and where its host did nothing: what says why a rank was late."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, rows_by_value
from profkit.model.intervals import Intervals
from profkit.model.table import NO_CODE
from profkit.model.trace import I32, CpuOps, Kind, RuntimeCalls, SpanKind, Spans, Trace
from profkit.ranks.reduce.collective_rows import Collected
from profkit.ranks.reduce.records import LeadRanges, NameRows
from profkit.timeline import Facts
from profkit.timeline.collectives import is_call
from profkit.timeline.cpu import training_threads
from profkit.timeline.host import launching_threads, nesting, outermost

MAX_NAMES: Final = 64
"""Names kept of each kind, by time. Chosen: the 64 longest hold more than 95 % of the time in the captures here."""
_MAX_LEADS: Final = 3
_MIN_RANGE_NS: Final = 20_000
"""A host range shorter than this before a collective explains no lateness worth a report."""
_NOT_WORK: Final = (SpanKind.STEP, SpanKind.COMM, SpanKind.LOADER)
MIN_QUIET_NS: Final = 1_000_000
"""Host time without operator, call or range is quiet from so long on. Chosen: eager modules leave 10 to 200 us."""


def threads_of(trace: Trace) -> tuple[int, ...]:
    """The threads that train: those that launch, or those of the steps where there is no device."""
    return launching_threads(trace) or training_threads(trace)


def top_ops(trace: Trace) -> NDArray[Any]:
    """The rows of operators that no other encloses, on the training threads, in order of start."""
    trains = np.isin(trace.ops.thread, threads_of(trace))
    if trains.all():  # as a rule in a large trace, of which a copy is dear
        return outermost(trace.ops)
    rows = np.flatnonzero(trains)
    return rows[outermost(trace.ops.take(rows))]


def host_ranges(facts: Facts, tops: NDArray[Any]) -> Spans:
    """The outermost operators and the script's own ranges on the training threads, in order of start.

    `tops`: the rows that `top_ops` gives. Without what asks for a collective, markers of steps and waits for data:
    those are phases of their own.
    """
    trace = facts.trace
    ops, spans = trace.ops, trace.spans
    tops = tops[~is_call(trace, ops.name[tops])]
    own = spans.take(np.isin(spans.thread, threads_of(trace)) & ~np.isin(spans.kind, _NOT_WORK))
    mine = {name: getattr(ops, name)[tops] for name in ("start_ns", "end_ns", "name", "thread")}
    mine["kind"] = np.zeros(tops.size, np.int8)
    order = np.argsort(np.concatenate((mine["start_ns"], own.start_ns)), kind="stable")
    return Spans(**{name: np.concatenate((column, getattr(own, name)))[order] for name, column in mine.items()})


def longest_before(ranges: Spans, issued_ns: I64) -> LeadRanges:
    """The names that took longest before each collective (times of issue, rising), at most three of each."""
    row = np.searchsorted(issued_ns, ranges.start_ns, "right")
    inside = row < issued_ns.size
    row, name = row[inside], ranges.name[inside].astype(np.int64)
    length = np.minimum(ranges.end_ns[inside], issued_ns[row]) - ranges.start_ns[inside] if row.size else row
    return most_by_row(row, name, length)


def most_by_row(row: I64, name: I64, length: I64) -> LeadRanges:
    """The names with most time before each collective (`row`), three of each at most."""
    n_names = int(name.max(initial=NO_CODE)) + 1 - NO_CODE
    pairs, place = np.unique(row * n_names + (name - NO_CODE), return_inverse=True)
    total = np.zeros(pairs.size, np.int64)
    np.add.at(total, place.reshape(-1), length)
    row, name = np.divmod(pairs, n_names)
    order = np.lexsort((-total, row))
    order = order[total[order] >= _MIN_RANGE_NS]
    at = row[order]
    rank = np.arange(order.size) - np.searchsorted(at, at)
    order = order[rank < _MAX_LEADS]
    return LeadRanges(row=row[order], name=(name[order] + NO_CODE).astype(np.int32), total_ns=total[order])


def names_of_ranges(ranges: Spans) -> NameRows:
    """The host ranges by name."""
    return _by_name(ranges.name, np.zeros(len(ranges), np.int64), ranges.end_ns - ranges.start_ns)


def names_of_work(facts: Facts) -> NameRows:
    """The compute kernels of the busiest device by name and grid; on a CPU the innermost operators by name."""
    trace, main = facts.trace, facts.main_device
    if main is not None:
        rows = main.activity.rows[trace.gpu.kind[main.activity.rows] == Kind.COMPUTE]
        return _by_name(trace.gpu.name[rows], _shapes(trace, rows), trace.gpu.end_ns[rows] - trace.gpu.start_ns[rows])
    low, high = trace.window_ns
    ops = trace.ops
    nested = nesting(ops)
    rows = np.sort(nested.order[nested.is_leaf])
    rows = rows[(ops.start_ns[rows] >= low) & (ops.end_ns[rows] <= high)]
    rows = rows[np.isin(ops.thread[rows], threads_of(trace))]
    rows = rows[~is_call(trace, ops.name[rows])]
    return _by_name(ops.name[rows], np.zeros(rows.size, np.int64), ops.end_ns[rows] - ops.start_ns[rows])


def _shapes(trace: Trace, rows: NDArray[Any]) -> I64:
    """A number for each grid and block."""
    shape = _volume(trace.gpu.grid, rows)
    shape *= 4096
    shape += _volume(trace.gpu.block, rows)  # at most 1024 threads
    return shape


def _volume(sizes: I32, rows: NDArray[Any]) -> I64:
    """The products of the three sizes of some rows."""
    volume: I64 = sizes[rows, 0].astype(np.int64)
    for side in (1, 2):
        volume *= sizes[rows, side]
    return volume


def _by_name(name: I32, shape: I64, length: I64) -> NameRows:
    if name.size == 0:
        return NameRows.none(name=np.int32)
    order = np.lexsort((length, shape, name))
    name = name[order]  # one after the other: of a large trace each is 10 MB
    shape = shape[order]
    length = length[order]
    del order
    first = np.flatnonzero(np.append(True, (name[1:] != name[:-1]) | (shape[1:] != shape[:-1])))
    count = np.diff(np.append(first, name.size))
    total = np.add.reduceat(length, first)
    chosen = np.argsort(-total, kind="stable")[:MAX_NAMES]
    return NameRows(
        name=name[first][chosen].astype(np.int32),
        shape=shape[first][chosen],
        count=count[chosen],
        total_ns=total[chosen],
        median_ns=length[first + count // 2][chosen],
    )


def issuers(facts: Facts, rows: Collected, tops: NDArray[Any]) -> I32:
    """Per collective: the name of the outermost operator that asked for it, `NO_CODE` where a script asked."""
    trace = facts.trace
    out = np.full(rows.issued_ns.size, NO_CODE, np.int32)
    ops = trace.ops.take(tops)
    asked = np.flatnonzero(~is_call(trace, ops.name))
    of_thread = dict(rows_by_value(ops.thread[asked]))
    for thread, wanted in rows_by_value(rows.thread):
        mine = asked[of_thread[thread]] if thread in of_thread else asked[:0]
        around = Intervals(ops.start_ns[mine], ops.end_ns[mine])
        place = np.searchsorted(ops.start_ns[mine], rows.issued_ns[wanted], "right") - 1
        inside = around.contains(rows.issued_ns[wanted])
        out[wanted[inside]] = ops.name[mine[place[inside]]]
    return out


def quiet_before(trace: Trace, issued_ns: I64, tops: NDArray[Any]) -> LeadRanges:
    """The quiet host time before each collective (times of issue, rising), by what the host did next.

    The trace has nothing of it: no operator, no call, no range. A sleep looks so, a lock, a page fault.
    A range counts as recorded where no operator begins in it: of `forward` it is not known what it did between two.
    """
    start, end, name = _recorded(trace, tops)
    quiet = _closed(start, end).gaps(*trace.window_ns)
    rows = np.flatnonzero(quiet.lengths_ns >= MIN_QUIET_NS)
    begun, over = quiet.start_ns[rows], quiet.end_ns[rows]
    place = np.searchsorted(start, over)
    following = np.append(name, NO_CODE)[place].astype(np.int64)
    row = np.searchsorted(issued_ns, begun, "right")
    inside = row < issued_ns.size
    over = np.minimum(over[inside], issued_ns[row[inside]]) if inside.any() else over[inside]
    return most_by_row(row[inside], following[inside], over - begun[inside])


def _closed(start: I64, end: I64) -> Intervals:
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
    ranged = np.isin(spans.thread, threads) & (spans.kind != SpanKind.STEP)
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
