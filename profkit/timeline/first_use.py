"""What a program does once, at first use: CUDA loads modules, the allocator takes memory, torch.compile compiles.

A recording without warm-up is full of it, and none of it is the job. Each of these is a fact that the trace holds.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.findings.capture import FEW_STEPS, QUALITY
from profkit.model.arrays import median, order_of
from profkit.model.intervals import Intervals
from profkit.model.trace import CallKind, Kind, SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline.steps import edges, steps_in_window

_LOADING: Final = later(r"^(?:cu|hip)(?:Module|Library)(?:Load|Unload)|^cuda(?:Module|Library)Load|^nvrtc")
_LOADED: Final = later(r"module loading|function loading|driver compiler", re.IGNORECASE)
"""Of the rows in which CUPTI says what else the driver did."""
_EVENT: Final = later(r"^(?:cu|cuda|hip)EventSynchronize")
_REGION: Final = later(r"^Torch-Compiled Region: \d+/(\d+)")
_FIRST_LAUNCH_NS: Final = 1_000_000
"""What the first launch of a kernel takes, or more, where its module is loaded. Chosen: a launch takes some 5 us, loads
of the public captures take 1 to 700 ms."""
_TIMES_USUAL: Final = 50
"""And times the median launch: where every launch takes long, the first one tells nothing. Chosen."""
_RECURS: Final = 0.5
"""Chosen: what a second step has of the longest one, and more, is no first use."""


class FirstUse(msgspec.Struct, frozen=True, kw_only=True):
    """When the host did what is done once; the sets may overlap each other."""

    loading: Intervals
    allocating: Intervals
    trying: Intervals
    """Waits for events inside operators: convolutions that time their algorithms."""
    compiling: Intervals

    @property
    def kinds(self) -> tuple[tuple[str, Intervals], ...]:
        """What it does, in the words of a sentence, and when."""
        return (
            ("torch.compile compiles", self.compiling),
            ("CUDA loads modules", self.loading),
            ("convolutions try their algorithms", self.trying),
            ("the allocator calls the driver", self.allocating),
        )

    @property
    def any(self) -> Intervals:
        """All of it."""
        return self.loading | self.allocating | self.trying | self.compiling


def first_use(trace: Trace, op_of_call: NDArray[np.int32]) -> FirstUse | None:
    """What the window holds of first use, by the innermost operator of each call.

    None where three steps, or a second step of the trace with as much of it, show what recurs. Trials of algorithms
    wait for events inside operators; a wait outside them is the script's own.
    """
    if len(steps_in_window(trace)) >= QUALITY.limit(FEW_STEPS.id):
        return None
    calls, overhead = trace.calls, trace.overhead
    is_event = trace.named(calls.name, _EVENT)
    trials = is_event & (op_of_call >= 0) if op_of_call.size and len(trace.ops) else is_event
    loads = trace.named(calls.name, _LOADING)
    found = FirstUse(
        loading=Intervals.of_rows(calls, loads | _first_launches(trace))
        | Intervals.of_rows(overhead, trace.named(overhead.name, _LOADED)),
        allocating=Intervals.of_rows(calls, calls.kind == CallKind.ALLOC),
        trying=Intervals.of_rows(calls, trials),
        compiling=first_compilations(trace),
    )
    if len(trace.steps) > 1:
        *_, second, most = np.sort(found.any.covered_ns(*edges(trace.steps))).tolist()
        if most and second >= _RECURS * most:
            return None
    return found


def _first_launches(trace: Trace) -> NDArray[np.bool_]:
    """The first launch of each kernel, where it takes as long as a load of its module does."""
    gpu, calls = trace.gpu, trace.calls
    rows = np.flatnonzero((gpu.kind == Kind.COMPUTE) & (gpu.launch_row >= 0))
    found = np.zeros(len(calls), np.bool_)
    if rows.size == 0:
        return found
    launch = gpu.launch_row[rows]
    by_time = order_of(calls.start_ns[launch])
    _, first = np.unique(gpu.name[rows[by_time]], return_index=True)
    once = launch[by_time[first]]
    took = calls.end_ns - calls.start_ns
    least = max(_FIRST_LAUNCH_NS, _TIMES_USUAL * median(took[launch]))
    found[once[took[once] >= least]] = True
    return found


def first_compilations(trace: Trace) -> Intervals:
    """The compilations of functions that were not compiled before: what runs next on their thread has number 0."""
    spans = trace.spans
    return Intervals.of_rows(spans, spans.kind == SpanKind.COMPILING) - recompilations(trace)


def recompilations(trace: Trace) -> Intervals:
    """The compilations whose region, the next one on their thread, is not the function's first: `Region: 3/1`."""
    spans = trace.spans
    rows = np.flatnonzero(spans.kind == SpanKind.COMPILING)
    again = [code for code, name in enumerate(trace.strings) if (found := _REGION.match(name)) and found[1] != "0"]
    regions = np.flatnonzero(trace.named(spans.name, _REGION))
    if rows.size == 0 or not again:
        return Intervals.empty()
    kept = []
    for row in rows.tolist():
        mine = regions[(spans.thread[regions] == spans.thread[row]) & (spans.start_ns[regions] >= spans.end_ns[row])]
        kept.append(bool(mine.size) and int(spans.name[mine[0]]) in again)
    return Intervals.of_rows(spans, rows[np.array(kept, np.bool_)])
