"""The gate: each check with its threshold, what its failure leaves of confidence, and `capture.quality` (docs/method.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.analyzers.base import Analyzer, Vendor, sampled_evidence
from profkit.analyzers.quality.measured import Quality, measure
from profkit.analyzers.tools import recapture
from profkit.findings import capture
from profkit.findings.capture import (
    CHECKS,
    COST,
    HIGH_COST_CAP,
    MOST_IS_WORK,
    MUCH_WORK_NS,
    QUALITY,
    REFUSING,
    CheckKind,
)
from profkit.model.documents.rank_report import Check, Section, TableView
from profkit.model.finding import Evidence, Finding, Severity
from profkit.units import format_fraction, format_ns

_MAKERS: Final = {Vendor.NVIDIA: "NVIDIA's", Vendor.AMD: "AMD's", Vendor.INTEL: "Intel's"}
_MOST_NAMED: Final = 4
_MANY_QUEUED: Final = 0.1
"""Of the launches counted. Chosen: so many are left out of the count of lost ones unsaid."""
_INSIDE: Final = 0.8
"""Chosen: of two operators that take that nearly the same time, one calls the other."""
_WORTH_A_NAME: Final = 0.01
"""Chosen: what has less than a percent of the window explains nothing."""
_WORTH_A_HEADLINE: Final = 0.1
"""Of the window. Chosen: less is no account of the time."""
OS_SHARE: Final = 0.05
"""Chosen: of the window, from which calls of the operating system are named where no operators were recorded."""


def checks(result: Quality) -> tuple[Check, ...]:
    """The checks that apply to this trace, with the value seen."""
    return tuple(check for check in (*_device_checks(result), *_run_checks(result)) if check.value is not None)


def _limit(kind: CheckKind) -> float:
    return QUALITY.limit(kind.id)


def _at_most(kind: CheckKind, value: float | None, message: str, failing: str = "") -> Check:
    """The check that a number stays small, and what is said as well where it does not; None: there is nothing to count."""
    ok = (value or 0) <= _limit(kind)
    return Check(id=kind.id, ok=ok, value=value, message=message if ok else message + failing)


def _share(kind: CheckKind, share: float | None, what: str, failing: str = "") -> Check:
    """The check that a share stays small."""
    return _at_most(kind, share, f"{format_fraction(share or 0)} {what}", failing)


def _device_checks(q: Quality) -> tuple[Check, ...]:
    lost = q.lost_launch_fraction
    seen = f"{format_fraction(lost or 0)} of {q.n_launches:,} kernel launches"
    return (
        _at_most(
            capture.LOST,
            lost,
            f"{seen} have no kernel in the trace" + ("" if q.n_device_rows else ": no device rows at all"),
        ),
        _share(
            capture.UNLINKED,
            q.unlinked_fraction,
            "of device rows have no launch call"
            + (f", beside {q.n_before:,} launched before the capture began" if q.n_before else ""),
        ),
        _share(
            capture.EARLY,
            q.early_fraction,
            "of device rows start before their launch call"
            + (
                f", by up to {format_ns(q.early_ns)}: the clocks disagree, so the cause of idle times below"
                f" {format_ns(QUALITY.limit('clock_error') * q.early_ns)} is unknown"
                if (q.early_fraction or 0) > QUALITY.limit("no_cause")
                else ""
            ),
        ),
        _share(
            capture.OVERLAPPED,
            q.overlapped_fraction,
            "of the time of rows overlaps the row before them on the same stream",
        ),
        _at_most(
            capture.LAG_FLOOR,
            None if q.lag_floor_ns is None else float(q.lag_floor_ns),
            f"launch latency is at least {format_ns(q.lag_floor_ns)}"
            if q.lag_floor_ns
            else "launch latency could not be measured",
            ", as with WSL2, Windows, a remote device or heavy instrumentation",
        ),
        _at_most(capture.OUTRUN, q.outrun_fraction, _pace(q)),
        _share(
            capture.OVERHEAD,
            q.overhead_fraction,
            "of the window is idle time in which the profiler handles its own buffers",
        ),
        _share(
            capture.WHOLE_GRAPHS,
            q.whole_graph_fraction,
            "of the window is in CUDA graphs without their kernels: collectives and gaps inside them are unknown"
            " (profkit nsys --also graphs records them)",
        ),
    )


def _pace(q: Quality) -> str:
    """Whether the marked steps show the pace of the device as well."""
    if (q.outrun_fraction or 0) <= _limit(capture.OUTRUN):
        return "the GPU keeps up with the marked steps"
    work = f"the GPU takes {format_ns(q.device_step_ns)} for the work of a step"
    if q.is_catching_up:
        return f"in every marked step the GPU also works on what was launched before: {work}"
    return f"the host runs ahead: {work}, but the step markers show the pace of the host"


def _run_checks(q: Quality) -> tuple[Check, ...]:
    n = q.scope.n_steps
    least, least_rows = _limit(capture.FEW_STEPS), _limit(capture.TINY)
    is_full = q.busy_ns >= max(MOST_IS_WORK * q.scope.window_ns, MUCH_WORK_NS)
    is_tiny = q.n_rows < least_rows and not (q.is_marked and q.n_steps) and not is_full
    marked = "marked " * q.is_marked
    return (
        _at_most(
            capture.IMPOSSIBLE,
            float(q.n_removed + q.n_giant),
            f"{q.n_removed + q.n_giant:,} rows with zero timestamps or overflowed durations",
        ),
        _at_most(
            capture.DAMAGED,
            float(q.n_damage > 0),
            "parts of the file could not be read (--lenient)" if q.n_damage else "the file is whole",
        ),
        Check(
            id=capture.FEW_STEPS.id,
            ok=q.n_steps >= least,
            value=float(q.n_steps),
            message=f"{q.n_steps or 'no'} {marked}step{'' if q.n_steps == 1 else 's'}{'' if q.n_steps else ' found'}"
            + ("" if q.n_steps >= least else ": variation unknown"),
        ),
        _share(
            capture.STARTUP,
            q.startup_fraction,
            "of the window is outside the steps found by their period",
            f" ({n} steps); --step-range 0:{n} judges these alone",
        ),
        _share(
            capture.FIRST_BATCH,
            q.first_batch_fraction,
            f"of the time is waiting for the first batch ({format_ns(q.first_batch_ns or 0)}), before the window: it holds"
            " the start of the loader; what later batches take is not known",
        ),
        _share(
            capture.FIRST_PASS,
            q.first_pass_fraction,
            "of the GPU's idle time is in calls that a first pass makes (allocation, module loading, event waits of"
            " benchmarks)",
            ": this may be warm-up",
        ),
        Check(
            id=capture.NO_OPERATORS.id,
            ok=q.n_cpu_ops is None or q.n_cpu_ops >= _limit(capture.NO_OPERATORS),
            value=None if q.n_cpu_ops is None else float(q.n_cpu_ops),
            message=f"{q.n_cpu_ops:,} operators ran in the window"
            if q.n_cpu_ops
            else "no operators were recorded in the window: the work of the CPU is not known",
        ),
        _at_most(
            capture.UNRECORDED,
            1.0 if q.unrecorded else None,
            f"the program ran on {q.unrecorded}, and the file holds nothing of its work",
        ),
        _share(
            capture.UNSEEN,
            q.unseen_fraction,
            "of the window is no wait for input, and no operators were recorded: the work of the CPU is not known",
        ),
        Check(
            id=capture.TINY.id,
            ok=not is_tiny,
            value=float(q.n_rows),
            message=f"{q.n_rows:,} row{'' if q.n_rows == 1 else 's'} of activity recorded"
            + (
                f": too little for a verdict (at least {least_rows:g} rows, or a marked step, are needed)"
                if is_tiny
                else ""
            ),
        ),
        _at_most(
            capture.COST,
            q.perturbation,
            f"the profiler makes the steps {1 + (q.perturbation or 0):.2f}x as long",
            f"{_by_clock(q)}: operator overhead is smaller without it",
        ),
        _share(
            capture.STACKED,
            q.stacked_fraction,
            "of the window is the host's own time, recorded with Python stacks, which make it longer",
            ": by how much is not known (profkit capture times steps without a profiler)",
        ),
        Check(
            id=capture.UNREAD.id,
            ok=(q.n_read or 0) >= _limit(capture.UNREAD),
            value=None if q.n_read is None else float(q.n_read),
            message=f"{q.n_read or 'no'} public captures of {_MAKERS[q.scope.vendor]} devices by this tool were read beside"
            " profkit: confidence rests on them (docs/field.md)",
        ),
    )


def _by_clock(q: Quality) -> str:
    """The two times behind the profiler's cost, where the recorded steps of the trace are shown as another number."""
    if q.plain_ns is None or q.profiled_ns is None or format_ns(q.profiled_ns) == format_ns(q.step_ns or 0):
        return ""
    return f", {format_ns(q.profiled_ns)} for {format_ns(q.plain_ns)} by the clock of the capture"


def confidence_cap(result: Quality, *, without: frozenset[str] = frozenset()) -> float:
    """The most a finding may claim, given the checks that failed.

    `without`: checks that do not matter to what is claimed; lateness at 80 collectives needs no three steps.
    """
    failed = [CHECKS[check.id] for check in checks(result) if not check.ok and check.id not in without]
    return min((_cap(kind, result.perturbation or 0) for kind in failed), default=1.0)


def _cap(kind: CheckKind, cost: float) -> float:
    """The cap of a failed check; of the profiler's cost no more than the part of a recorded step that is the run's own."""
    if kind is not COST:
        return kind.cap
    return min(HIGH_COST_CAP if cost > QUALITY.limit("high_cost") else kind.cap, 1 / (1 + cost))


def judge(result: Quality) -> tuple[Finding, ...]:
    """The finding `capture.quality` when a check fails."""
    failed = [check for check in checks(result) if not check.ok]
    if not failed:
        return ()
    refuses = any(check.id in REFUSING for check in failed)
    return (
        QUALITY.found(
            title="the trace does not allow a verdict" if refuses else "the trace limits the confidence",
            severity=Severity.HIGH if refuses else Severity.INFO,
            confidence=0.95,
            recoverable_ns=0,
            fraction=0.0,
            evidence=tuple(
                Evidence(statement=check.message, metric=check.id, value=check.value or 0.0, unit="")
                for check in failed
            )
            + _instead(result, is_refused=refuses),
            fix=result.scope.traits.how_to_be_steady,
            next_tools=(
                recapture(result.scope, "record a longer trace of steady steps", "all checks of `profkit info` pass"),
            ),
        ),
    )


def _instead(result: Quality, *, is_refused: bool) -> tuple[Evidence, ...]:
    """What ranges and calls say where no operators were recorded, and what the host did where there is no verdict."""
    window_ns = result.scope.window_ns
    said = []
    if is_refused and (named := _shares(_apart(result.busy), window_ns)):
        said.append(f"of the window, the host spends {named}")
    if result.ranges and window_ns:
        said.append(f"of the window, the training thread spends {_shares(result.ranges, window_ns)} (by its ranges)")
    in_system = sum(spent for _, spent in result.os_waits)
    if in_system >= OS_SHARE * window_ns > 0:
        said.append(
            f"of the window, beside waits for input, it spends {_shares(result.os_waits, window_ns)}: calls of the"
            " operating system"
        )
    return (
        *(Evidence.count("ranges", len(result.ranges), one) for one in said),
        *sampled_evidence(result.samples, is_cpu=True, when="beside waits for input"),
    )


def notes(result: Quality) -> tuple[str, ...]:
    """What one should know of a recording that ended before the device was done."""
    said = f"{result.n_queued:,} launches had not begun when the recording ended: their work is not in these numbers"
    return (said,) if result.n_queued > _MANY_QUEUED * result.n_launches else ()


def meanwhile(result: Quality) -> str:
    """What the host does most of the time, where a check refuses and that is known; "" else."""
    name, spent = result.busy[0] if result.busy else ("", 0)
    share = result.scope.fraction(spent)
    return f"meanwhile the host spends {format_fraction(share)} in {name}" if share >= _WORTH_A_HEADLINE else ""


def _apart(busy: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Operators and calls without those that take nearly as long as one before: they are inside it, or around it."""
    kept: list[tuple[str, int]] = []
    for name, spent in busy:
        if not any(spent >= _INSIDE * other for _, other in kept):
            kept.append((name, spent))
    return kept


def _shares(parts: Sequence[tuple[str, int]], window_ns: int) -> str:
    shares = [(name, spent / window_ns) for name, spent in parts[:_MOST_NAMED]]
    return ", ".join(f"{format_fraction(share)} in {name}" for name, share in shares if share >= _WORTH_A_NAME)


def present(result: Quality) -> Section:
    """Show every check with its value."""
    rows = tuple((check.id, "ok" if check.ok else "FAILS", check.message) for check in checks(result))
    return Section(
        title="capture quality",
        values={"confidence_cap": confidence_cap(result), "n_launches_during_capture": result.n_during_capture},
        tables=(TableView.of("checks", {"check": "text", "": "text", "seen": "text"}, rows),),
    )


ANALYZER = Analyzer(
    name="quality",
    question="can this trace be trusted?",
    needs="any trace",
    measure=measure,
    judge=judge,
    present=present,
)
