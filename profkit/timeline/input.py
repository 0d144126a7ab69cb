"""When the host waits for the input of a step: by the ranges of loaders, else by its place before a batch's copy.

A recording without operators has no ranges of the DataLoader unless the user made them. There the input is waited for
where a launching thread calls nothing for long and then copies a batch to the device, again and again. With
operators and without such ranges, a step that makes its batch is known by operators on the CPU before its first call,
the copy.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct, distinct_codes, is_member, is_one_of, place_among
from profkit.model.intervals import Intervals
from profkit.model.names import COPIES_FROM_DEVICE, COPIES_TO_DEVICE
from profkit.model.trace import CallKind, Kind, SpanKind, Spans, Trace
from profkit.redact.later import later
from profkit.timeline.elsewhere import is_of_torch

LEAST_NS: Final = 1_000_000
"""A stretch without a call that is a wait for input. Chosen: Python between two steps takes less."""
_BATCH_BYTES: Final = 4096
"""A copy that may be a batch. Chosen: 512 token ids; what people copy inside a step, scalars and masks, is smaller."""
_OPERATOR_NS: Final = 100_000
"""An operator that works on the CPU. Chosen: as host.cpu_operators, dispatching one takes up to 50 us."""
_ASKING: Final = (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH, CallKind.COPY)
_LEAST: Final = 3
"""Fewer do not recur. Chosen."""
_MOSTLY: Final = 0.5
_KEEPS_UP: Final = 0.01
"""Of the window: who waits less for workers is given batches as early as they are asked for. Chosen."""
BY_WORKERS: Final = later("MultiProcessing")
"""In the name that torch gives to a wait for a batch, where worker processes make it."""
_HANDOVER_NS: Final = 5_000_000
"""Of a loader with workers, a wait beyond which the batch was not ready. Chosen: taking over one that is ready takes
0.1 to 3 ms."""


class InputTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Host time in the input pipeline, inside the window."""

    waits: Intervals
    """On threads that launch or mark the steps."""
    elsewhere: Intervals
    """On other threads, where those wait in none: whether the step waits for them is not known."""
    awaited: Intervals
    """The part of `waits` that ends when another process or thread has a batch ready, whenever the host came to it."""
    is_marked: bool
    """Whether ranges, or the operators of `makers`, show them; else their place before the copy of a batch does."""
    threads: tuple[int, ...] = ()
    """Where no ranges do: those of `makers`, or the thread that copies after most of these waits."""
    makers: tuple[int, ...] = ()
    """Where operators on the CPU make the batches: their rows, which are these waits."""


def input_times(trace: Trace, threads: tuple[int, ...], *, has_ops: bool) -> InputTimes:
    """What these launching threads, of a host with or without operators, spend in the input pipeline."""
    spans, (low, high) = trace.spans, trace.window_ns
    mine, other = loader_ranges(spans, threads)
    waits, elsewhere = (Intervals.of_rows(spans, rows).clip(low, high) for rows in (mine, other))
    if has_ops and not (waits or elsewhere):
        makers = _makers(trace, threads)
        waits = Intervals.of_rows(trace.ops, makers).clip(low, high)
        return InputTimes(
            waits=waits,
            elsewhere=elsewhere,
            awaited=Intervals.empty(),
            is_marked=True,
            threads=tuple(distinct_codes(trace.ops.thread[makers]).tolist()),
            makers=tuple(makers.tolist()),
        )
    if waits or elsewhere or has_ops or not (trace.meta.traits.has_host_calls and is_of_torch(trace)):
        by_workers = mine & trace.named(spans.name, BY_WORKERS)
        late = Intervals.of_rows(spans, by_workers & (spans.end_ns - spans.start_ns >= _HANDOVER_NS)).clip(low, high)
        return InputTimes(waits=waits, elsewhere=elsewhere, awaited=_held_up(late, low, high), is_marked=True)
    found = _before_batches(trace, threads)
    start, end, thread = found.start_ns, found.end_ns, found.thread
    is_asleep = np.zeros(start.size, np.bool_)
    for one in distinct_codes(thread).tolist():
        held = Intervals.of_rows(trace.waits, trace.waits.thread == one)
        is_asleep |= (thread == one) & (held.covered_ns(start, end) >= _MOSTLY * (end - start))
    return InputTimes(
        waits=Intervals.of(start, end).clip(low, high),
        elsewhere=Intervals.empty(),
        awaited=_held_up(Intervals.of(start[is_asleep], end[is_asleep]).clip(low, high), low, high),
        is_marked=False,
        threads=(int(np.bincount(thread).argmax()),) if thread.size else (),
    )


def loader_ranges(spans: Spans, threads: tuple[int, ...]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which ranges are waits for input, of these threads or those that mark steps, or else of others.

    A thread that fetches ahead waits in the loader all the time while nobody waits for it. Without any thread known
    to drive the device all ranges are the step's own.
    """
    is_loader = spans.kind == SpanKind.LOADER
    driving = {*threads, *distinct_codes(spans.thread[spans.kind == SpanKind.STEP]).tolist()}
    mine = is_loader & is_one_of(spans.thread, tuple(driving)) if driving else is_loader
    return mine, np.zeros(len(spans), np.bool_) if mine.any() else is_loader


def _held_up(late: Intervals, low: int, high: int) -> Intervals:
    return late if late.total_ns >= _KEEPS_UP * (high - low) else Intervals.empty()


class _Stretches(msgspec.Struct, frozen=True):
    """Stretches without a call, and the thread that ends each, shape (n,) each."""

    start_ns: I64
    end_ns: I64
    thread: NDArray[np.int32]


def _before_batches(trace: Trace, threads: tuple[int, ...]) -> _Stretches:
    """The long stretches in which the launching threads call nothing, and then copy a batch; none if they are few.

    Not behind a copy from the device: there the host works on what it copied, an optimizer that was moved to the CPU.
    """
    gpu, calls = trace.gpu, trace.calls
    rows = np.flatnonzero(is_one_of(calls.thread, threads))
    if rows.size == 0:
        return _Stretches(*(np.empty(0, np.int64),) * 2, np.empty(0, np.int32))
    to, back = (distinct(gpu.launch_row[_copies(trace, one)]) for one in (COPIES_TO_DEVICE, COPIES_FROM_DEVICE))
    start, end = np.maximum.accumulate(calls.end_ns[rows])[:-1], calls.start_ns[rows[1:]]
    low, high = trace.window_ns
    after = np.flatnonzero((end - start >= LEAST_NS) & (end > low) & (start < high)) + 1
    asks = rows[is_one_of(calls.kind[rows], _ASKING)]
    copied = np.append(calls.start_ns[to], np.iinfo(np.int64).max)
    begins = end[after - 1]
    is_batch = copied[place_among(copied, begins)] - begins < LEAST_NS
    is_back = is_member(np.append(asks, -1)[place_among(asks, rows[after]) - 1], back)
    kept = after[is_batch & ~is_back]
    kept = kept if kept.size >= _LEAST else kept[:0]
    return _Stretches(start[kept - 1], end[kept - 1], calls.thread[rows[kept]])


def _makers(trace: Trace, threads: tuple[int, ...]) -> NDArray[np.intp]:
    """The operators on the CPU that make the batch of most marked steps: long ones before its copy, their first call.

    Not behind a copy from the device, as above.
    """
    gpu, calls, ops = trace.gpu, trace.calls, trace.ops
    marks = trace.spans.take(np.flatnonzero(trace.spans.kind == SpanKind.STEP))
    low, high = trace.window_ns
    marks = marks.take(
        np.flatnonzero((marks.end_ns > low) & (marks.start_ns < high) & is_one_of(marks.thread, threads))
    )
    to, back = (distinct(gpu.launch_row[_copies(trace, one)]) for one in (COPIES_TO_DEVICE, COPIES_FROM_DEVICE))
    is_long = ops.end_ns - ops.start_ns >= _OPERATOR_NS
    found, n_steps = [], 0
    for thread in distinct_codes(marks.thread).tolist():
        asks = np.flatnonzero((calls.thread == thread) & is_one_of(calls.kind, _ASKING))
        begin, end = (getattr(marks, side)[marks.thread == thread] for side in ("start_ns", "end_ns"))
        place = place_among(calls.start_ns[asks], begin)
        first, before = np.append(asks, -1)[place], np.append(asks, -1)[place - 1]
        is_batch = is_member(first, to) & (calls.start_ns[first] < end) & ~is_member(before, back)
        begin, copied = begin[is_batch], calls.start_ns[first[is_batch]]
        rows = np.flatnonzero(is_long & (ops.thread == thread))
        at = place_among(begin, ops.start_ns[rows], after=True) - 1
        inside = (at >= 0) & (ops.end_ns[rows] <= np.append(copied, low)[at])
        made_ns = Intervals.of_rows(ops, rows[inside]).covered_ns(begin, copied)
        is_made = np.append(made_ns >= LEAST_NS, False)  # for -1
        found.append(rows[inside & is_made[at]])
        n_steps += int(is_made.sum())
    recurs = n_steps > 1 and n_steps >= _MOSTLY * len(marks)
    return np.concatenate(found) if recurs else np.empty(0, np.intp)


def _copies(trace: Trace, direction: re.Pattern[str]) -> NDArray[np.intp]:
    """The rows of copies in one direction that are large enough for a batch, and whose calls are known."""
    gpu = trace.gpu
    copies = np.flatnonzero((gpu.kind == Kind.COPY) & (gpu.launch_row >= 0) & (gpu.n_bytes >= _BATCH_BYTES))
    return copies[trace.named(gpu.name[copies], direction)]
