"""The gate: each check with its threshold, and what its failure leaves of confidence (docs/method.md)."""

from __future__ import annotations

from profkit.analyzers.quality.measured import Quality
from profkit.model.rank_report import Check
from profkit.timeline.idle import MAX_EARLY
from profkit.units import format_fraction, format_ns

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


def _share(check_id: str, share: float | None, most: float, what: str) -> Check:
    """Give the check that a share stays small; None: there is nothing to count."""
    return Check(id=check_id, ok=(share or 0) <= most, value=share, message=f"{format_fraction(share or 0)} {what}")


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
        _share("device.unlinked", q.unlinked_fraction, MAX_LOST_FRACTION, "of device rows have no launch call"),
        _share(
            "causality",
            q.early_fraction,
            MAX_EARLY_FRACTION,
            "of device rows start before their launch call"
            + (
                ": the clocks disagree, so the cause of idle time is unknown"
                if (q.early_fraction or 0) > MAX_EARLY
                else ""
            ),
        ),
        _share(
            "stream.overlap",
            q.overlapped_fraction,
            MAX_OVERLAPPED_FRACTION,
            "of rows overlap the row before them on the same stream",
        ),
        Check(
            id="lag.floor",
            ok=(q.lag_floor_ns or 0) <= MAX_LAG_FLOOR_NS,
            value=None if q.lag_floor_ns is None else float(q.lag_floor_ns),
            message="launch latency could not be measured"
            if not q.lag_floor_ns
            else f"launch latency is at least {format_ns(q.lag_floor_ns)}"
            + (
                ""
                if q.lag_floor_ns <= MAX_LAG_FLOOR_NS
                else ", as with WSL2, Windows, a remote device or heavy instrumentation"
            ),
        ),
        Check(
            id="steps.outrun",
            ok=(q.outrun_fraction or 0) <= MAX_OUTRUN,
            value=q.outrun_fraction,
            message="the GPU keeps up with the marked steps"
            if (q.outrun_fraction or 0) <= MAX_OUTRUN
            else f"the host runs ahead: the GPU takes {format_ns(q.device_step_ns)} for the work of a step, but the step"
            " markers show the pace of the host",
        ),
        _share(
            "profiler.overhead",
            q.overhead_fraction,
            MAX_OVERHEAD,
            "of the window is idle time in which the profiler handles its own buffers",
        ),
        _share(
            "graphs.whole",
            q.whole_graph_fraction,
            MAX_WHOLE_GRAPHS,
            "of the window is in CUDA graphs without their kernels: collectives and gaps inside them are unknown"
            " (profkit nsys --also graphs records them)",
        ),
    )


def _run_checks(q: Quality) -> tuple[Check, ...]:
    n = q.scope.n_steps
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
            + ("" if q.n_steps_marked >= MIN_STEPS else ": variation unknown"),
        ),
        _share(
            "steps.startup",
            q.startup_fraction,
            MAX_STARTUP,
            "of the window is outside the steps found by their period"
            + (f" ({n} steps); --steps 0:{n} judges these alone" if (q.startup_fraction or 0) > MAX_STARTUP else ""),
        ),
        Check(
            id="operators.none",
            ok=q.n_cpu_ops != 0,
            value=None if q.n_cpu_ops is None else float(q.n_cpu_ops),
            message=f"{q.n_cpu_ops or 0:,} operators ran in the window"
            + ("" if q.n_cpu_ops else ": the work of the CPU was not recorded"),
        ),
        Check(
            id="content.tiny",
            ok=q.n_rows >= MIN_ROWS or q.n_steps_marked > 0,
            value=float(q.n_rows),
            message=f"{q.n_rows:,} row{'' if q.n_rows == 1 else 's'} of activity recorded"
            + (
                ""
                if q.n_rows >= MIN_ROWS or q.n_steps_marked
                else f": too little for a verdict (at least {MIN_ROWS} rows, or a marked step, are needed)"
            ),
        ),
        Check(
            id="profiler.cost",
            ok=(q.perturbation or 0) <= MAX_PERTURBATION,
            value=q.perturbation,
            message=f"profiled steps take {1 + (q.perturbation or 0):.2f}x as long as unprofiled steps of the same run",
        ),
    )


REFUSING = frozenset(
    {"launches.lost", "times.impossible", "input.damaged", "content.tiny", "operators.none", "steps.startup"}
)
"""Checks whose failure makes idle time meaningless: the verdict is `inconclusive`."""


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
