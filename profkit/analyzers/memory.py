"""Allocator calls inside the steps: the sign of memory pressure that occupancy does not show (docs/method.md)."""

from __future__ import annotations

import msgspec
import numpy as np

from profkit.analyzers.base import Analyzer, Scope, by_name, idle_before, scope_of
from profkit.analyzers.tools import operators
from profkit.findings.memory import PRESSURE
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.model.intervals import Intervals
from profkit.model.trace import CallKind
from profkit.timeline import Facts, IdlePlaces
from profkit.timeline.steps import edges, steps_in_window
from profkit.units import format_bytes, format_count, format_fraction, format_ns


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
    gain_ns: int
    """Idle time that the window would not have without the calls, debts that later gaps pay off included."""
    places: IdlePlaces = IdlePlaces()
    """Where the device is idle."""


def measure(facts: Facts) -> Memory | Skipped:
    """Count allocator calls and the idle time that begins inside them."""
    main = facts.main_device
    if main is None:
        return Skipped(
            analyzer="memory",
            reason="no device in this trace",
            how_to_get="profile with ProfilerActivity.CUDA on a machine with a GPU",
        )
    trace = facts.trace
    rows = facts.calls_in_window(CallKind.ALLOC)
    calls = trace.calls
    busy = Intervals.of(calls.start_ns[rows], calls.end_ns[rows]).clip(*trace.window_ns)
    memory = trace.memory  # of a large trace 30 MB
    is_mine = (memory.device_type == 1) & (memory.device == main.device)
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
        capacity_bytes=next((item.memory_bytes for item in trace.meta.devices if item.index == main.device), None)
        or None,
        n_reserved_drops=int((np.diff(reserved) < 0).sum()),
        gain_ns=main.gains.allocator_ns,
        places=main.places,
    )


def _cost_ns(busy: Intervals, idle: Intervals) -> int:
    begun_inside = busy.contains(idle.start_ns)
    drained = Intervals(idle.start_ns[begun_inside], idle.end_ns[begun_inside])
    return ((busy & idle) | drained).total_ns


def _steps_with(facts: Facts, at_ns: np.ndarray) -> int:
    start, end = edges(steps_in_window(facts.trace))
    return int((np.searchsorted(at_ns, end) > np.searchsorted(at_ns, start)).sum())


def judge(result: Memory) -> tuple[Finding, ...]:
    """`memory.pressure` where the allocator goes to the driver in several steps and that costs time."""
    scope = result.scope
    fraction = scope.fraction(result.cost_ns)
    if result.n_steps_with_calls < PRESSURE.limit("steps") or fraction < PRESSURE.limit("window"):
        return ()
    evidence = [
        Evidence(
            statement=f"{format_count(result.n_calls / scope.n_steps)} allocator calls {scope.each} reach the driver, in"
            f" {result.n_steps_with_calls} of {result.n_steps} steps",
            metric="memory.n_calls",
            value=float(result.n_calls),
            unit="count",
            expected="0 after warm-up",
        ),
        Evidence(
            statement=f"the GPU is idle {format_ns(scope.per_step(result.cost_ns))} {scope.each} during these calls and right after"
            f" them ({format_fraction(fraction)} of the window)",
            metric="memory.cost_ns",
            value=float(result.cost_ns),
            unit="ns",
        ),
    ]
    if result.peak_reserved_bytes is not None:
        of = f" of {format_bytes(result.capacity_bytes)}" if result.capacity_bytes else ""
        evidence.append(
            Evidence(
                statement=f"{format_bytes(result.peak_reserved_bytes)}{of} reserved at peak; reserved memory shrank {result.n_reserved_drops} times",
                metric="memory.peak_reserved_bytes",
                value=float(result.peak_reserved_bytes),
                unit="bytes",
            )
        )
    evidence += idle_before(result.places, scope, "idle_sync")
    return (
        PRESSURE.found(
            confidence=0.8,
            recoverable_ns=scope.per_step(max(result.cost_ns, result.gain_ns)),
            fraction=fraction,
            evidence=tuple(evidence),
            fix="set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; use a smaller micro-batch with more accumulation, activation"
            " checkpointing or fixed shapes",
            next_tools=(
                operators(
                    scope,
                    "record every allocation: which operator allocates, and does reserved memory shrink?",
                    "[memory] events whose Total Reserved falls: the cache was flushed",
                    flags="--memory",
                ),
            ),
        ),
    )


def present(result: Memory) -> Section:
    """Show allocator calls."""
    return Section(
        analyzer="memory",
        title="memory",
        values={
            "n_calls": result.n_calls,
            "n_steps_with_calls": result.n_steps_with_calls,
            "cost_ns": result.cost_ns,
            "peak_allocated_bytes": result.peak_allocated_bytes,
            "peak_reserved_bytes": result.peak_reserved_bytes,
            "n_reserved_drops": result.n_reserved_drops,
        },
        tables=(
            TableView(
                title="allocator calls",
                headers=("call", "count", "time"),
                units=("text", "count", "ns"),
                rows=result.by_name,
            ),
        )
        if result.by_name
        else (),
    )


ANALYZER = Analyzer(
    name="memory",
    question="does the allocator go to the driver inside the steps?",
    needs="runtime calls; memory events for the peaks (profile_memory=True)",
    measure=measure,
    judge=judge,
    present=present,
)
