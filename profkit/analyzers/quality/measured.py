"""What a sound capture would not have, counted."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from profkit.analyzers.base import Scope, scope_of
from profkit.findings.capture import MOST_IS_INPUT, READ
from profkit.model.arrays import is_one_of, next_equal, of_rows, rows_by_value
from profkit.model.budget import HOST_PARTS
from profkit.model.intervals import Intervals
from profkit.model.trace import DEVICE_STEPS, CpuOps, SpanKind, Spans, Trace
from profkit.timeline import DeviceFacts, Facts
from profkit.timeline.activity import whole_graphs_ns
from profkit.timeline.complete import launches
from profkit.timeline.cpu import training_threads
from profkit.timeline.elsewhere import unrecorded
from profkit.timeline.first_use import first_use
from profkit.timeline.host import os_waits
from profkit.timeline.idle import profiler_work
from profkit.timeline.input import loader_ranges
from profkit.timeline.launch_order import before_capture
from profkit.timeline.steps import steps_in_window
from profkit.timeline.totals import Sampled, waiting_samples

_MOST_BUSY = 12


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of the gate; None where the trace has nothing to count."""

    scope: Scope
    n_launches: int
    lost_launch_fraction: float | None
    n_queued: int
    """Launches that waited behind what the device worked at when the recording ended."""
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
    n_steps: int
    """Steps in the window, marked or found."""
    is_marked: bool
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
    first_batch_ns: int | None
    """What the training threads wait for input before the window; None where they do inside it, or steps are known."""
    stacked_fraction: float | None
    """Of the window, the host's own time, where Python stacks were recorded and no step was timed without them."""
    unrecorded: str
    """The device on which the program ran and of which the file holds nothing; "" where there is none."""
    busy: tuple[tuple[str, int], ...]
    """What the host's threads spend most time in, (operator or call, ns), the longest first, where a check refuses."""
    n_read: int | None
    """Captures that experts read of devices of this maker by this tool; None where the CPU is the device."""
    n_rows: int
    """Device rows, or operators and annotations where there is no device."""
    busy_ns: int
    """Time in which the device works; 0 without one."""

    @property
    def is_blind(self) -> bool:
        """Whether the work ran on a device of which the file holds nothing: what the host did is no account of it."""
        return bool(self.unrecorded) or (not self.n_device_rows and self.n_launches > 0)

    @property
    def first_batch_fraction(self) -> float | None:
        """Of the window and what waits for input before it, the latter."""
        waits = self.first_batch_ns
        return None if waits is None else waits / (waits + self.scope.window_ns)


def measure(facts: Facts) -> Quality:
    """Count what a sound capture would not have."""
    trace = facts.trace
    main = facts.main_device
    asked = launches(trace)
    unseen, elsewhere = _unseen(facts), unrecorded(trace)
    unlinked, n_before = _unlinked(facts)
    warnings = {warning.id: warning.count for warning in trace.warnings}
    is_marked = trace.is_marked or (bool(trace.steps) and trace.step_source == DEVICE_STEPS)
    shows_host = trace.is_marked
    gained = main.queue.behind_ns[1] - main.queue.behind_ns[0] if main is not None and shows_host else 0
    return Quality(
        scope=scope_of(facts),
        n_launches=asked.n_counted,
        lost_launch_fraction=asked.lost_share,
        n_queued=asked.n_queued,
        n_during_capture=asked.n_captured,
        n_device_rows=sum(device.activity.rows.size for device in facts.devices),
        unlinked_fraction=unlinked,
        n_before=n_before,
        early_fraction=main.queue.n_early / main.queue.n_linked if main is not None and main.queue.n_linked else None,
        early_ns=main.queue.early_ns if main is not None else 0,
        overlapped_fraction=_overlapped(trace, main) if main is not None else None,
        n_removed=warnings.get("dur.overflow", 0) + warnings.get("ts.zero", 0),
        n_giant=_giants(trace),
        n_steps=len(steps_in_window(trace)),
        is_marked=is_marked,
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
        first_batch_ns=_first_batch(facts) if main is not None and not trace.steps else None,
        stacked_fraction=_stacked(facts),
        unrecorded=elsewhere,
        busy=_busy(facts) if elsewhere or (facts.cpu is not None and asked.n_counted) else (),
        n_read=READ.get((scope_of(facts).vendor, trace.meta.traits.format), 0) if main is not None else None,
        n_rows=sum(device.activity.rows.size for device in facts.devices) or len(trace.ops) + len(trace.spans),
        busy_ns=main.activity.any.total_ns if main is not None else 0,
    )


def _unlinked(facts: Facts) -> tuple[float | None, int]:
    """Give (share of device rows whose launch is missing, rows launched before the capture began)."""
    rows = np.concatenate([device.activity.rows for device in facts.devices]) if facts.devices else np.empty(0, np.intp)
    if rows.size == 0:
        return None, 0
    lost = rows[facts.trace.gpu.launch_row[rows] < 0]
    n_before = int(before_capture(facts.trace, lost).sum())
    return (lost.size - n_before) / rows.size, n_before


def _overlapped(trace: Trace, main: DeviceFacts) -> float:
    """Share of the rows' time that overlaps the row before them on the same stream; graph nodes may, they branch.

    By time: rows whose ends were rounded overlap by less than a microsecond, and tell nothing false.
    """
    gpu = trace.gpu
    rows = main.activity.rows[of_rows(gpu.graph_node, main.activity.rows) == 0]
    following = next_equal(of_rows(gpu.stream, rows))  # rows are in order of start
    has_one = np.flatnonzero(following < rows.size)
    after = rows[following[has_one]]
    beyond = np.minimum(gpu.end_ns[rows[has_one]], gpu.end_ns[after]) - gpu.start_ns[after]
    total = int((gpu.end_ns[rows] - gpu.start_ns[rows]).sum())
    return int(beyond[beyond > 0].sum()) / total if total else 0.0


def _whole_graphs(trace: Trace, main: DeviceFacts) -> float | None:
    graphs_ns = whole_graphs_ns(trace, main.activity.rows)
    return None if graphs_ns is None else graphs_ns / trace.window_duration_ns


def _overhead(trace: Trace, main: DeviceFacts) -> float | None:
    idle = profiler_work(trace) - main.activity.any
    return idle.total_ns / trace.window_duration_ns if trace.window_duration_ns else None


def _first_pass(facts: Facts, main: DeviceFacts) -> float | None:
    """The share of idle time under what a first pass does once; None where it is known to recur."""
    used, idle = first_use(facts.trace, facts.op_of_call), main.activity.any.gaps(*facts.trace.window_ns)
    return None if used is None or not idle.total_ns else (used.any & idle).total_ns / idle.total_ns


def _first_batch(facts: Facts) -> int | None:
    spans, low = facts.trace.spans, facts.trace.window_ns[0]
    mine, _ = loader_ranges(spans, facts.host.threads)
    before = mine & (spans.end_ns <= low)
    if facts.host.input.waits or not before.any():
        return None
    return Intervals.of_rows(spans, before).total_ns


def _stacked(facts: Facts) -> float | None:
    meta = facts.trace.meta
    if not meta.has_stacks or meta.unprofiled_step_ns is not None:
        return None
    return sum(map(facts.budget.fraction, HOST_PARTS))


def _busy(facts: Facts) -> tuple[tuple[str, int], ...]:
    """The outermost operators and runtime calls of the training threads, by the time that all of one name cover."""
    trace = facts.trace
    found = [*_spent_by_name(trace, trace.ops), *_spent_by_name(trace, trace.calls)]
    return tuple(sorted(found, key=lambda one: -one[1])[:_MOST_BUSY])


def _spent_by_name(trace: Trace, table: CpuOps | Spans) -> Iterator[tuple[str, int]]:
    """What rows of one name on the training threads cover together, in the window."""
    low, high = trace.window_ns
    is_inside = (table.end_ns > low) & (table.start_ns < high)
    rows = np.flatnonzero(is_inside & is_one_of(table.thread, training_threads(trace)))
    for code, places in rows_by_value(table.name[rows]):
        mine = rows[places]
        yield trace.name(int(code)), Intervals.of_rows(table, mine).clip(low, high).total_ns


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
    spans = facts.trace.spans
    found = _spent_by_name(facts.trace, spans.take(np.flatnonzero(spans.kind != SpanKind.STEP)))
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
