"""Where the steps are, and which window is analysed.

With `ProfilerStep#` markers they are the steps and their extent is the window; so it is with the user's own ranges
where these recur. Without, the window is the extent of device activity, and steps are looked for: by
optimizer ranges, then by the period of the launch sequence with an anchor that occurs once in each (without an anchor a
period may be a layer, not a step, but for one that is long and exact).

The user's own ranges are steps where they recur at the outermost level of the launching thread and hold its launches.
People name a pass as they like: "Forward", "batch 12", "train_step", a range for each phase. What tells a step from a
layer is that its ranges hold nearly all launches, lie in no other range that recurs, and do not come back under one
number. Ranges that all lie in one other range that launches beside them are its parts: layers of a single pass.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.errors import UnsupportedTraceError
from profkit.ingest.numbers import MOST_STEPS, whole
from profkit.model.arrays import I64, Bool, distinct, is_one_of, median, place_among
from profkit.model.intervals import Intervals
from profkit.model.names import is_starting
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
_MOST_NAMES: Final = 64
"""Chosen: a job with more names that recur at its outermost level has no phases."""
_LONGEST: Final = 2
"""Times the usual step that the last one, of which no next one shows the end, may take. Chosen."""
_HELD: Final = 0.8
"""Share of the launches between the first range and the last that lie in ranges. Chosen: ranges of layers leave out
more (embeddings, losses, optimizers)."""
_ALIKE: Final = 0.5
"""Share of the steps that have nearly the usual number of launches, and of the usual number of ranges that a phase of
each step has. Chosen."""
_NEAR: Final = 0.2
"""Of the usual number of launches, by which a step may differ. Chosen: a step now and then logs or clips."""
_BESIDE: Final = 0.05
"""Share of the launches of the range around all of them that is beside them, from which they are its parts. Chosen: a
loop launches next to nothing between its steps; of the single passes seen so far the layers leave out 13 %."""
_OF_ONE_LOOP: Final = 0.5
"""Share of the launches in recurring ranges that the ranges of the steps must hold. Chosen: else another loop is most
of the job."""


_OF_THE_MODEL: Final = later(
    r"^(?:FSDP|FullyShardedDataParallel|DistributedDataParallel|nccl|## |Torch-Compiled)"
    r"|layer|block|module|stage|encoder|expert",
    re.IGNORECASE,
)
"""Ranges that count parts of a model, or that a library wrote: no steps, however often they come."""


class _Found(msgspec.Struct, frozen=True):
    start_ns: I64
    end_ns: I64
    phase: NDArray[np.intp]


def ranged_steps(spans: Spans, calls: RuntimeCalls, strings: tuple[str, ...]) -> I64:
    """The edges of steps, int64 ns, in order: n + 1 for n steps; empty where ranges show none."""
    none = np.empty(0, np.int64)
    issues = np.flatnonzero(is_one_of(calls.kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH)))
    if issues.size == 0 or len(spans) == 0:
        return none
    thread = int(np.bincount(calls.thread[issues]).argmax())
    found = _outermost(spans, strings, thread)
    found = None if found is None else _in_turn(found, calls.start_ns[issues])
    if found is None or _are_parts(found, spans, thread, calls.start_ns[issues]):
        return none
    first = int(found.phase[0])
    begins = found.start_ns[found.phase == first]
    if begins.size < MIN_PERIODS:
        return none
    until = begins[-1] + _LONGEST * median(np.diff(begins))
    edges = np.append(begins, found.end_ns[found.start_ns < until].max())
    asked = calls.start_ns[issues]
    asked = asked[(asked >= edges[0]) & (asked < edges[-1])]
    if asked.size == 0 or _inside(found, asked).mean() < _HELD:
        return none
    counts = np.diff(place_among(asked, edges))
    usual = median(counts)
    is_even = np.abs(counts - usual) <= _NEAR * usual
    return edges if usual and is_even.mean() >= _ALIKE and (counts > 0).all() else none


def _outermost(spans: Spans, strings: tuple[str, ...], thread: int) -> _Found | None:
    """The recurring ranges of a thread that lie in no other recurring one, in order."""
    of_user = is_one_of(spans.kind, (SpanKind.OTHER, SpanKind.LOADER, SpanKind.OPTIMIZER))
    rows = np.flatnonzero((spans.thread == thread) & of_user & (spans.end_ns > spans.start_ns))
    codes, place = np.unique(spans.name[rows], return_inverse=True)
    shapes: dict[str, int] = {}
    shape = np.array([shapes.setdefault(_NUMBER.sub("#", strings[code]), len(shapes)) for code in codes], np.intp)
    if not shapes:
        return None
    n_of_name = np.bincount(place, minlength=codes.size)
    n_of_shape = np.bincount(shape, weights=n_of_name, minlength=len(shapes)).astype(np.int64)
    names_of_shape = np.bincount(shape, minlength=len(shapes))
    starts = np.array([is_starting(one) for one in shapes], np.bool_)
    is_step = ~starts & np.array([not _OF_THE_MODEL.search(one) for one in shapes], np.bool_)
    # of a name with numbers each is one step's: layers come back under their number
    is_counted = (names_of_shape == 1) | (n_of_shape < 2 * names_of_shape)
    wanted = (is_step & is_counted & (n_of_shape >= MIN_PERIODS))[shape[place]]
    of_start = rows[starts[shape[place]]]  # what lies inside a warm-up is of it, whatever its name
    wanted &= ~Intervals.of(spans.start_ns[of_start], spans.end_ns[of_start]).contains(spans.start_ns[rows])
    rows, phase = rows[wanted], shape[place][wanted]
    if rows.size == 0 or distinct(phase).size > _MOST_NAMES:
        return None
    order = np.lexsort((-spans.end_ns[rows], spans.start_ns[rows]))
    rows, phase = rows[order], phase[order]
    reach = np.maximum.accumulate(spans.end_ns[rows])
    outer = np.append(True, spans.start_ns[rows[1:]] >= reach[:-1])
    rows, phase = rows[outer], phase[outer]
    often = np.bincount(phase, minlength=len(shapes))[phase]
    usual = int(often.max())
    kept = often >= _ALIKE * usual  # what comes now and then, a save, is no phase of the step
    return _Found(spans.start_ns[rows[kept]], spans.end_ns[rows[kept]], phase[kept]) if usual >= MIN_PERIODS else None


def _in_turn(found: _Found, asked: I64) -> _Found | None:
    """The ranges of the phases that come in most steps; None where other ones launch more: those of another loop."""
    begins = found.start_ns[found.phase == found.phase[0]]
    step = place_among(begins, found.start_ns, after=True) - 1
    phases = distinct(found.phase)
    n_steps = np.array([distinct(step[found.phase == phase]).size for phase in phases])
    kept = is_one_of(found.phase, phases[n_steps >= _ALIKE * begins.size].tolist())
    if kept.all():
        return found
    own = _Found(found.start_ns[kept], found.end_ns[kept], found.phase[kept])
    n_own, n_all = (int(_inside(one, asked).sum()) for one in (own, found))
    return own if n_own >= _OF_ONE_LOOP * n_all else None


def _are_parts(found: _Found, spans: Spans, thread: int, asked: I64) -> bool:
    """Whether all ranges lie in one other range of the thread that launches beside them."""
    low, high = int(found.start_ns.min()), int(found.end_ns.max())
    around = np.flatnonzero((spans.thread == thread) & (spans.start_ns <= low) & (spans.end_ns >= high))
    if around.size == 0:
        return False
    inner = around[(spans.end_ns - spans.start_ns)[around].argmin()]
    asked = asked[(asked >= spans.start_ns[inner]) & (asked < spans.end_ns[inner])]
    return asked.size > 0 and bool((~_inside(found, asked)).mean() >= _BESIDE)


def _inside(found: _Found, asked: I64) -> NDArray[np.bool_]:
    """Which launches lie in the ranges."""
    place = place_among(found.start_ns, asked, after=True) - 1
    inside: NDArray[np.bool_] = (place >= 0) & (asked < found.end_ns[np.maximum(place, 0)])
    return inside


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
    steps = _optimizer_steps(spans) or _periodic_steps(gpu, spans, strings)
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


def _optimizer_steps(spans: Spans) -> tuple[Step, ...]:
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
