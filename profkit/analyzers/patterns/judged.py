"""A finding for each pattern that takes enough of the window."""

from __future__ import annotations

from typing import Final

from profkit.analyzers.base import Scope
from profkit.analyzers.patterns.measured import Patterns, Taken
from profkit.analyzers.tools import after_change, operators, recapture
from profkit.findings.kernels import UNUSED_DEVICE
from profkit.findings.patterns import CONVERSIONS, GC, GRAPH_BREAKS, NO_GRADIENT, RECOMPILE
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, NextTool
from profkit.units import format_count, format_fraction, format_ns

_PAUSE: Final = 0.9
_WORK: Final = 0.8
_ONE_HAS_MOST: Final = 0.6
_ONCE: Final = 0.5
_OF_BATCH: Final = 0.5
"""Confidences: a pause costs all its time, work that a setting spares may leave some; where one pause has more than half
of the time, these steps do not show how often such a one comes; what is in one step may never come again; what needs no gradient may be of the batch (chosen)."""


def judge(result: Patterns) -> tuple[Finding, ...]:
    """A finding for each that takes its kind's least share of the window."""
    patterns = tuple(
        _found(result.scope, taken, result.cored)
        for taken in result.found
        if result.scope.fraction(taken.cost_ns) >= taken.pattern.kind.limit("window")
    )
    return (*patterns, *_idle_device(result.scope, result.idle_device, result.computing))


def _found(scope: Scope, taken: Taken, cored: float) -> Finding:
    kind = taken.pattern.kind
    fraction = scope.fraction(taken.cost_ns)
    over = _over(scope, taken)
    several, spent = taken.pattern.what[1], f"{format_ns(scope.per_step(taken.cost_ns))} {scope.each}"
    statement, most_ns = f"{several} take {spent}", taken.most_ns
    if kind.is_estimated and taken.stays_ns < taken.cost_ns:
        most_ns = taken.cost_ns
    if scope.is_cpu and taken.pattern.is_pause:
        statement = f"{several} stop the step for {spent}"
    elif not scope.is_cpu and not taken.pattern.spares_work:
        statement = f"the GPU idles {spent} because of {several}"
    return kind.found(
        title=taken.title,
        proof=taken.proof,
        fraction=fraction,
        confidence=_ONCE if over else _confidence(taken),
        recoverable_ns=scope.per_step(round((taken.cost_ns - taken.stays_ns) * cored)),
        most_recoverable_ns=None if most_ns is None else scope.per_step(round(most_ns * cored)),
        evidence=(
            Evidence(
                f"{statement} ({format_fraction(fraction)} of the window)",
                f"patterns.{kind.id}.cost_ns",
                float(taken.cost_ns),
                "ns",
                expected=f"< {format_fraction(kind.limit('window'))} of the window",
                span_ns=taken.longest_span_ns,
            ),
            Evidence(_counted(scope, taken), f"patterns.{kind.id}.n", float(taken.n), "count"),
        ),
        fix=f"record again after warm-up: this is in {over} only" if over and kind is RECOMPILE else taken.fix,
        next_tools=(_next(scope, taken, is_over=bool(over)),),
    )


def _next(scope: Scope, taken: Taken, *, is_over: bool) -> NextTool:
    """What to run next: where all of it may be over, the steps after it; else the same capture with the change."""
    kind = taken.pattern.kind
    flags = "--shapes" if kind is CONVERSIONS else ""
    if is_over:
        _, several = taken.pattern.what
        return recapture(scope, f"do {several} come back in later steps?", "the same finding in other steps")
    if kind is RECOMPILE:
        return NextTool(
            name="torch.compile",
            line=scope.command.given("TORCH_LOGS=recompiles"),
            purpose="which guard fails at each compilation, and for which value?",
            look_for="the same guard again and again: a size, a number of Python, a type",
        )
    if kind is GRAPH_BREAKS:
        return NextTool(
            name="torch.compile",
            line=scope.command.given("TORCH_LOGS=graph_breaks"),
            purpose="which lines of the model break the graph, and why?",
            look_for="a line of your own code with each break; the reason names the call that cannot be traced",
        )
    return after_change(scope, "this finding gone", flags=flags)


def _over(scope: Scope, taken: Taken) -> str:
    """Where all of it is, if it may never come again: in one step, or, as start-up is, in the first ones; else ""."""
    kind = taken.pattern.kind
    if scope.n_steps <= 1 or kind not in (GC, RECOMPILE):
        return ""
    if taken.n_steps < RECOMPILE.limit("steps"):
        return "one step"
    return "the first steps" if kind is RECOMPILE and 2 * (taken.last_step + 1) <= scope.n_steps else ""


def _confidence(taken: Taken) -> float:
    if not taken.pattern.is_pause:
        return _OF_BATCH if taken.pattern.kind is NO_GRADIENT else _WORK
    is_rare = taken.pattern.kind is GC and taken.n > 1 and 2 * taken.longest_ns > taken.cost_ns
    return _ONE_HAS_MOST if is_rare else _PAUSE


def _counted(scope: Scope, taken: Taken) -> str:
    has_several = scope.has_steps and scope.n_steps > 1
    in_each = has_several and taken.n_steps == scope.n_steps
    what = taken.pattern.what[taken.n != (scope.n_steps if in_each else 1)]
    where = f", in {taken.n_steps} of {scope.n_steps} steps" if has_several else " in the window"
    counted = f"{format_count(taken.n / scope.n_steps)} {what} per step" if in_each else f"{taken.n:,} {what}{where}"
    most = f"; most of the time is in {taken.name}" if taken.name else ""
    remains = f"; {taken.pattern.remains}" if taken.stays_ns and taken.pattern.remains else ""
    return f"{counted}; the longest takes {format_ns(taken.longest_ns)}{most}{remains}"


def present(result: Patterns) -> Section:
    """Show all that were found, also those below their limits."""
    rows = tuple((taken.pattern.kind.title, taken.n, taken.cost_ns) for taken in result.found)
    return Section(
        analyzer="patterns",
        title="pauses, and work that a setting may spare",
        values={taken.pattern.kind.id: taken.cost_ns for taken in result.found},
        tables=(TableView(title="found", headers=("what", "count", "takes"), units=("text", "count", "ns"), rows=rows),)
        if rows
        else (),
    )


def _idle_device(scope: Scope, device: str, computing: float) -> tuple[Finding, ...]:
    """`device.unused`, where operators of the CPU take a good part (0-1) of the window."""
    if not device or computing < UNUSED_DEVICE.limit("compute"):
        return ()
    taken = f"operators on the CPU take {format_fraction(computing)} of the window"
    said = f"the file lists {device} and holds no call to it; {taken}"
    why = "change that, then record again: how long is the step on the GPU?"
    return (
        UNUSED_DEVICE.found(
            title=f"all work is on the CPU, while {device} stands idle",
            confidence=0.8,
            recoverable_ns=0,
            fraction=computing,
            evidence=(Evidence(said, "patterns.computing_fraction", computing, "fraction"),),
            fix=UNUSED_DEVICE.fixes[0],
            next_tools=(operators(scope, why, "kernels in the trace; profkit compare OLD NEW says what it gave"),),
        ),
    )
