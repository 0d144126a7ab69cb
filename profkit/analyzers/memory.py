"""Allocator calls inside the steps: the sign of memory pressure that occupancy does not show (docs/method.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import RECORD_A_DEVICE, Analyzer, Scope, Vendor, by_name, idle_before, scope_of
from profkit.analyzers.tools import operators, system_timeline
from profkit.findings.memory import PRESSURE, WARMUP
from profkit.model.arrays import distinct, distinct_codes, is_one_of
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.model.intervals import Intervals
from profkit.model.names import family_of
from profkit.model.trace import CallKind
from profkit.redact.later import later
from profkit.timeline import DeviceFacts, Facts, IdlePlaces
from profkit.timeline.code import Rows
from profkit.timeline.steps import edges, steps_in_window
from profkit.units import format_bytes, format_count, format_fraction

_EVENT_WAIT: Final = later(r"^(?:cuda|hip)EventSynchronize|^cuEventSynchronize")

_PROOF_OF_OTHERS: Final = (
    "Allocate all buffers before the loop and run it again: it becomes shorter by about the cost shown.",
    "Lower memory (a smaller batch): the time per sample falls.",
)
"""Where nothing trains: for a program without PyTorch, and for one with it."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Allocator calls in the window and the device memory the trace saw, bytes; None without memory events."""

    scope: Scope
    n_calls: int
    n_steps_with_calls: int
    n_steps: int
    """Steps that lie wholly in the window."""
    cost_ns: int
    by_name: tuple[tuple[str, int, int], ...]
    peak_allocated_bytes: int | None
    peak_reserved_bytes: int | None
    capacity_bytes: int | None
    n_reserved_drops: int
    n_trials: int
    """Waits for events inside convolutions, each the end of an algorithm that is timed."""
    n_steps_with_trials: int
    n_trial_allocs: int
    """Allocator calls inside those convolutions."""
    trial_idle_ns: int
    """Idle time of the device inside those convolutions."""
    gain_ns: int
    """Idle time that the window would not have without the calls, debts that later gaps pay off included."""
    is_replayed: bool = False
    """Whether `gain_ns` is by a replay of the launches."""
    places: IdlePlaces = IdlePlaces()
    """Where the device is idle."""
    trains: bool = True
    """Whether the trace shows a backward pass or an optimizer."""


def measure(facts: Facts) -> Memory | Skipped:
    """Count allocator calls and the idle time that begins inside them."""
    main = facts.main_device
    if main is None:
        return Skipped(reason="no device in this trace", how_to_get=RECORD_A_DEVICE)
    trace = facts.trace
    rows = facts.calls_in_window(CallKind.ALLOC)
    calls = trace.calls
    busy = Intervals.of_rows(calls, rows).clip(*trace.window_ns)
    memory = trace.memory  # of a large trace 30 MB
    is_mine = (memory.device_type == 1) & (memory.device == main.device)
    waits, n_trial_allocs, trial_idle_ns = _trials(facts, main)
    allocated = memory.allocated_bytes[is_mine]
    reserved = memory.reserved_bytes[is_mine & (memory.reserved_bytes >= 0)]
    return Memory(
        scope=scope_of(facts),
        n_calls=int(rows.size),
        n_steps_with_calls=_steps_with(facts, calls.start_ns[rows]),
        n_steps=len(steps_in_window(trace)),
        cost_ns=_cost_ns(busy, main.activity.any.gaps(*trace.window_ns)) if busy else 0,
        by_name=by_name(trace, calls.name[rows], calls.end_ns[rows] - calls.start_ns[rows]),
        peak_allocated_bytes=int(allocated.max()) if allocated.size else None,
        peak_reserved_bytes=int(reserved.max()) if reserved.size else None,
        capacity_bytes=trace.memory_bytes(main.device) or None,
        n_reserved_drops=int((np.diff(reserved) < 0).sum()),
        n_trials=waits.size,
        n_steps_with_trials=_steps_with(facts, calls.start_ns[waits]),
        n_trial_allocs=n_trial_allocs,
        trial_idle_ns=trial_idle_ns,
        gain_ns=main.gains.allocator_ns,
        is_replayed=main.gains.is_replayed,
        places=main.places,
        trains=facts.trains,
    )


def _rows(facts: Facts, _: Memory) -> Mapping[str, Rows]:
    """The allocator's calls, and the waits inside convolutions that are being tried."""
    calls, main = facts.trace.calls, facts.main_device
    if main is None:
        return {}
    allocs, trials = facts.calls_in_window(CallKind.ALLOC), _trials(facts, main)[0]
    return {
        kind.id: Rows.of_calls(facts.trace, rows, calls.end_ns[rows] - calls.start_ns[rows])
        for kind, rows in ((PRESSURE, allocs), (WARMUP, trials))
    }


def _trials(facts: Facts, main: DeviceFacts) -> tuple[NDArray[np.intp], int, int]:
    """Waits for events inside convolutions (rows of the calls), allocator calls and idle time of the device there."""
    trace, calls, ops = facts.trace, facts.trace.calls, facts.trace.ops
    waits = np.flatnonzero(trace.named(calls.name, _EVENT_WAIT) & (facts.op_of_call >= 0))
    names = {int(code): family_of(trace.name(int(code))) for code in distinct_codes(ops.name[facts.op_of_call[waits]])}
    convolutions = [code for code, family in names.items() if family == "convolution"]
    waits = waits[is_one_of(ops.name[facts.op_of_call[waits]], convolutions)]
    if waits.size == 0:
        return waits, 0, 0
    trying = distinct(facts.op_of_call[waits])
    allocs = is_one_of(facts.op_of_call, trying) & (calls.kind == CallKind.ALLOC)
    during = Intervals.of_rows(ops, trying).clip(*trace.window_ns)
    idle = main.activity.any.gaps(*trace.window_ns) & during
    return waits, int(allocs.sum()), idle.total_ns


def _cost_ns(busy: Intervals, idle: Intervals) -> int:
    begun_inside = busy.contains(idle.start_ns)
    drained = Intervals(idle.start_ns[begun_inside], idle.end_ns[begun_inside])
    return ((busy & idle) | drained).total_ns


def _steps_with(facts: Facts, at_ns: np.ndarray) -> int:
    start, end = edges(steps_in_window(facts.trace))
    return int((np.searchsorted(at_ns, end) > np.searchsorted(at_ns, start)).sum())


def judge(result: Memory) -> tuple[Finding, ...]:
    """`memory.pressure` and `memory.warmup`."""
    return (*_pressure(result), *_warmup(result))


def _warmup(result: Memory) -> Iterator[Finding]:
    """`memory.warmup` where the device idles while convolutions choose their algorithms."""
    scope = result.scope
    fraction = scope.fraction(result.trial_idle_ns)
    if result.n_trials < WARMUP.limit("trials") or fraction < WARMUP.limit("window"):
        return
    if result.n_steps > 2 and result.n_steps_with_trials > WARMUP.limit("steps") * result.n_steps:
        return  # new shapes in every step: that is how the job runs
    allocs = f" and {result.n_trial_allocs:,} allocator calls" if result.n_trial_allocs else ""
    library = "MIOpen" if scope.vendor is Vendor.AMD else "cuDNN"
    yield WARMUP.found(
        confidence=0.8,
        recoverable_ns=scope.per_step(result.trial_idle_ns),
        fraction=fraction,
        evidence=(
            Evidence.time(
                "memory.trial_idle_ns",
                result.trial_idle_ns,
                f"{result.n_trials:,} waits for events{allocs} inside convolutions: {library} times its algorithms;"
                f" the GPU is idle there for {format_fraction(fraction)} of the window",
                expected="0 after warm-up",
            ),
        ),
        fix="record after warm-up; if shapes change from step to step, set torch.backends.cudnn.benchmark = False",
        next_tools=(
            operators(
                scope, "record steady steps after warm-up", "no cudaEventSynchronize inside convolution operators"
            ),
        ),
    )


def _pressure(result: Memory) -> Iterator[Finding]:
    """`memory.pressure` where the allocator goes to the driver in several steps and that costs time."""
    scope = result.scope
    fraction = scope.fraction(result.cost_ns)
    if result.n_steps_with_calls < PRESSURE.limit("steps") or fraction < PRESSURE.limit("window"):
        return
    yield PRESSURE.found(
        confidence=0.8,
        recoverable_ns=scope.per_step(result.gain_ns if result.is_replayed else max(result.cost_ns, result.gain_ns)),
        fraction=fraction,
        evidence=tuple(_pressure_evidence(result, fraction)),
        fix=_fix(result),
        proof="" if scope.is_of_torch and result.trains else _PROOF_OF_OTHERS[scope.is_of_torch],
        next_tools=(
            system_timeline(
                scope,
                "which code allocates, and when?",
                "cudaMalloc and cudaFree in the CUDA API row, and what calls them",
            )
            if not scope.is_of_torch
            else operators(
                scope,
                "record every allocation: which operator allocates, and does reserved memory shrink?",
                "[memory] events whose Total Reserved falls: the cache was flushed",
                flags="--memory",
            ),
        ),
    )


def _pressure_evidence(result: Memory, fraction: float) -> Iterator[Evidence]:
    scope = result.scope
    yield Evidence.count(
        "memory.n_calls",
        result.n_calls,
        f"{format_count(result.n_calls / scope.n_steps)} allocator calls {scope.each} reach the driver, in"
        f" {result.n_steps_with_calls} of {result.n_steps} steps",
        expected="0 after warm-up",
    )
    yield Evidence.time(
        "memory.cost_ns",
        result.cost_ns,
        f"the GPU is idle {scope.time(result.cost_ns)} during these calls and right after"
        f" them ({format_fraction(fraction)} of the window)",
    )
    if result.peak_reserved_bytes is not None:
        of = f" of {format_bytes(result.capacity_bytes)}" if result.capacity_bytes else ""
        yield Evidence.size(
            "memory.peak_reserved_bytes",
            result.peak_reserved_bytes,
            f"{format_bytes(result.peak_reserved_bytes)}{of} reserved at peak; reserved memory shrank {result.n_reserved_drops} times",
        )
    yield from idle_before(result.places, scope, "idle_sync")


def _fix(result: Memory) -> str:
    if not result.scope.is_of_torch:
        return (
            "allocate once, before the loop, and reuse the buffers; or take them from a pool (cudaMallocAsync, or the"
            " allocator of a library), which does not go to the driver each time"
        )
    segments = "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    if result.trains:
        return f"{segments}; use a smaller micro-batch with more accumulation, activation checkpointing or fixed shapes"
    return f"{segments}; use smaller batches, fixed shapes, and torch.inference_mode() around the loop"


def present(result: Memory) -> Section:
    """Show allocator calls."""
    return Section(
        title="memory",
        values={
            "n_calls": result.n_calls,
            "n_steps_with_calls": result.n_steps_with_calls,
            "cost_ns": result.cost_ns,
            "peak_allocated_bytes": result.peak_allocated_bytes,
            "peak_reserved_bytes": result.peak_reserved_bytes,
            "n_reserved_drops": result.n_reserved_drops,
            "n_trials": result.n_trials,
            "trial_idle_ns": result.trial_idle_ns,
        },
        tables=(TableView.of("allocator calls", {"call": "text", "count": "count", "time": "ns"}, result.by_name),)
        if result.by_name
        else (),
    )


ANALYZER = Analyzer(
    name="memory",
    question="does the allocator go to the driver inside the steps?",
    needs="runtime calls; memory events for the peaks (profile_memory=True)",
    measure=measure,
    judge=judge,
    rows=_rows,
    present=present,
)
