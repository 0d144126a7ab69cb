"""Findings to one answer: rank causes by what removing them could give, drop what another explains, choose a tool.

Logic: docs/method.md, section 4. Causes are ranked by their own confidence;
what is shown is capped by the quality of the capture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import recapture, system_timeline
from profkit.model.budget import Budget
from profkit.model.finding import ONCE, Finding, NextTool, Severity
from profkit.model.report import Bottleneck, Verdict
from profkit.units import format_fraction

BOTTLENECK_OF: Final = {
    "input.starved": Bottleneck.DATA,
    "h2d.exposed": Bottleneck.COPY,
    "d2h.exposed": Bottleneck.COPY,
    "host.sync": Bottleneck.SYNC,
    "host.launch_bound": Bottleneck.OVERHEAD,
    "comm.exposed": Bottleneck.COMM,
    "memory.pressure": Bottleneck.MEMORY,
    "straggler.rank": Bottleneck.STRAGGLER,
    "rank0.work": Bottleneck.STRAGGLER,
    "token.skew": Bottleneck.STRAGGLER,
    "comm.skew": Bottleneck.COMM,
    "comm.bandwidth": Bottleneck.COMM,
    "pipeline.bubble": Bottleneck.COMM,
    "collective.extra": Bottleneck.COMM,
}
DOMINANT: Final = 0.15
"""A cause with this share of the window is the bottleneck, whatever the rest does (severity "high")."""
MOSTLY_WORK: Final = 0.5
"""Below that share of compute one cannot call a trace kernel-bound."""
NEARLY_ALL_WORK: Final = 0.75
"""From that share of compute on, the work is the bottleneck, and other causes are findings beside it (chosen: what is
left can give 1.33x at most)."""
UNEXPLAINED: Final = 0.3
"""Idle time of unknown or unresolved cause at which no verdict stands (chosen: twice the dominant share)."""
HEALTHY_WORK: Final = 0.8
HEALTHY_MATRIX: Final = 0.5
"""Chosen: the healthy workload shows 0.94 on a CPU; below 0.8 something else is worth a look."""
_WORK: Final = ("precision.fallback", "kernel.unfused", "padding.waste")
"""Findings on the work itself: no bottleneck of their own, but reasons not to call it healthy."""
MANY_GAPS: Final = 0.05
"""Chosen: as the severity "medium"; one to two us lie between queued kernels, which then last 40 us or less."""
LEAVE_IT: Final = "leave it alone: the next gain is algorithmic, a smaller model or a lower precision"
CHEAPER_WORK: Final = "make the work itself cheaper, what takes longest first: lower precision, fusing, less of it"
FEWER_KERNELS: Final = "fewer and longer kernels: fuse them, or give each more to do (a larger batch)"
MAX_HEADLINE: Final = 3
ONE_RANK_ALONE: Final = "one rank alone: waiting for a late peer and transfer cannot be told apart"
"""A caveat that goes where all ranks are here."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the verdict looks at: of one rank, or of all with the budget of a usual one."""

    budget: Budget
    step_ns: int | None
    n_steps: int
    findings: tuple[Finding, ...]
    failed_checks: tuple[str, ...]
    refusals: tuple[str, ...]
    confidence_cap: float
    is_cpu: bool
    matrix_share: float | None
    hottest_kernel_tool: NextTool | None
    scope: Scope
    is_unlinked: bool
    """Whether most device rows have no launch call: the host side was not recorded."""
    rank: int | None
    source: str
    turnaround_fraction: float = 0.0
    """Of the window, in gaps between operations that had been issued in time."""
    instead: NextTool | None = None
    """What to run where the capture cannot carry a verdict, if not a new capture."""
    skipped: frozenset[str] = frozenset()
    """The analyzers that could not look: what they would have found is not ruled out."""
    notes: tuple[str, ...] = ()
    """What else one should know before believing the verdict."""
    proofs: Mapping[str, str]
    """The experiment that proves each finding, by its id."""


def decide(case: Case) -> Verdict:
    """Give the verdict of a case."""
    causes = _ranked(case.findings)
    if case.refusals:
        return _inconclusive(case, causes, "the capture cannot carry a verdict: " + case.refusals[0], None)
    stall = next((finding for finding in case.findings if finding.id == "host.stall"), None)
    top = causes[0] if causes else None
    unexplained = case.budget.fraction("idle_dependency") + case.budget.fraction("idle_unknown")
    if stall is not None and stall.fraction >= max(UNEXPLAINED, top.fraction if top else 0):
        return _inconclusive(case, causes, f"{stall.title}: start-up or steady state, this capture cannot tell", stall)
    if unexplained >= max(UNEXPLAINED, top.fraction if top else 0):
        why = f"{format_fraction(unexplained)} of the window is idle time whose cause the trace does not show"
        return _inconclusive(case, causes, why, None)
    is_mostly_work = case.budget.fraction("compute") >= NEARLY_ALL_WORK
    is_late = top is not None and BOTTLENECK_OF[top.id] is Bottleneck.STRAGGLER  # tested by chance, not by share alone
    if top is not None and top.fraction >= DOMINANT and (is_late or not is_mostly_work):
        return _bound(case, causes, top, BOTTLENECK_OF[top.id])
    if case.budget.fraction("compute") >= MOSTLY_WORK:
        return _kernel_bound(case, causes)
    if top is not None:
        return _bound(case, causes, top, BOTTLENECK_OF[top.id])
    return _inconclusive(case, causes, f"no cause reaches its threshold: {_largest_part(case.budget)}", None)


def _largest_part(budget: Budget) -> str:
    """Name what takes most of a window."""
    parts = {
        "compute": ("compute",),
        "exposed communication": ("comm_exposed",),
        "exposed copies": ("copy_exposed",),
        "idle time of several causes": tuple(name for name in budget.parts if name.startswith("idle_")),
    }
    shares = {label: sum(budget.fraction(part) for part in names) for label, names in parts.items()}
    label = max(shares, key=lambda label: shares[label])
    return f"{format_fraction(shares[label])} of the window is {label}"


def bound_by(case: Case, top: Finding) -> Verdict:
    """Give the verdict that one of the case's findings is the bottleneck, whatever share others have."""
    causes = [top, *(finding for finding in _ranked(case.findings) if finding is not top)]
    return _bound(case, causes, top, BOTTLENECK_OF[top.id])


def _ranked(findings: tuple[Finding, ...]) -> list[Finding]:
    """Give the causes, the largest expected gain first, without those that a higher one already explains."""
    causes = [finding for finding in findings if finding.id in BOTTLENECK_OF]
    ranked = sorted(causes, key=lambda finding: -finding.fraction * finding.confidence)
    pressure = next((finding for finding in ranked if finding.id == "memory.pressure"), None)
    if pressure is not None:  # allocator calls block the host: the same idle time stands under sync
        ranked = [f for f in ranked if f.id != "host.sync" or f.fraction > 1.25 * pressure.fraction]
    return ranked


def _bound(case: Case, causes: list[Finding], top: Finding, bottleneck: Bottleneck) -> Verdict:
    close = len(causes) > 1 and causes[1].fraction >= 0.8 * top.fraction
    confidence = top.confidence * (0.85 if close else 1.0) * (1.0 if top.fraction >= DOMINANT else 0.6)
    if case.budget.fraction("compute") >= MOSTLY_WORK and bottleneck is not Bottleneck.STRAGGLER:
        confidence *= 0.8  # the work itself is the larger part: the cause limits, it does not dominate
    shown = [*causes, *(f for f in case.findings if f.id in _WORK)]
    return Verdict(
        bottleneck=bottleneck,
        is_healthy=False,
        confidence=min(confidence, case.confidence_cap),
        headline=_headline(case, top),
        step_ns=case.step_ns,
        recoverable_ns=top.recoverable_ns,
        speedup_ceiling=_ceiling(case, top),
        next_tool=top.next_tools[0]
        if top.next_tools
        else recapture(case.scope, "more evidence", "the same finding, sharper"),
        fixes=tuple(dict.fromkeys(finding.fix for finding in causes[:MAX_HEADLINE])),
        proof=case.proofs.get(top.id, ""),
        caveats=_caveats(case, top),
        findings=_shown(shown, case),
        ruled_out=_ruled_out(case, bottleneck),
        rank=case.rank,
        source=case.source,
    )


def of_mean_step(finding: Finding, *, step_ns: int | None, n_steps: int, window_ns: int) -> Finding:
    """Give a finding with what it could give of the mean step, as the ceiling has it, instead of the window's per step.

    The two differ where steps are marked and do not touch. Without steps the finding stays as it is.
    """
    if not step_ns or not window_ns:
        return finding
    return replace(finding, recoverable_ns=round(finding.recoverable_ns * step_ns * n_steps / window_ns))


def capped(findings: Iterable[Finding], cap: float) -> tuple[Finding, ...]:
    """Give the findings with no more confidence than the capture allows; its own faults are certain."""
    return tuple(
        finding if finding.id == "capture.quality" else replace(finding, confidence=min(finding.confidence, cap))
        for finding in findings
    )


def _shown(findings: list[Finding], case: Case) -> tuple[Finding, ...]:
    return capped(findings[:MAX_HEADLINE], case.confidence_cap)


def _headline(case: Case, top: Finding) -> str:
    per = "of each step" if case.n_steps > 1 and not top.title.endswith(ONCE) else "of the window"
    return f"{top.title}: {format_fraction(top.fraction)} {per}"


def _ceiling(case: Case, top: Finding) -> float | None:
    """T / (T - R), of the mean step; without steps, of the window."""
    total_ns = case.step_ns or case.budget.window_ns
    remaining = 1 - top.recoverable_ns / total_ns if total_ns else 0.0
    return 1 / remaining if remaining > 0.001 else None


def _kernel_bound(case: Case, causes: list[Finding]) -> Verdict:
    compute = case.budget.fraction("compute")
    work = [f for f in case.findings if f.id in _WORK]
    weighty = [f for f in (*work, *causes) if f.severity in (Severity.HIGH, Severity.MEDIUM)]
    weighty.sort(key=lambda f: -f.fraction * f.confidence)
    is_healthy = not weighty and not work and compute >= HEALTHY_WORK and (case.matrix_share or 0) >= HEALTHY_MATRIX
    top = weighty[0] if weighty else None
    what = "operators" if case.is_cpu else "kernels"
    if is_healthy:
        matrix = format_fraction(case.matrix_share or 0)
        headline = f"healthy: {format_fraction(compute)} of the window computes, {matrix} of that in matrix products"
    elif top is not None:
        headline = f"{format_fraction(compute)} of the window computes; {top.title}"
    elif work:
        headline = f"{format_fraction(compute)} of the window computes; {work[0].title}: is that meant?"
    else:
        headline = f"{what} themselves take {format_fraction(compute)} of the window"
    tool = (top.next_tools[0] if top is not None and top.next_tools else None) or case.hottest_kernel_tool
    return Verdict(
        bottleneck=Bottleneck.KERNEL,
        is_healthy=is_healthy,
        confidence=min(0.85 if compute >= HEALTHY_WORK else 0.65, case.confidence_cap),
        headline=headline,
        step_ns=case.step_ns,
        recoverable_ns=top.recoverable_ns if top is not None else 0,
        speedup_ceiling=_ceiling(case, top) if top is not None else 1.0,
        next_tool=tool
        or recapture(case.scope, "which kernels, with shapes?", "the hottest names of --verbose", flags="--shapes"),
        fixes=tuple(dict.fromkeys(f.fix for f in (*work, *causes)))[:MAX_HEADLINE] or (_of_work(case),),
        proof=case.proofs.get(top.id, "") if top is not None else "",
        caveats=_caveats(case, top),
        findings=_shown(sorted((*work, *causes), key=lambda f: (f.severity.rank, -f.fraction * f.confidence)), case),
        ruled_out=_ruled_out(case, Bottleneck.KERNEL),
        rank=case.rank,
        source=case.source,
    )


def _of_work(case: Case) -> str:
    """Give what is to be done where nothing but the work takes time."""
    if case.turnaround_fraction >= MANY_GAPS:
        return FEWER_KERNELS
    is_steady = case.budget.fraction("compute") >= HEALTHY_WORK and not any(f.id == "host.stall" for f in case.findings)
    return LEAVE_IT if is_steady else CHEAPER_WORK


def _inconclusive(case: Case, causes: list[Finding], why: str, stall: Finding | None) -> Verdict:
    quality = next((finding for finding in case.findings if finding.id == "capture.quality"), None)
    if case.refusals and case.instead is not None:
        tool = case.instead
    elif case.refusals or stall is not None or case.is_unlinked:
        tool = recapture(
            case.scope, "get a capture that can carry a verdict", "steady steps after warm-up, all checks ok"
        )
    else:
        tool = system_timeline(
            case.scope,
            "resolve what the idle device waits for: events, streams, other processes",
            "CUDA event waits and OS runtime rows under the gaps of the kernel row",
        )
    shown = [finding for finding in (quality if case.refusals else None, stall, *causes) if finding is not None]
    return Verdict(
        bottleneck=Bottleneck.INCONCLUSIVE,
        is_healthy=False,
        confidence=0.0,
        headline=why,
        step_ns=case.step_ns,
        recoverable_ns=0,
        speedup_ceiling=None,
        next_tool=tool,
        fixes=(),
        caveats=_caveats(case, None),
        findings=_shown(shown, case),
        ruled_out=(),
        rank=case.rank,
        source=case.source,
    )


def _caveats(case: Case, top: Finding | None) -> tuple[str, ...]:
    caveats = [*case.failed_checks, *case.notes]
    if case.turnaround_fraction >= MANY_GAPS:
        share = format_fraction(case.turnaround_fraction)
        caveats.append(f"{share} of the window lies between operations that were queued in time: many short kernels")
    if case.is_cpu:
        caveats.append("CPU trace: dispatch cost is estimated from the smallest operators, not measured")
        if top is not None:  # measured: analyses/data_removal
            caveats.append("on a CPU the ceiling is soft: a core that waits works slower in between")
    if case.step_ns is None:
        caveats.append("no steps found: all numbers are of the whole recorded window")
    if top is not None and top.id == "comm.exposed":
        caveats.append(ONE_RANK_ALONE)
    caveats.append("one run: it shows where time goes, not whether a change helped; that takes repeated runs of both")
    return tuple(dict.fromkeys(caveats))


_NOT_THIS: Final = (
    ("data", "input", ("idle_data",), {Bottleneck.DATA}),
    ("exposed communication", "overlap", ("comm_exposed",), {Bottleneck.COMM}),
    ("exposed copies", "transfers", ("copy_exposed",), {Bottleneck.COPY}),
    ("synchronisation", "syncs", ("idle_sync",), {Bottleneck.SYNC, Bottleneck.MEMORY}),
    ("launch and host overhead", "launches", ("idle_launch", "idle_host"), {Bottleneck.OVERHEAD}),
)


def _ruled_out(case: Case, bottleneck: Bottleneck) -> tuple[str, ...]:
    """Name what was looked at and is below its threshold, with its share."""
    found = {BOTTLENECK_OF[finding.id] for finding in case.findings if finding.id in BOTTLENECK_OF}
    lines = []
    for label, analyzer, parts, classes in _NOT_THIS:
        share = sum(case.budget.fraction(part) for part in parts)
        if analyzer in case.skipped:
            continue
        if bottleneck not in classes and not classes & found and share < 0.05:
            lines.append(f"{label} ({format_fraction(share)})")
    return tuple(lines)
