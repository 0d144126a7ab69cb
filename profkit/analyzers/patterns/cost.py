"""What ranges of the host cost: on a GPU through what they launch or hold up, on a CPU by their length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns.ranges import Ranges
from profkit.model.arrays import of_rows, rows_by_value
from profkit.model.intervals import Intervals
from profkit.model.trace import SpanKind, Spans, Trace
from profkit.timeline import DeviceFacts, Facts
from profkit.timeline.code import Rows
from profkit.timeline.host import enclosing_op
from profkit.timeline.idle import ending_rows

if TYPE_CHECKING:
    from profkit.timeline.code.code import Code


def cost(facts: Facts, ranges: Ranges, *, is_pause: bool) -> Intervals:
    """The time of the window that they take, as a set.

    On a CPU they themselves, without waits for input. On a GPU, of a pause the idle time of the device inside it; of
    work, the time of the operations launched inside it, and the idle time that these end.
    """
    low, high = facts.trace.window_ns
    covered = Intervals.of(ranges.start_ns, ranges.end_ns).clip(low, high)
    main = facts.main_device
    if main is None:
        return covered - facts.parts["idle_data"]
    idle = main.activity.any.gaps(low, high)
    return covered & idle if is_pause else _launched(facts.trace, main, ranges, idle)


def rows_of(facts: Facts, code: Code | None, ranges: Ranges, *, is_pause: bool) -> Rows:
    """The same time by where it is spent: in what the host does meanwhile, or what launches the operations."""
    trace, main = facts.trace, facts.main_device
    if main is not None and not is_pause:
        mine = _launched_rows(trace, main, ranges)
        return Rows.of_device(trace, mine, trace.gpu.end_ns[mine] - trace.gpu.start_ns[mine])
    taken = cost(facts, ranges, is_pause=is_pause)
    found = Rows.empty()
    for thread, mine in rows_by_value(ranges.thread):
        times = Intervals.of(ranges.start_ns[mine], ranges.end_ns[mine]) & taken
        found += Rows.of_host(code, [int(thread)], times) if code is not None else Rows.of_thread(int(thread), times)
    return found


def _launched(trace: Trace, main: DeviceFacts, ranges: Ranges, idle: Intervals) -> Intervals:
    gpu, mine = trace.gpu, _launched_rows(trace, main, ranges)
    busy = Intervals.of(gpu.start_ns[mine], gpu.end_ns[mine]).clip(*trace.window_ns)
    ended = np.isin(ending_rows(trace, main.activity, idle.end_ns), mine)
    return busy | Intervals.of(idle.start_ns[ended], idle.end_ns[ended])


def _launched_rows(trace: Trace, main: DeviceFacts, ranges: Ranges) -> NDArray[np.intp]:
    """The device rows that are launched inside the ranges."""
    gpu, calls = trace.gpu, trace.calls
    rows = main.activity.rows
    rows = of_rows(rows, np.flatnonzero(of_rows(gpu.launch_row, rows) >= 0))
    launch = of_rows(gpu.launch_row, rows)
    order = np.lexsort((-ranges.end_ns, ranges.start_ns))
    table = Spans(
        start_ns=ranges.start_ns[order],
        end_ns=ranges.end_ns[order],
        name=np.zeros(order.size, np.int32),
        kind=np.full(order.size, SpanKind.OTHER, np.int8),
        thread=ranges.thread[order],
    )
    return rows[enclosing_op(table, calls.thread[launch], calls.start_ns[launch]) >= 0]
