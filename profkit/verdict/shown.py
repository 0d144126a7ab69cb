"""What stands in a verdict beside its class: headline, ceiling, caveats, findings, what is ruled out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from profkit.findings import KINDS, kind_of, shown_share
from profkit.findings.capture import QUALITY
from profkit.findings.host import STALL
from profkit.findings.kernels import LINE_SHARE
from profkit.findings.parts import PARTS
from profkit.model.budget import IDLE_PARTS, WORK_PARTS, Budget, words
from profkit.model.documents.report import Bottleneck, speedup
from profkit.model.finding import SEVERITY_FROM, Evidence, Finding, Severity
from profkit.units import format_fraction
from profkit.verdict.case import HEALTHY_MATRIX, HEALTHY_WORK, MANY_GAPS, Case

LEAVE_IT: Final = "leave it alone: the next gain takes a better algorithm, a smaller model or lower precision"
LATER: Final = "find out what takes longer late in the run: record it there as well, and compare the two"
CHEAPER_WORK: Final = "make the work itself cheaper, the longest part first: lower precision, fusion, less of it"
FASTER_PRODUCTS: Final = (
    "find out what makes these products slow: numbers below 1.2e-38 (does torch.set_flush_denormal(True) right behind"
    " import torch help?), another number format, or an operand that lies in memory in an odd order"
)
FEWER_KERNELS: Final = "use fewer and longer kernels: fuse them, or give each more work (a larger batch)"
MAX_HEADLINE: Final = 3
SAID: Final = 0.8
"""Of the step's time at a line, what a finding names there, from which it is not said twice. Chosen: as in findings."""


def of_mean_step(finding: Finding, *, step_ns: int | None, n_steps: int, window_ns: int) -> Finding:
    """A finding with what it could give of the mean step, as the ceiling has it, instead of the window's per step.

    The two differ where steps are marked and do not touch. Without steps the finding stays as it is.
    """
    if not step_ns or not window_ns:
        return finding
    return finding.worth(round(finding.recoverable_ns * step_ns * n_steps / window_ns))


def capped(findings: Iterable[Finding], cap: float) -> tuple[Finding, ...]:
    """Findings with no more confidence than the recorded steps allow; their faults, and what the run shows, aside."""
    return tuple(
        finding
        if finding.id == QUALITY.id or kind_of(finding.id).is_of_run
        else replace(finding, confidence=min(finding.confidence, cap))
        for finding in findings
    )


def first(findings: Sequence[Finding], case: Case) -> tuple[Finding, ...]:
    """The findings of the headline."""
    return capped(findings[:MAX_HEADLINE], case.confidence_cap)


def headline(case: Case, top: Finding) -> str:
    """The largest cause with its share; of a late rank alone, for the others wait longer than a fix saves."""
    if kind_of(top.id).bottleneck is Bottleneck.STRAGGLER:
        return top.title
    share = shown_share(top, case.budget if case.is_alone else None)
    of = "run" if kind_of(top.id).is_of_run else "window"
    return f"{top.title}: {format_fraction(share)} of the {of}"


def beside_work(case: Case, top: Finding) -> str:
    """The largest cause where the work is the bottleneck; one that is no work comes second, with its share."""
    return top.title if kind_of(top.id).bottleneck is None else f"then {headline(case, top)}"


def ceiling(case: Case, top: Finding) -> float | None:
    """T / (T - R), of the mean step; without steps, of the window."""
    total_ns = case.step_ns or case.budget.window_ns
    return speedup(1 - top.recoverable_ns / total_ns if total_ns else 0.0)


def of_work(case: Case) -> list[Finding]:
    """The findings on the work itself."""
    return [finding for finding in case.findings if kind_of(finding.id).is_about_work]


def line(case: Case) -> str:
    """Which line of the user's has most of the work, with its share of the step; "" where none has much."""
    one = case.busiest
    return f"{format_fraction(one.share)} of the step is at {one.place.name}" if one is not None else ""


def with_line(finding: Finding, case: Case) -> Finding:
    """A finding on the work with that line as its last evidence, unless its own first place says as much."""
    one = case.busiest
    if one is None or finding.has(LINE_SHARE):
        return finding
    said = (each.share * finding.fraction for each in finding.places if each.place.name == one.place.name)
    if sum(said) >= SAID * one.share:
        return finding
    text = f": {one.place.text}" if one.place.text else ""
    evidence = Evidence.share(LINE_SHARE, one.share, line(case) + text)
    return replace(finding, evidence=(*finding.evidence, evidence))


def fix_of_work(case: Case, *, may_be_left: bool) -> str:
    """What is to be done where nothing but the work takes time: nothing, if it may be left and is at its best."""
    if case.slows:
        return LATER
    if case.turnaround_fraction >= MANY_GAPS:
        return FEWER_KERNELS
    is_steady = case.budget.fraction("compute") >= HEALTHY_WORK and not any(f.id == STALL.id for f in case.findings)
    # how far from the roof other kernels are, nobody knows
    is_matrix = (case.matrix_share or 0) >= HEALTHY_MATRIX
    return LEAVE_IT if may_be_left and is_steady and is_matrix else CHEAPER_WORK


def largest_part(budget: Budget) -> str:
    """What takes most of a window."""
    shares = {
        **{words(name): budget.shown(name) for name in WORK_PARTS},
        "idle time of several causes": budget.shown(*IDLE_PARTS),
    }
    label = max(shares, key=lambda label: shares[label])
    return f"{format_fraction(shares[label])} of the window is {label}"


def caveats(case: Case, top: Finding | None) -> tuple[str, ...]:
    """What one should know before believing the verdict."""
    of = (
        "" if case.is_alone or case.rank is None else f"on rank {case.rank}: "
    )  # of all ranks' other numbers are others
    said = [*case.failed_checks, *(of + note for note in case.notes)]
    if case.apart >= SEVERITY_FROM[Severity.MEDIUM]:
        share = format_fraction(case.apart)
        said.insert(0, f"{of}{share} of the window is start-up or single stalls: the verdict is on the rest")
    if case.turnaround_fraction >= MANY_GAPS:
        share = format_fraction(case.turnaround_fraction)
        said.append(
            f"{of}{share} of the window is gaps between operations that were queued in time: many short kernels"
        )
    if case.is_cpu and not case.budget.idle_unknown:  # that is where operators were recorded
        said.append("CPU trace: dispatch is estimated")
    if case.step_ns is None:
        said.append("no steps found: all numbers are for the whole recorded window")
    if top is not None and case.is_alone and kind_of(top.id).alone_caveat:
        said.append(kind_of(top.id).alone_caveat)
    said.append("one run shows where time goes, not whether a change helps")
    return tuple(dict.fromkeys(said))


def ruled_out(
    case: Case, bottleneck: Bottleneck, *, late_phases: Collection[str | None] = (), late: Budget | None = None
) -> tuple[str, ...]:
    """What was looked at and is below its threshold, with its share; nothing that a late rank has in these phases.

    With the late rank's budget, what is below on it too, and its share, as the bar has it.
    """
    budgets = (case.budget,) if late is None else (late, case.budget)
    found = {kind_of(finding.id).bottleneck for finding in case.findings} - {None}
    return tuple(
        f"{words(*part.budget, is_cpu=case.is_cpu)} ({format_fraction(budgets[0].shown(*part.budget))})"
        for part in PARTS
        if part.analyzer not in case.skipped | case.not_ruled_out
        and not (part.late_phase and part.late_phase in late_phases)
        and not {kind.bottleneck for kind in KINDS.values() if kind.part is part} & (found | {bottleneck})
        and max(sum(map(each.fraction, part.budget)) for each in budgets) < SEVERITY_FROM[Severity.MEDIUM]
    )
