"""What a sound capture would not have, counted."""

from __future__ import annotations

import re
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import Scope, scope_of
from profkit.findings.capture import FEW_STEPS, MOST_IS_INPUT, QUALITY
from profkit.model.arrays import is_member, is_one_of, next_equal, of_rows, place_among, rows_by_value
from profkit.model.intervals import Intervals
from profkit.model.names import WHOLE_GRAPH
from profkit.model.trace import DEVICE_STEPS, CallKind, SpanKind, Trace
from profkit.timeline import DeviceFacts, Facts
from profkit.timeline.cpu import training_threads
from profkit.timeline.host import os_waits
from profkit.timeline.launch_order import before_capture
from profkit.timeline.overhead import profiler_work
from profkit.timeline.steps import edges, steps_in_window
from profkit.timeline.totals import Sampled, waiting_samples


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of the gate; None where the trace has nothing to count."""

    scope: Scope
    n_launches: int
    lost_launch_fraction: float | None
    n_during_capture: int
    n_device_rows: int
    unlinked_fraction: float | None
    n_before: int
    """Device rows in the window that were launched before the capture began."""
    early_fraction: float | None
    early_ns: int
    """By how much rows start before their launch; 99 of 100 by less."""
    overlapped_fraction: float | None
    n_removed: int
    n_giant: int
    n_steps_marked: int
    lag_floor_ns: int | None
    perturbation: float | None
    step_ns: int | None
    plain_ns: int | None
    """The mean unprofiled step, by the capture's clock."""
    profiled_ns: int | None
    """The mean recorded step, by the same clock."""
    n_damage: int
    whole_graph_fraction: float | None
    """Of the window, in CUDA graphs whose kernels were not recorded; None where there are none."""
    overhead_fraction: float | None
    """Of the window, idle time of the device in which the profiler worked for itself; None where it wrote no such rows."""
    outrun_fraction: float | None
    """Of the window: by how much the lag of the device behind the host changes from its start to its end."""
    is_catching_up: bool
    """Whether the lag shrinks: the device worked off what was launched before the window."""
    device_step_ns: int
    """Time the device takes for the work of a step."""
    n_cpu_ops: int | None
    """Operators at work in the window where the CPU is the device; None where it is not, or compiled graphs work, or
    `unseen_fraction` stands for it."""
    unseen_fraction: float | None
    """Of the window, neither operators nor a wait for input, where no operators were recorded and most of it is a wait."""
    ranges: tuple[tuple[str, int], ...]
    """What ranges of the training threads say instead of operators, (name, ns), the longest first; () with operators."""
    os_waits: tuple[tuple[str, int], ...]
    """Calls of the operating system in which these threads spent the window beside waits for input, the same way."""
    samples: tuple[Sampled, ...]
    """CPU samples of these threads, in the same time."""
    startup_fraction: float | None
    """Of the window, beside the steps found by their period; None where they were not found so."""
    first_pass_fraction: float | None
    """Of the device's idle time, under calls that a first pass makes; None where steps show that they recur."""
    n_rows: int
    """Device rows, or operators and annotations where there is no device."""


def measure(facts: Facts) -> Quality:
    """Count what a sound capture would not have."""
    trace = facts.trace
    main = facts.main_device
    n_launches, lost, n_captured = _lost_launches(facts)
    unseen = _unseen(facts)
    unlinked, n_before = _unlinked(facts)
    warnings = {warning.id: warning.count for warning in trace.warnings}
    is_marked = bool(trace.steps) and trace.step_source in {trace.meta.traits.step_source, DEVICE_STEPS}
    shows_host = is_marked and trace.step_source != DEVICE_STEPS
    gained = main.queue.behind_ns[1] - main.queue.behind_ns[0] if main is not None and shows_host else 0
    return Quality(
        scope=scope_of(facts),
        n_launches=n_launches,
        lost_launch_fraction=lost,
        n_during_capture=n_captured,
        n_device_rows=sum(device.activity.rows.size for device in facts.devices),
        unlinked_fraction=unlinked,
        n_before=n_before,
        early_fraction=main.queue.n_early / main.queue.n_linked if main is not None and main.queue.n_linked else None,
        early_ns=main.queue.early_ns if main is not None else 0,
        overlapped_fraction=_overlapped(trace, main) if main is not None else None,
        n_removed=warnings.get("dur.overflow", 0) + warnings.get("ts.zero", 0),
        n_giant=_giants(trace),
        n_steps_marked=len(steps_in_window(trace)) if is_marked else 0,
        lag_floor_ns=main.queue.floor_p5_ns if main is not None else None,
        perturbation=_perturbation(facts),
        step_ns=facts.step_ns,
        plain_ns=trace.meta.unprofiled_step_ns,
        profiled_ns=trace.meta.profiled_step_ns,
        n_damage=warnings.get("trace.truncated", 0) + warnings.get("events.unreadable", 0),
        whole_graph_fraction=_whole_graphs(trace, main) if main is not None else None,
        overhead_fraction=_overhead(trace, main) if main is not None and len(trace.overhead) else None,
        outrun_fraction=abs(gained) / facts.window_ns if main is not None and shows_host and facts.window_ns else None,
        is_catching_up=gained < 0,
        device_step_ns=facts.per_step(facts.window_ns + gained),
        n_cpu_ops=_n_cpu_ops(facts) if unseen is None else None,
        unseen_fraction=unseen,
        ranges=_ranges(facts),
        os_waits=_os_waits(facts),
        samples=waiting_samples(facts) if facts.cpu is not None and facts.cpu.has_no_operators else (),
        startup_fraction=facts.startup_ns / facts.window_ns
        if trace.step_source == "period" and facts.window_ns
        else None,
        first_pass_fraction=_first_pass(facts, main) if main is not None else None,
        n_rows=sum(device.activity.rows.size for device in facts.devices) or len(trace.ops) + len(trace.spans),
    )


def _lost_launches(facts: Facts) -> tuple[int, float | None, int]:
    """(Kernel launches in the window, share without a device row, launches that stream capture recorded).

    Launches in the last tenth are not counted: their kernels may run after the profiler stopped listening.
    """
    trace = facts.trace
    calls = trace.calls
    rows = facts.calls_in_window(CallKind.LAUNCH, CallKind.GRAPH_LAUNCH)
    rows = rows[calls.correlation[rows] > 0]
    captured = _during_capture(trace, rows)
    rows = rows[~captured]
    if trace.window_duration_ns and rows.size > 20:
        rows = rows[: rows.size - rows.size // 10]
    if rows.size == 0:
        return 0, None, int(captured.sum())
    has_row = is_member(calls.correlation[rows], np.sort(trace.gpu.correlation, kind="stable"))
    return int(rows.size), float(1 - has_row.mean()), int(captured.sum())


def _during_capture(trace: Trace, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which launches fall between a stream's begin and end of capture: these run nothing."""
    marks = np.flatnonzero(trace.calls.kind == CallKind.CAPTURE)
    if marks.size == 0:
        return np.zeros(rows.size, np.bool_)
    is_begin = np.array(["Begin" in trace.name(code) for code in trace.calls.name[marks]])
    begun = place_among(trace.calls.start_ns[marks[is_begin]], trace.calls.start_ns[rows], after=True)
    ended = place_among(trace.calls.start_ns[marks[~is_begin]], trace.calls.start_ns[rows], after=True)
    captured: NDArray[np.bool_] = begun > ended
    return captured


def _unlinked(facts: Facts) -> tuple[float | None, int]:
    """Give (share of device rows whose launch is missing, rows launched before the capture began)."""
    rows = np.concatenate([device.activity.rows for device in facts.devices]) if facts.devices else np.empty(0, np.intp)
    if rows.size == 0:
        return None, 0
    lost = rows[facts.trace.gpu.launch_row[rows] < 0]
    n_before = int(before_capture(facts.trace, lost).sum())
    return (lost.size - n_before) / rows.size, n_before


def _overlapped(trace: Trace, main: DeviceFacts) -> float:
    """Share of rows that start before the row before them on the same stream ends; graph nodes may, they branch."""
    gpu = trace.gpu
    rows = main.activity.rows[of_rows(gpu.graph_node, main.activity.rows) == 0]
    following = next_equal(of_rows(gpu.stream, rows))  # rows are in order of start
    has_one = np.flatnonzero(following < rows.size)
    bad = gpu.start_ns[rows[following[has_one]]] < gpu.end_ns[rows[has_one]]
    return float(bad.sum() / rows.size) if rows.size else 0.0


def _whole_graphs(trace: Trace, main: DeviceFacts) -> float | None:
    is_graph = np.array([name.startswith(WHOLE_GRAPH) for name in trace.strings], np.bool_)
    rows = main.activity.rows[is_graph[trace.gpu.name[main.activity.rows]]]
    if not rows.size:
        return None
    graphs = Intervals.of(trace.gpu.start_ns[rows], trace.gpu.end_ns[rows]).clip(*trace.window_ns)
    return graphs.total_ns / trace.window_duration_ns


def _overhead(trace: Trace, main: DeviceFacts) -> float | None:
    idle = profiler_work(trace) - main.activity.any
    return idle.total_ns / trace.window_duration_ns if trace.window_duration_ns else None


_MODULE: Final = re.compile(r"^(?:cu|hip)(?:Module|Library)(?:Load|Unload)")
_EVENT: Final = re.compile(r"^(?:cu|cuda|hip)EventSynchronize")


_RECURS: Final = 0.5
"""Chosen: what a second step has of the longest one, and more, is no first pass."""


def _first_pass(facts: Facts, main: DeviceFacts) -> float | None:
    """The share of idle time under allocation, module loading and waits for events: what a first pass does once.

    None where three steps, or a second step of the trace with as much of it, show what recurs. Trials of algorithms wait
    for events inside operators; a wait outside them is the script's own.
    """
    trace, calls = facts.trace, facts.trace.calls
    if len(steps_in_window(trace)) >= QUALITY.limit(FEW_STEPS.id):
        return None
    idle = main.activity.any.gaps(*trace.window_ns)
    if not idle.total_ns:
        return None
    is_loading, is_event = (
        np.array([bool(pattern.match(name)) for name in trace.strings], np.bool_)[calls.name]
        for pattern in (_MODULE, _EVENT)
    )
    is_trial = is_event & (facts.op_of_call >= 0) if len(trace.ops) else is_event
    rows = np.flatnonzero((calls.kind == CallKind.ALLOC) | is_loading | is_trial)
    spent = Intervals.of(calls.start_ns[rows], calls.end_ns[rows])
    if len(trace.steps) > 1:
        *_, second, most = np.sort(spent.covered_ns(*edges(trace.steps))).tolist()
        if most and second >= _RECURS * most:
            return None
    return (spent & idle).total_ns / idle.total_ns


def _n_cpu_ops(facts: Facts) -> int | None:
    if facts.cpu is None:
        return None
    return facts.cpu.n_leaf_ops or (0 if facts.cpu.has_no_operators else None)


def _unseen(facts: Facts) -> float | None:
    if facts.cpu is None or not facts.cpu.has_no_operators or not facts.window_ns:
        return None
    budget = facts.budget
    return budget.fraction("idle_unknown") if budget.fraction("idle_data") >= MOST_IS_INPUT else None


def _ranges(facts: Facts) -> tuple[tuple[str, int], ...]:
    """Ranges of phases on the training threads, steps left out; of ranges of one name what they cover together."""
    if facts.cpu is None or not facts.cpu.has_no_operators:
        return ()
    trace, spans = facts.trace, facts.trace.spans
    low, high = trace.window_ns
    is_phase = (spans.kind != SpanKind.STEP) & is_one_of(spans.thread, training_threads(trace))
    rows = np.flatnonzero(is_phase & (spans.end_ns > low) & (spans.start_ns < high))
    found = [
        (trace.name(int(code)), Intervals.of(spans.start_ns[mine], spans.end_ns[mine]).clip(low, high).total_ns)
        for code, places in rows_by_value(spans.name[rows])
        for mine in [rows[places]]
    ]
    return tuple(sorted((one for one in found if one[1]), key=lambda one: -one[1]))


def _os_waits(facts: Facts) -> tuple[tuple[str, int], ...]:
    if facts.cpu is None or not facts.cpu.has_no_operators:
        return ()
    return os_waits(facts.trace, training_threads(facts.trace), facts.cpu.data.gaps(*facts.trace.window_ns))


def _giants(trace: Trace) -> int:
    """Device rows ten times as long as everything the host recorded: a duration that wrapped below the hard limit."""
    host = trace.calls if len(trace.calls) else trace.ops
    if len(host) == 0 or len(trace.gpu) == 0:
        return 0
    span = int(host.end_ns.max() - host.start_ns.min())
    return int(((trace.gpu.end_ns - trace.gpu.start_ns) > max(10 * span, 10**9)).sum())


def _perturbation(facts: Facts) -> float | None:
    """Mean profiled step over mean unprofiled step of the same run, minus 1; means, since loader stalls are bimodal.

    Both by the capture's own clock, so that it is what the capture says as well; else the steps are the trace's.
    """
    meta = facts.trace.meta
    profiled = meta.profiled_step_ns or facts.step_ns
    return profiled / meta.unprofiled_step_ns - 1 if profiled and meta.unprofiled_step_ns else None
