"""Where the steps are, and which window is analysed.

With `ProfilerStep#` markers they are the steps and their extent is the window; so it is with the user's own ranges
where these recur (`ranged_steps`). Without, the window is the extent of device activity, and steps are looked for: by
optimizer ranges, then by the period of the launch sequence with an anchor that occurs once in each (without an anchor a
period may be a layer, not a step, but for one that is long and exact).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.errors import UnsupportedTraceError
from profkit.ingest.assemble.ranged_steps import ranged_steps
from profkit.ingest.numbers import MOST_STEPS, whole
from profkit.model.arrays import I64, Bool, distinct, is_one_of, median
from profkit.model.table import Table
from profkit.model.trace import (
    RANGED_STEPS,
    CallKind,
    CpuOps,
    GpuWork,
    Kind,
    RuntimeCalls,
    SpanKind,
    Spans,
    Step,
    TraceWarning,
)
from profkit.redact.later import later
from profkit.timeline.period import MIN_MATCH, MIN_PERIODS, MOST_ROWS, best_period
from profkit.units import format_ns

_NUMBER: Final = later(r"\d+")
_LONG_PERIOD: Final = 200
"""Kernels of a period that is a step without an anchor. Chosen: a layer of the public captures has 150 at most, of the
forward and the backward pass together."""
_MOST_ROUNDED_NS: Final = 1_000
"""Chosen: neighbours whose clocks were rounded or read twice overlap by less (83 ns were seen)."""
_SHORT: Final = 0.1
"""Chosen: a marker with that share of the usual length, or more, may be a step."""


def find_window(  # noqa: PLR0913 - the tables, by name
    *, gpu: GpuWork, spans: Spans, ops: CpuOps, calls: RuntimeCalls, python: Spans, steps: Sequence[Step], source: str
) -> tuple[int, int]:
    """`(start_ns, end_ns)` under analysis: that of the steps given, of markers, of device activity, else the host's."""
    if steps:
        return steps[0].start_ns, steps[-1].end_ns
    markers = spans.kind == SpanKind.STEP
    if markers.any():
        return int(spans.start_ns[markers].min()), int(spans.end_ns[markers].max())
    tables: tuple[Table, ...]
    for tables in ((gpu,), (ops, spans, calls), (python,)):
        present = [table for table in tables if len(table)]
        if present:
            columns = [table.columns() for table in present]
            low = min(int(column["start_ns"].min()) for column in columns)
            return low, max(int(column["end_ns"].max()) for column in columns)
    raise UnsupportedTraceError(
        f"{source} has neither host nor device ranges of torch.profiler",
        hint="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA] and export_chrome_trace;"
        " traces of other frameworks are not read",
    )


def find_steps(
    *, gpu: GpuWork, spans: Spans, calls: RuntimeCalls, strings: tuple[str, ...], markers: str = "ProfilerStep"
) -> tuple[tuple[Step, ...], str]:
    """The steps, in order, and where they come from: `markers`, "ranges", "period" or "span" (none found)."""
    steps = _marked_steps(spans, strings)
    if steps:
        return steps, markers
    steps = _steps_between(ranged_steps(spans, calls, strings))
    if steps:
        return steps, RANGED_STEPS
    steps = _optimizer_steps(gpu, spans) or _periodic_steps(gpu, spans, strings)
    return (steps, "period") if steps else ((), "span")


def without_empty_steps(
    spans: Spans, *, gpu: GpuWork, calls: RuntimeCalls, ops: CpuOps, warnings: list[TraceWarning]
) -> Spans:
    """The ranges with markers at either end in which nothing was launched (on a CPU: nothing ran) as plain ranges.

    A profiler opens a marker after the last step, too, and closes it when it stops. One as long as the others stays
    where the device runs in it what was launched before.
    """
    rows = _markers(spans)
    start, end = spans.start_ns[rows], spans.end_ns[rows]
    is_long = end - start >= _SHORT * median(end - start) if rows.size else np.zeros(0, np.bool_)
    busy = _has_any(_asked_ns(spans, gpu, calls, ops), start, end) | (is_long & _has_any(gpu.start_ns, start, end))
    if busy.all() or not busy.any():
        return spans
    first, last = int(busy.argmax()), busy.size - 1 - int(busy[::-1].argmax())
    kind = spans.kind.copy()
    for some, place in ((rows[:first], "first"), (rows[last + 1 :], "last")):
        kind[some] = SpanKind.OTHER
        if some.size:
            length = format_ns(int((spans.end_ns[some] - spans.start_ns[some]).sum()))
            which = f"the {place} marked step is" if some.size == 1 else f"the {place} {some.size:,} marked steps are"
            said = f"{which} left out: nothing was launched in {'it' if some.size == 1 else 'them'} ({length})"
            warnings.append(TraceWarning(id="steps.empty", message=said, count=int(some.size)))
    return replace(spans, kind=kind)


def _asked_ns(spans: Spans, gpu: GpuWork, calls: RuntimeCalls, ops: CpuOps) -> I64:
    """When the host asked a device for work, in order; without a device, when something ran on the host."""
    if len(gpu) == 0:
        ran = is_one_of(spans.kind, (SpanKind.COMPILED, SpanKind.COMM, SpanKind.OPTIMIZER))
        return np.sort(np.concatenate((ops.start_ns, spans.start_ns[ran])), kind="stable")
    asked: I64 = calls.start_ns[is_one_of(calls.kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH, CallKind.COPY))]
    return asked


def _has_any(times_ns: I64, start_ns: I64, end_ns: I64) -> Bool:
    some: Bool = np.searchsorted(times_ns, end_ns) > np.searchsorted(times_ns, start_ns)
    return some


def _markers(spans: Spans) -> NDArray[np.intp]:
    """The rows of step markers that last, of the thread that has most."""
    rows = np.flatnonzero(spans.kind == SpanKind.STEP)
    if rows.size == 0:
        return rows
    threads, counts = np.unique(spans.thread[rows], return_counts=True)
    of_thread = rows[spans.thread[rows] == threads[np.argmax(counts)]]
    lasting: NDArray[np.intp] = of_thread[spans.end_ns[of_thread] > spans.start_ns[of_thread]]
    return lasting


def _marked_steps(spans: Spans, strings: tuple[str, ...]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for row in _markers(spans):
        start, end = int(spans.start_ns[row]), int(spans.end_ns[row])
        if steps and start < steps[-1].end_ns:
            before = steps[-1]
            over = before.end_ns - start
            if over > _MOST_ROUNDED_NS or 2 * over > min(end - start, before.duration_ns):
                continue  # a marker inside another: the outer one is the step
            steps[-1] = replace(before, end_ns=start)
        digits = _NUMBER.search(strings[spans.name[row]])
        number = whole(digits[0], 0, MOST_STEPS) if digits else None
        steps.append(
            Step(index=len(steps), number=len(steps) if number is None else number, start_ns=start, end_ns=end)
        )
    return tuple(steps)


def _steps_between(edges: I64) -> tuple[Step, ...]:
    lasting = (
        (int(start), int(end)) for start, end in pairwise(edges) if end > start
    )  # as marked steps: no empty ones
    return tuple(
        Step(index=index, number=index, start_ns=start, end_ns=end) for index, (start, end) in enumerate(lasting)
    )


def _optimizer_steps(gpu: GpuWork, spans: Spans) -> tuple[Step, ...]:
    """From the end of one optimizer range to the end of the next, where one optimizer alone steps and steps evenly."""
    rows = np.flatnonzero(spans.kind == SpanKind.OPTIMIZER)
    if rows.size < MIN_PERIODS or distinct(spans.name[rows]).size != 1:
        return ()
    edges = spans.end_ns[rows]
    lengths = np.diff(edges)
    if lengths.min() * 10 < lengths.max():  # several parameter groups, or several optimizers of one class, per step
        return ()
    return _steps_between(edges)


def _periodic_steps(gpu: GpuWork, spans: Spans, strings: tuple[str, ...]) -> tuple[Step, ...]:
    """From the repeating sequence of kernels, where an optimizer kernel or a copy to the device is in each period.

    Without one of these, only where the sequence is long and exact.
    """
    rows = np.flatnonzero(gpu.kind != Kind.COMM)[:MOST_ROWS]
    if rows.size < 2 * MIN_PERIODS:
        return ()
    codes = gpu.name[rows]
    period = best_period(codes)
    if period == 0:
        return ()
    is_layer = _counts_modules(spans, strings, n_periods=codes.size // period)
    has_optimizer = any(_ANCHORS[0].search(strings[code]) for code in distinct(codes))  # then a step holds it
    anchor = _anchor_offset(codes, period, strings, _ANCHORS[:1] if is_layer or has_optimizer else _ANCHORS)
    if anchor < 0 and not is_layer and not has_optimizer and period >= _LONG_PERIOD:
        anchor = _first_exact(codes, period)
    if anchor < 0:
        return ()
    return _steps_between(gpu.start_ns[rows[anchor::period]])


def _first_exact(codes: NDArray[np.int32], period: int) -> int:
    """Where a sequence begins that repeats exactly, three times or more and for most of all rows; -1 for none."""
    same = codes[period:] == codes[:-period]
    breaks = np.concatenate(([-1], np.flatnonzero(~same), [same.size]))
    longest = int(np.diff(breaks).argmax())
    first, n = int(breaks[longest]) + 1, int(breaks[longest + 1] - breaks[longest] - 1) + period
    return first if n >= MIN_PERIODS * period and 2 * n >= codes.size else -1


def _counts_modules(spans: Spans, strings: tuple[str, ...], *, n_periods: int) -> bool:
    """Whether ranges count on with the periods instead of recurring in each: `FSDP::pre_forward (blocks.7)`.

    Then a period is a layer, whatever copies it makes: a step goes through all the layers.
    """
    counts: dict[str, list[int]] = {}
    codes, n_ranges = np.unique(spans.name, return_counts=True)
    for code, n in zip(codes, n_ranges, strict=True):
        counts.setdefault(_NUMBER.sub("#", strings[code]), []).append(int(n))
    return any(
        len(each) >= MIN_PERIODS and 2 * sum(each) >= n_periods and 2 * sorted(each)[len(each) // 2] < n_periods
        for each in counts.values()
    )


_ANCHORS: Final = (
    later(r"multi_tensor|adam|sgd|lamb(?!da)|adagrad|FusedOptimizer", re.IGNORECASE),
    later(r"^Memcpy HtoD"),
)


def _anchor_offset(
    codes: NDArray[np.int32], period: int, strings: tuple[str, ...], anchors: Sequence[re.Pattern[str]]
) -> int:
    """The first place in a period that holds an anchor in nearly every period; -1 for none.

    A copy that only some layers make (132 of them, 6 with a copy) marks no step.
    """
    n = codes.size // period
    whole = codes[: n * period].reshape(n, period)
    for pattern in anchors:
        named = [code for code in distinct(codes).tolist() if pattern.search(strings[code])]
        often = is_one_of(whole.reshape(-1), named).reshape(n, period).mean(axis=0)
        if named and often.max() >= MIN_MATCH:
            return int((often >= MIN_MATCH).argmax())
    return -1
