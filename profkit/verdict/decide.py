"""The verdict of a case: what is said of a cause, of the work itself, or why nothing can be said.

Causes are ranked by their own confidence; what is shown is capped by the quality of the capture.
"""

from __future__ import annotations

from collections.abc import Sequence

from profkit.analyzers.tools import recapture, system_timeline
from profkit.findings import kind_of
from profkit.findings.capture import QUALITY
from profkit.findings.host import STALL
from profkit.model.documents.report import Bottleneck, Verdict
from profkit.model.finding import Finding, Severity
from profkit.units import format_fraction
from profkit.verdict import compete, shown
from profkit.verdict.case import (
    DOMINANT,
    HEALTHY_MATRIX,
    HEALTHY_WORK,
    MOSTLY_WORK,
    NEARLY_ALL_WORK,
    UNEXPLAINED,
    Case,
)
from profkit.verdict.shown import MAX_HEADLINE


def decide(case: Case) -> Verdict:
    """The verdict of a case."""
    causes = compete.ranked_causes(case.findings)
    if case.refusals:
        return _inconclusive(case, causes, "this trace does not allow a verdict: " + case.refusals[0], None)
    stall = next((finding for finding in case.findings if finding.id == STALL.id), None)
    top = causes[0] if causes else None
    unexplained = case.budget.fraction("idle_dependency") + case.budget.fraction("idle_unknown")
    if stall is not None and stall.fraction >= max(UNEXPLAINED, top.fraction if top else 0):
        return _inconclusive(case, causes, f"{stall.title}; this trace cannot show whether that is start-up", stall)
    if unexplained >= max(UNEXPLAINED, top.fraction if top else 0):
        said = format_fraction(case.budget.shown("idle_dependency", "idle_unknown"))
        why = f"{said} of the window is idle time of unknown cause"
        return _inconclusive(case, causes, why, None)
    is_mostly_work = case.budget.fraction("compute") >= NEARLY_ALL_WORK
    # lateness is tested against chance, not by share alone
    is_late = top is not None and kind_of(top.id).bottleneck is Bottleneck.STRAGGLER
    if top is not None and top.fraction >= DOMINANT and (is_late or not is_mostly_work):
        return _bound(case, compete.put_first(causes))
    if case.budget.fraction("compute") >= MOSTLY_WORK:
        return _kernel_bound(case, causes)
    if top is not None:
        return _bound(case, compete.put_first(causes))
    return _inconclusive(
        case, causes, f"no cause is large enough for a verdict: {shown.largest_part(case.budget)}", None
    )


def _bound(case: Case, causes: Sequence[Finding]) -> Verdict:
    top, kind = causes[0], kind_of(causes[0].id)
    close = len(causes) > 1 and causes[1].fraction >= 0.8 * top.fraction
    confidence = top.confidence * (0.85 if close else 1.0) * (1.0 if top.fraction >= DOMINANT else 0.6)
    if case.budget.fraction("compute") >= MOSTLY_WORK and kind.bottleneck is not Bottleneck.STRAGGLER:
        confidence *= 0.8  # the work itself is the larger part: the cause limits, it does not dominate
    assert kind.bottleneck is not None  # noqa: S101 - what competes has one
    return Verdict(
        bottleneck=kind.bottleneck,
        is_healthy=False,
        confidence=min(confidence, case.confidence_cap),
        headline=shown.headline(case, top),
        step_ns=case.step_ns,
        recoverable_ns=top.recoverable_ns,
        speedup_ceiling=shown.ceiling(case, top),
        next_tool=top.next_tools[0]
        if top.next_tools
        else recapture(case.scope, "more evidence", "the same finding, with more certainty"),
        fixes=tuple(dict.fromkeys(finding.fix for finding in causes[:MAX_HEADLINE])),
        proof=kind.proof,
        caveats=shown.caveats(case, top),
        findings=shown.first([*causes, *shown.of_work(case)], case),
        ruled_out=shown.ruled_out(case, kind.bottleneck),
        rank=case.rank,
        source=case.source,
    )


def _kernel_bound(case: Case, causes: Sequence[Finding]) -> Verdict:
    compute, said = case.budget.fraction("compute"), format_fraction(case.budget.shown("compute"))
    work = shown.of_work(case)
    weighty = [f for f in (*work, *causes) if f.severity in (Severity.HIGH, Severity.MEDIUM)]
    weighty.sort(key=lambda f: -f.fraction * f.confidence)
    is_healthy = not weighty and not work and compute >= HEALTHY_WORK and (case.matrix_share or 0) >= HEALTHY_MATRIX
    top = weighty[0] if weighty else None
    what = "operators" if case.is_cpu else "kernels"
    if is_healthy:
        matrix = format_fraction(case.matrix_share or 0)
        headline = f"healthy: {said} of the window is compute, {matrix} of that in matrix products"
    elif top is not None:
        headline = f"{said} of the window is compute; {top.title}"
    elif work:
        headline = f"{said} of the window is compute; {work[0].title}. Is that intentional?"
    else:
        headline = f"the {what} themselves take {said} of the window"
    tool = (top.next_tools[0] if top is not None and top.next_tools else None) or case.hottest_kernel_tool
    return Verdict(
        bottleneck=Bottleneck.KERNEL,
        is_healthy=is_healthy,
        confidence=min(0.85 if compute >= HEALTHY_WORK else 0.65, case.confidence_cap),
        headline=headline,
        step_ns=case.step_ns,
        recoverable_ns=top.recoverable_ns if top is not None else 0,
        speedup_ceiling=shown.ceiling(case, top) if top is not None else 1.0,
        next_tool=tool
        or recapture(
            case.scope,
            "which kernels take the time, with which shapes?",
            "the hottest names in --verbose",
            flags="--shapes",
        ),
        fixes=tuple(dict.fromkeys(f.fix for f in (*work, *causes)))[:MAX_HEADLINE] or (shown.fix_of_work(case),),
        proof=kind_of(top.id).proof if top is not None else "",
        caveats=shown.caveats(case, top),
        findings=shown.first(
            sorted((*work, *causes), key=lambda f: (f.severity.rank, -f.fraction * f.confidence)), case
        ),
        ruled_out=shown.ruled_out(case, Bottleneck.KERNEL),
        rank=case.rank,
        source=case.source,
    )


def _inconclusive(case: Case, causes: Sequence[Finding], why: str, stall: Finding | None) -> Verdict:
    quality = next((finding for finding in case.findings if finding.id == QUALITY.id), None)
    if case.refusals and case.instead is not None:
        tool = case.instead
    elif case.refusals or stall is not None or case.is_unlinked:
        tool = recapture(
            case.scope, "record a longer trace of steady steps", "steady steps after warm-up, and all checks ok"
        )
    else:
        tool = system_timeline(
            case.scope,
            "what does the idle GPU wait for: events, streams, other processes?",
            "CUDA event waits and OS runtime rows below the gaps in the kernel row",
        )
    listed = [finding for finding in (quality if case.refusals else None, stall, *causes) if finding is not None]
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
        caveats=shown.caveats(case, None),
        findings=shown.first(listed, case),
        ruled_out=(),
        rank=case.rank,
        source=case.source,
    )
