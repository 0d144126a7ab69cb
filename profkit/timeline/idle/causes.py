"""Why a device was idle: every idle nanosecond gets exactly one cause (docs/method.md, section 2).

For each idle interval [a, b) of the *device* let k be the operation that ends it, L..Le its launch call:

    [a, min(b, L))      the host had not issued k: cause by what the host was doing
    [max(a, L), Le)     inside the launch call: launch
    [max(a, Le), b)     issued, not started: launch up to the platform's latency, else dependency

Before L, in order of priority: *data*, waiting in the input pipeline; *sync*, blocked in a synchronising call, and for
as long again after it as the host had been held while the device still worked (that much further ahead it would have
been); *launch*, dispatching; *host*, everything else, but for what a thread that drives nothing waits for its input:
whether the step waits for that thread is *unknown*. So is, after *data*, what the profiler worked for itself; and
where many operations start before their launch, each idle interval that is not much longer than the clocks are apart.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.findings.capture import QUALITY
from profkit.model import arrays
from profkit.model.arrays import I64, of_rows, place_among
from profkit.model.budget import IDLE_PARTS
from profkit.model.intervals import Intervals
from profkit.model.trace import Trace
from profkit.redact.later import later
from profkit.timeline.activity import Activity
from profkit.timeline.host import HostStates
from profkit.timeline.idle.queue import Queue

_OWN: Final = later(r"buffer flush|instrumentation|^resource$|buffer request|^uvm activity init", re.IGNORECASE)
"""CUPTI's own work, as Kineto's `ActivityType` names it. Not "Command Buffer Full", which is a launch queue that is
full, and not the loading of modules and functions, which the job does without a profiler too."""


_NONE: Final = Intervals.empty()


class IdleCauses(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of a device's idle time inside the window."""

    data: Intervals = _NONE
    sync: Intervals = _NONE
    launch: Intervals = _NONE
    host: Intervals = _NONE
    turnaround: Intervals = _NONE
    """The part of `launch` between operations that were issued in time: too short to be a wait, on this platform."""
    dependency: Intervals = _NONE
    unknown: Intervals = _NONE

    @property
    def parts(self) -> dict[str, Intervals]:
        """The same by the parts of the budget."""
        return {part: getattr(self, part.removeprefix("idle_")) for part in IDLE_PARTS}


def profiler_work(trace: Trace) -> Intervals:
    """When the profiler was busy with its own buffers, inside the window; on which thread is not recorded."""
    return Intervals.of_rows(trace.overhead, trace.named(trace.overhead.name, _OWN)).clip(*trace.window_ns)


class _Gaps(msgspec.Struct, frozen=True):
    start_ns: I64
    end_ns: I64
    issued_ns: I64  # L, clipped to the gap
    returned_ns: I64  # Le, clipped to what follows L
    launched_ns: I64  # L as it was
    is_known: arrays.Bool


def idle_causes(trace: Trace, activity: Activity, host: HostStates, queue: Queue) -> IdleCauses:
    """The causes of all idle time of one device."""
    low, high = trace.window_ns
    gaps = _gaps(trace, activity, activity.any.gaps(low, high))
    if queue.n_early > QUALITY.limit("no_cause") * queue.n_linked:
        least_ns = QUALITY.limit("clock_error") * queue.early_ns
        gaps = replace(gaps, is_known=gaps.is_known & (gaps.end_ns - gaps.start_ns >= least_ns))
    unknown = Intervals.of(gaps.start_ns[~gaps.is_known], gaps.end_ns[~gaps.is_known])
    known = gaps.is_known
    calling = Intervals.of(gaps.issued_ns[known], gaps.returned_ns[known])
    pending = known & (gaps.end_ns > gaps.returned_ns)
    is_short = gaps.end_ns - gaps.start_ns <= queue.turnaround_ns
    is_latency = gaps.end_ns <= gaps.launched_ns + queue.latency_ns
    latency = Intervals.of(*_chosen(gaps.returned_ns, gaps.end_ns, pending & (is_short | is_latency)))
    dependency = Intervals.of(*_chosen(gaps.returned_ns, gaps.end_ns, pending & ~is_short & ~is_latency))
    is_queued = known & (gaps.launched_ns <= gaps.start_ns)
    profiler = profiler_work(trace)
    turnaround = Intervals.of(*_chosen(gaps.start_ns, gaps.end_ns, is_queued & is_short)) - profiler
    waiting = Intervals.of(gaps.start_ns[known], gaps.issued_ns[known])
    released = _released(gaps, host.blocked, activity.any)
    del gaps  # of a large trace 20 MB

    data = waiting & host.loader
    profiled = ((waiting - data) | calling) & profiler if profiler else profiler
    calling = calling - profiled
    rest = waiting - data - profiled
    del waiting
    sync = rest & (host.blocked | released)
    rest = rest - sync
    dispatch = rest & host.dispatching
    rest = rest - dispatch
    unclear = rest & host.input.elsewhere
    rest = rest - unclear
    unknown = unknown | profiled | unclear
    return IdleCauses(
        data=data,
        sync=sync,
        launch=dispatch | calling | latency,
        turnaround=turnaround,
        host=rest if host.is_known else _NONE,
        dependency=dependency,
        unknown=unknown if host.is_known else unknown | rest,
    )


def _chosen(start: I64, end: I64, rows: arrays.Bool) -> arrays.IntervalArrays:
    return start[rows], end[rows]


def _gaps(trace: Trace, activity: Activity, idle: Intervals) -> _Gaps:
    """Join each idle interval with the launch of the operation that ends it.

    An interval at the end of the window has no such operation: the host had issued nothing, all of it is the host's.
    """
    gpu, calls = trace.gpu, trace.calls
    start, end = idle.start_ns, idle.end_ns
    row = ending_rows(trace, activity, end)
    exists = row >= 0
    launch = np.where(exists, gpu.launch_row[row], -1) if exists.any() else np.full(start.size, -1)
    linked = launch >= 0
    launched = np.where(linked, calls.start_ns[launch], end) if len(calls) else end.copy()
    returned = np.where(linked, calls.end_ns[launch], end) if len(calls) else end.copy()
    issued = np.clip(launched, start, end)
    return _Gaps(
        start_ns=start,
        end_ns=end,
        issued_ns=issued,
        returned_ns=np.clip(returned, issued, end),
        launched_ns=launched,
        is_known=linked | ~exists,
    )


def ending_rows(trace: Trace, activity: Activity, end_ns: I64) -> NDArray[np.intp]:
    """The row of a device's operation that ends its idle time at each of these times, -1 for none."""
    gpu = trace.gpu
    rows = np.flatnonzero(gpu.device == gpu.device[activity.rows[0]]) if activity.rows.size else activity.rows
    if rows.size == 0:
        return np.full(end_ns.size, -1, np.intp)
    place = place_among(of_rows(gpu.start_ns, rows), end_ns)
    exists = place < rows.size
    return np.where(exists, place if rows.size == len(gpu) else rows[np.minimum(place, rows.size - 1)], -1)


def _released(gaps: _Gaps, blocked: Intervals, busy: Intervals) -> Intervals:
    """The idle time after a blocking call that the host would have spent ahead of the device without the call.

    A call that held the host for W while the device worked, and released it into a drained device, cost at most W of
    what follows: `min(W, gap)`. A call on a device that was drained anyway costs nothing here.
    """
    if not blocked:
        return Intervals.empty()
    row = place_among(blocked.start_ns, gaps.start_ns, after=True) - 1
    inside = (row >= 0) & (blocked.end_ns[np.maximum(row, 0)] >= gaps.start_ns)
    row = row[inside]
    released = blocked.end_ns[row]
    held = busy.covered_ns(blocked.start_ns[row], released)
    return Intervals.of(released, np.minimum(released + held, gaps.issued_ns[inside]))
