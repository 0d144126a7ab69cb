"""Can this capture be trusted? Run first: what fails here caps the confidence of everything else (docs/method.md)."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.analyzers.tools import recapture
from profkit.model.arrays import is_member
from profkit.model.finding import Evidence, Explanation, Finding, Severity
from profkit.model.intervals import Intervals
from profkit.model.names import WHOLE_GRAPH
from profkit.model.report import Check, Section, TableView
from profkit.model.trace import CallKind, Trace
from profkit.timeline import DeviceFacts, Facts
from profkit.timeline.facts import steps_in_window
from profkit.timeline.idle import MAX_EARLY
from profkit.timeline.overhead import profiler_work
from profkit.units import format_fraction, format_ns

RECAPTURE = """from torch.profiler import profile, schedule, ProfilerActivity
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
             schedule=schedule(wait=10, warmup=5, active=12, repeat=1),
             on_trace_ready=lambda p: p.export_chrome_trace("trace.json.gz")) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()"""


_MARKED = frozenset({"ProfilerStep", "NVTX"})


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of the gate; None where the trace has nothing to count."""

    scope: Scope
    n_launches: int
    lost_launch_fraction: float | None
    n_during_capture: int
    n_device_rows: int
    unlinked_fraction: float | None
    early_fraction: float | None
    overlapped_fraction: float | None
    n_removed: int
    n_giant: int
    n_steps_marked: int
    lag_floor_ns: int | None
    perturbation: float | None
    n_damage: int
    whole_graph_fraction: float | None
    """Of the window, in CUDA graphs whose kernels were not recorded; None where there are none."""
    overhead_fraction: float | None
    """Of the window, idle time of the device in which the profiler worked for itself; None where it wrote no such rows."""
    outrun_fraction: float | None
    """Of the window: how much further behind the host the device is at its end than at its start."""
    device_step_ns: int
    """Time the device takes for the work of a step."""
    n_cpu_ops: int | None
    """Operators at work in the window where the CPU is the device; None where it is not, or compiled graphs work."""
    startup_fraction: float | None
    """Of the window, beside the steps found by their period; None where they were not found so."""
    n_rows: int
    """Device rows, or operators and annotations where there is no device."""


def measure(facts: Facts) -> Quality:
    """Count what a sound capture would not have."""
    trace = facts.trace
    main = facts.main_device
    n_launches, lost, n_captured = _lost_launches(facts)
    warnings = {warning.id: warning.count for warning in trace.warnings}
    is_marked = bool(trace.steps) and trace.step_source in _MARKED
    gained = main.queue.behind_ns[1] - main.queue.behind_ns[0] if main is not None and is_marked else 0
    return Quality(
        scope=scope_of(facts),
        n_launches=n_launches,
        lost_launch_fraction=lost,
        n_during_capture=n_captured,
        n_device_rows=sum(device.activity.rows.size for device in facts.devices),
        unlinked_fraction=_unlinked(facts),
        early_fraction=main.queue.n_early / main.queue.n_linked if main is not None and main.queue.n_linked else None,
        overlapped_fraction=_overlapped(trace, main) if main is not None else None,
        n_removed=warnings.get("dur.overflow", 0) + warnings.get("ts.zero", 0),
        n_giant=_giants(trace),
        n_steps_marked=len(steps_in_window(trace)) if is_marked else 0,
        lag_floor_ns=main.queue.floor_p5_ns if main is not None else None,
        perturbation=_perturbation(trace),
        n_damage=warnings.get("trace.truncated", 0) + warnings.get("events.unreadable", 0),
        whole_graph_fraction=_whole_graphs(trace, main) if main is not None else None,
        overhead_fraction=_overhead(trace, main) if main is not None and len(trace.overhead) else None,
        outrun_fraction=max(gained, 0) / facts.window_ns
        if main is not None and is_marked and facts.window_ns
        else None,
        device_step_ns=facts.per_step(facts.window_ns + gained),
        n_cpu_ops=facts.cpu.n_leaf_ops or (None if facts.cpu.compute else 0) if facts.cpu is not None else None,
        startup_fraction=facts.startup_ns / facts.window_ns
        if trace.step_source == "period" and facts.window_ns
        else None,
        n_rows=sum(device.activity.rows.size for device in facts.devices) or len(trace.ops) + len(trace.spans),
    )


def _lost_launches(facts: Facts) -> tuple[int, float | None, int]:
    """Give (kernel launches in the window, share without a device row, launches that stream capture recorded).

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
    has_row = is_member(calls.correlation[rows], np.sort(trace.gpu.correlation))
    return int(rows.size), float(1 - has_row.mean()), int(captured.sum())


def _during_capture(trace: Trace, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Tell which launches fall between a stream's begin and end of capture: these run nothing."""
    marks = np.flatnonzero(trace.calls.kind == CallKind.CAPTURE)
    if marks.size == 0:
        return np.zeros(rows.size, np.bool_)
    is_begin = np.array(["Begin" in trace.name(code) for code in trace.calls.name[marks]])
    begun = np.searchsorted(trace.calls.start_ns[marks[is_begin]], trace.calls.start_ns[rows], "right")
    ended = np.searchsorted(trace.calls.start_ns[marks[~is_begin]], trace.calls.start_ns[rows], "right")
    captured: NDArray[np.bool_] = begun > ended
    return captured


def _unlinked(facts: Facts) -> float | None:
    rows = np.concatenate([device.activity.rows for device in facts.devices]) if facts.devices else np.empty(0, np.intp)
    return float((facts.trace.gpu.launch_row[rows] < 0).mean()) if rows.size else None


def _overlapped(trace: Trace, main: DeviceFacts) -> float:
    """Share of rows that start before the row before them on the same stream ends; graph nodes may, they branch."""
    gpu = trace.gpu
    rows = main.activity.rows[gpu.graph_node[main.activity.rows] == 0]
    order = rows[np.lexsort((gpu.start_ns[rows], gpu.stream[rows]))]
    before, after = order[:-1], order[1:]
    bad = (gpu.stream[before] == gpu.stream[after]) & (gpu.start_ns[after] < gpu.end_ns[before])
    return float(bad.sum() / order.size) if order.size else 0.0


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


def _giants(trace: Trace) -> int:
    """Device rows ten times as long as everything the host recorded: a duration that wrapped below the hard limit."""
    host = trace.calls if len(trace.calls) else trace.ops
    if len(host) == 0 or len(trace.gpu) == 0:
        return 0
    span = int(host.end_ns.max() - host.start_ns.min())
    return int(((trace.gpu.end_ns - trace.gpu.start_ns) > max(10 * span, 10**9)).sum())


def _perturbation(trace: Trace) -> float | None:
    """Mean profiled step over mean unprofiled step of the same run, minus 1; means, since loader stalls are bimodal."""
    plain = trace.meta.unprofiled_step_ns
    if not plain or not trace.steps:
        return None
    return float(np.mean([step.duration_ns for step in trace.steps])) / plain - 1


MAX_LOST_FRACTION = 0.02
MAX_EARLY_FRACTION = 0.01
MAX_OVERLAPPED_FRACTION = 0.01
MAX_LAG_FLOOR_NS = 25_000
MAX_PERTURBATION = 0.05
REFUSING_PERTURBATION = 0.5
MAX_WHOLE_GRAPHS = 0.5
MAX_OVERHEAD = 0.05
MAX_OUTRUN = 0.1
MAX_STARTUP = 0.25
MIN_STEPS = 3
MIN_ROWS = 20


def checks(result: Quality) -> tuple[Check, ...]:
    """Give the checks that apply to this trace, with the value seen."""
    return tuple(check for check in (*_device_checks(result), *_run_checks(result)) if check.value is not None)


def _device_checks(q: Quality) -> tuple[Check, ...]:
    lost = q.lost_launch_fraction
    seen = f"{format_fraction(lost or 0)} of {q.n_launches:,} kernel launches"
    return (
        Check(
            id="launches.lost",
            ok=lost is None or lost <= MAX_LOST_FRACTION,
            value=lost,
            message=f"{seen} have no kernel in the trace" + ("" if q.n_device_rows else ": no device rows at all"),
        ),
        Check(
            id="device.unlinked",
            ok=(q.unlinked_fraction or 0) <= MAX_LOST_FRACTION,
            value=q.unlinked_fraction,
            message=f"{format_fraction(q.unlinked_fraction or 0)} of device rows have no launch call",
        ),
        Check(
            id="causality",
            ok=(q.early_fraction or 0) <= MAX_EARLY_FRACTION,
            value=q.early_fraction,
            message=f"{format_fraction(q.early_fraction or 0)} of device rows start before their launch call"
            + (": the clocks are apart, idle time has no cause" if (q.early_fraction or 0) > MAX_EARLY else ""),
        ),
        Check(
            id="stream.overlap",
            ok=(q.overlapped_fraction or 0) <= MAX_OVERLAPPED_FRACTION,
            value=q.overlapped_fraction,
            message=f"{format_fraction(q.overlapped_fraction or 0)} of rows overlap their predecessor on one stream",
        ),
        Check(
            id="lag.floor",
            ok=(q.lag_floor_ns or 0) <= MAX_LAG_FLOOR_NS,
            value=None if q.lag_floor_ns is None else float(q.lag_floor_ns),
            message="no launch onto an idle device shows how long one takes to start"
            if not q.lag_floor_ns
            else f"launch to start on an idle device takes {format_ns(q.lag_floor_ns)} or more"
            + (
                ""
                if q.lag_floor_ns <= MAX_LAG_FLOOR_NS
                else ": WSL2, Windows, a remote device or heavy instrumentation do that"
            ),
        ),
        Check(
            id="steps.outrun",
            ok=(q.outrun_fraction or 0) <= MAX_OUTRUN,
            value=q.outrun_fraction,
            message="the device keeps up with the marked steps"
            if (q.outrun_fraction or 0) <= MAX_OUTRUN
            else f"the host runs ahead: the device takes {format_ns(q.device_step_ns)} for the work of a step, the markers"
            " are the host's pace",
        ),
        Check(
            id="profiler.overhead",
            ok=(q.overhead_fraction or 0) <= MAX_OVERHEAD,
            value=q.overhead_fraction,
            message=f"{format_fraction(q.overhead_fraction or 0)} of the window the device idles while the profiler works"
            " on its own buffers",
        ),
        Check(
            id="graphs.whole",
            ok=(q.whole_graph_fraction or 0) <= MAX_WHOLE_GRAPHS,
            value=q.whole_graph_fraction,
            message=f"{format_fraction(q.whole_graph_fraction or 0)} of the window is CUDA graphs recorded as wholes:"
            " kernels, collectives and gaps inside are not known (profkit nsys --also graphs)",
        ),
    )


def _run_checks(q: Quality) -> tuple[Check, ...]:
    return (
        Check(
            id="times.impossible",
            ok=q.n_removed + q.n_giant == 0,
            value=float(q.n_removed + q.n_giant),
            message=f"{q.n_removed + q.n_giant:,} rows with zero timestamps or overflowed durations",
        ),
        Check(
            id="input.damaged",
            ok=q.n_damage == 0,
            value=float(q.n_damage > 0),
            message="parts of the file could not be read (--lenient)" if q.n_damage else "the file is whole",
        ),
        Check(
            id="steps.few",
            ok=q.n_steps_marked >= MIN_STEPS,
            value=float(q.n_steps_marked),
            message=f"{q.n_steps_marked} marked step{'' if q.n_steps_marked == 1 else 's'}"
            + ("" if q.n_steps_marked >= MIN_STEPS else f"; fewer than {MIN_STEPS} cannot show what varies"),
        ),
        Check(
            id="steps.startup",
            ok=(q.startup_fraction or 0) <= MAX_STARTUP,
            value=q.startup_fraction,
            message=f"{format_fraction(q.startup_fraction or 0)} of the window lies beside the steps found by their period"
            + (
                f" ({q.scope.n_steps}); --steps 0:{q.scope.n_steps} judges these alone"
                if (q.startup_fraction or 0) > MAX_STARTUP
                else ""
            ),
        ),
        Check(
            id="operators.none",
            ok=q.n_cpu_ops != 0,
            value=None if q.n_cpu_ops is None else float(q.n_cpu_ops),
            message=f"{q.n_cpu_ops or 0:,} operators at work in the window"
            + ("" if q.n_cpu_ops else ": what the CPU did in it was not recorded"),
        ),
        Check(
            id="content.tiny",
            ok=q.n_rows >= MIN_ROWS or q.n_steps_marked > 0,
            value=float(q.n_rows),
            message=f"{q.n_rows:,} row{'' if q.n_rows == 1 else 's'} of activity recorded"
            + (
                ""
                if q.n_rows >= MIN_ROWS or q.n_steps_marked
                else f": fewer than {MIN_ROWS}, and no step, show nothing of a job"
            ),
        ),
        Check(
            id="profiler.cost",
            ok=(q.perturbation or 0) <= MAX_PERTURBATION,
            value=q.perturbation,
            message=f"profiled steps take {1 + (q.perturbation or 0):.2f}x the unprofiled ones of the same run",
        ),
    )


REFUSING = frozenset(
    {"launches.lost", "times.impossible", "input.damaged", "content.tiny", "operators.none", "steps.startup"}
)
"""Checks whose failure makes idle time meaningless: the verdict is `inconclusive`."""


def judge(result: Quality) -> tuple[Finding, ...]:
    """Give `capture.quality` when a check fails."""
    failed = [check for check in checks(result) if not check.ok]
    if not failed:
        return ()
    refuses = any(check.id in REFUSING for check in failed)
    severity = Severity.HIGH if refuses else Severity.INFO
    return (
        Finding(
            id="capture.quality",
            title="the capture cannot carry a verdict" if refuses else "the capture limits how sure one can be",
            severity=severity,
            confidence=0.95,
            recoverable_ns=0,
            fraction=0.0,
            evidence=tuple(
                Evidence(statement=check.message, metric=check.id, value=check.value or 0.0, unit="")
                for check in failed
            ),
            fix="capture again: wait 10 steps, warm up 5, record 12, stop before the job's end"
            if not result.scope.is_nsys
            else "record again: a window of steady steps, each in an NVTX range named step N, well before the job's end",
            next_tools=(
                recapture(
                    result.scope,
                    "get a capture that can carry a verdict",
                    "all checks of `profkit info` pass",
                ),
            ),
        ),
    )


def confidence_cap(result: Quality, *, without: frozenset[str] = frozenset()) -> float:
    """Give the most a finding may claim, given the checks that failed (chosen: an ordinal ladder, not calibrated).

    `without`: checks that do not matter to what is claimed; lateness at 80 collectives needs no three steps.
    """
    caps = {
        "launches.lost": 0.2,
        "times.impossible": 0.4,
        "input.damaged": 0.4,
        "content.tiny": 0.2,
        "operators.none": 0.2,
        "graphs.whole": 0.4,
        "causality": 0.5,
        "device.unlinked": 0.6,
        "steps.few": 0.6,
        "stream.overlap": 0.7,
        "lag.floor": 0.7,
        "profiler.overhead": 0.7,
        "steps.startup": 0.4,
        "steps.outrun": 0.6,
        "profiler.cost": 0.7 if (result.perturbation or 0) <= REFUSING_PERTURBATION else 0.6,
    }
    return min((caps[check.id] for check in checks(result) if not check.ok and check.id not in without), default=1.0)


def present(result: Quality) -> Section:
    """Show every check with its value."""
    rows = tuple((check.id, "ok" if check.ok else "FAILS", check.message) for check in checks(result))
    return Section(
        analyzer="quality",
        title="capture quality",
        values={
            "confidence_cap": confidence_cap(result),
            "n_launches_during_capture": result.n_during_capture,
        },
        tables=(TableView(title="checks", headers=("check", "", "seen"), units=("text",) * 3, rows=rows),),
    )


EXPLANATIONS = (
    Explanation(
        id="capture.quality",
        title="the capture limits or forbids a verdict",
        meaning="Traces can be silently incomplete or impossible: kernels dropped at the start of a session, rows that"
        " begin before their launch, durations that wrapped, a single step that shows nothing of what varies.",
        measured="Launch calls in the window without a device row of their correlation (stream capture excluded, last"
        " tenth ignored); device rows without a launch call; rows that start before their call; rows of one stream that"
        " overlap; zero timestamps and overflowed durations; marked steps; p5 of launch-to-start on a drained device;"
        " mean profiled over mean unprofiled step, if the capture recorded unprofiled ones; the share of the window in"
        " CUDA graphs of which nsys recorded the whole alone; idle time under the profiler's own rows (buffers flushed,"
        " requested); how much further the device is behind the host at the end of the steps than at their start.",
        thresholds=(
            "launches lost <= 2 %, unlinked rows <= 2 %, early rows <= 1 %: chosen; sound reference traces show 0",
            "overlapping rows <= 1 %: chosen; healthy reference traces show 0 outside CUDA graphs",
            "lag floor <= 25 us: bare metal shows 4-20 us, WSL2 42-47 us",
            "at least 20 rows of activity, or a marked step: chosen",
            "profiler cost <= 5 %, >= 3 marked steps: chosen",
            "the device gains at most 10 % of the window in being behind: chosen; sound reference traces show up to 6 %",
            "idle under the profiler's own work <= 5 %: chosen, as its cost; reference traces show under 0.1 %",
            "CUDA graphs as wholes <= half the window: chosen; above, the step's largest part is not known",
        ),
        lookalikes=(
            "launches recorded into a CUDA graph run nothing: they are not lost",
            "kernels launched before the profiler started have no launch call: the first step only",
            "programmatic dependent launch on Hopper lets rows of one stream overlap on purpose",
        ),
        proof="Capture again as below; the check passes, and the verdict stays or changes.",
        fixes=(
            "profkit capture --baseline 10 --warmup 5 --steps 12 -- python train.py",
            "or paste this into the training script:\n" + RECAPTURE,
        ),
    ),
)

ANALYZER = Analyzer(
    name="quality",
    question="can this capture be trusted?",
    needs="any trace",
    measure=measure,
    judge=judge,
    present=present,
    explanations=EXPLANATIONS,
)
