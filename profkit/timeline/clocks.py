"""Device times on the host's clock, where the recording put the two apart by a constant.

A profiler converts device times; where that fails for a process (nsys 2021.4 with several GPUs), all its device rows
lie early or late by the same time. Early, kernels run before they are launched. Late, each waits by the same least time
behind its launch, and calls that wait for the device return while it is at work.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.model.arrays import I64, distinct_codes, median
from profkit.model.trace import CallKind, Trace
from profkit.timeline.pace import Paced
from profkit.units import format_ns

_LEAST_NS: Final = 1_000_000
"""A difference that is corrected. Chosen: queues and drift of clocks make tens of microseconds."""
_PARTS: Final = 8
"""Parts of the recording, each with as many rows; in most of them the least lag must be the same. Chosen."""
_MOSTLY: Final = 0.75
"""Of these parts. Chosen: six of eight; a queue may hold up a part or two."""
_EVEN: Final = 0.01
"""Of the difference, by which these least lags may vary. Chosen: seen are 1e-5 where clocks part, and queues vary by
steps."""
_AT_WORK: Final = 0.5
"""Of the difference: for so long the device is at work behind the calls that wait for it. Chosen, the larger part."""


def on_one_clock(trace: Trace) -> Paced:
    """The trace with its device rows shifted to where their launches allow them; as it is where clocks agree."""
    gpu, calls = trace.gpu, trace.calls
    linked = np.flatnonzero(gpu.launch_row >= 0)
    if len(trace.device_indices) != 1 or linked.size < _PARTS:
        return Paced(trace)
    lag = gpu.start_ns[linked] - calls.start_ns[gpu.launch_row[linked]]
    least = np.array([part.min() for part in np.array_split(lag, _PARTS)], np.int64)
    off = int(lag.min())
    is_even = np.abs(least - off) <= _EVEN * abs(off)
    if (
        abs(off) < _LEAST_NS
        or is_even.mean() < _MOSTLY
        or (off > 0 and _behind_waits_ns(trace, linked) < _AT_WORK * off)
    ):
        return Paced(trace)
    low, high = trace.window_ns
    shifted = replace(
        trace,
        gpu=replace(gpu, start_ns=gpu.start_ns - off, end_ns=gpu.end_ns - off),
        window_ns=(low, high) if trace.is_marked else (low - off, high - off),
        steps=trace.steps
        if trace.is_marked
        else tuple(replace(step, start_ns=step.start_ns - off, end_ns=step.end_ns - off) for step in trace.steps),
    )
    side = "late" if off > 0 else "early"
    note = (
        f"the recording has all device times {format_ns(abs(off))} {side}, the same throughout: they are shifted,"
        " so that no kernel runs before its launch"
    )
    return Paced(shifted, note)


def _behind_waits_ns(trace: Trace, linked: I64) -> int:
    """For how long, by the median, the last operation that a thread launched goes on behind its next wait for it."""
    calls = trace.calls
    ends = np.full(len(calls), -1, np.int64)
    np.maximum.at(ends, trace.gpu.launch_row[linked], trace.gpu.end_ns[linked])
    behind = []
    for thread in distinct_codes(calls.thread[trace.gpu.launch_row[linked]]).tolist():
        rows = np.flatnonzero((calls.thread == thread) & ((ends >= 0) | (calls.kind == CallKind.SYNC)))
        after = np.flatnonzero((calls.kind[rows] == CallKind.SYNC) & (ends[rows] < 0))
        after = after[after > 0]
        after = after[ends[rows[after - 1]] >= 0]
        behind.append(ends[rows[after - 1]] - calls.end_ns[rows[after]])
    found = np.concatenate(behind) if behind else np.empty(0, np.int64)
    return median(found) if found.size else 0
