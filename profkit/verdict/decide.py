"""The verdict of a case: what is said of a cause, of the work itself, or why nothing can be said.

Causes are ranked by their own confidence; what is shown is capped by the quality of the capture.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.analyzers.tools import graph_timeline, operators, recapture, system_timeline
from profkit.findings import kind_of
from profkit.findings.capture import LOST, NO_OPERATORS, QUALITY, UNRECORDED, WHOLE_GRAPHS
from profkit.findings.communication import LATENCY_METRIC, SENDS_METRIC
from profkit.findings.copies import TO_DEVICE
from profkit.findings.host import LAUNCH_BOUND, STALL, SYNC_AT_ONCE
from profkit.findings.input import STARVED
from profkit.findings.kernels import DOUBLE, FALLBACK, LINE, NO_TF32, OWN_SHARE, OWN_STARTED, PADDED_BATCHES, UNFUSED
from profkit.findings.kind import Way
from profkit.findings.memory import WARMUP
from profkit.findings.patterns import (
    CONTENTION,
    CORES_TAKEN,
    DROPPED,
    FROZEN,
    GIL,
    MATH_ATTENTION,
    NO_GRADIENT,
    PILED,
    UNREAD,
)
from profkit.findings.ranks.stragglers import LATE_RANK, RANK0, SLOW_LINK
from profkit.findings.wasted import MASKED_ROWS, WASTED
from profkit.model.documents.report import Bottleneck, Verdict
from profkit.model.finding import SEVERITY_FROM, Finding, Severity
from profkit.shell import CommandLine
from profkit.units import format_fraction
from profkit.verdict import compete, shown
from profkit.verdict.calibrated import stated
from profkit.verdict.case import (
    DOMINANT,
    DOMINANT_ON_CPU,
    HEALTHY_MATRIX,
    HEALTHY_WORK,
    MOSTLY_WORK,
    UNEXPLAINED,
    Case,
)
from profkit.verdict.on_cpu import most_of
from profkit.verdict.shown import MAX_HEADLINE

_LEAST_BESIDE_PEERS: Final = {
    LATE_RANK.id: LATE_RANK.limit("verdict"),
    RANK0.id: LATE_RANK.limit("verdict"),
    SLOW_LINK.id: SLOW_LINK.limit("verdict"),
}
"""From which share of the step what one rank or group has beyond its peers is the verdict, however long the work is."""

NEAR_LARGEST: Final = 0.8
"""Of what the largest other cause saves, from which what is measured against peers leads. Chosen: as close causes."""
_WASTED: Final = tuple(one.id for one in (*WASTED, MATH_ATTENTION, NO_GRADIENT, PILED, DROPPED, PADDED_BATCHES, DOUBLE))
_ASKED: Final = (UNREAD.id, MASKED_ROWS.id)
"""What may be needed: that is asked, not told."""
FAR_MORE: Final = 2.0
"""Times what the largest cause saves, from which a finding on the work leads before it. Chosen: either saving may be
off by a third."""
_INSIDE_WORK: Final = (CONTENTION.id, GIL.id)
"""What takes its time inside operators: these take longer by it, and what looks like work is none."""
_OF_HOSTS: Final = (Bottleneck.OVERHEAD, Bottleneck.SYNC, Bottleneck.DATA)
NEARLY_ALL_WORK_OF_HOSTS: Final = 0.9
"""The share of compute from which the work is the bottleneck where the hosts of most ranks hold their devices up alike,
or where many small collectives do. Chosen: no peer shows it, and all of it can be had."""
DOMINANT_OF_HOSTS: Final = DOMINANT_ON_CPU
"""The share of the step from which that is the bottleneck. Chosen: as on a CPU; most ranks have it alike."""
_TRIALS: Final = "a steady step is another"
_UNSTEADY: Final = "too little, or nothing that repeats, to show a steady step"
_AS_STALLS: Final = (Bottleneck.OVERHEAD, Bottleneck.INCONCLUSIVE)
LEAST_BESIDE: Final = 0.4
"""Of the window, beside start-up and single stalls: with less there is no verdict. Chosen."""
_STARVED: Final = "the training thread waits for a core for {} of the time: record again where cores are free"
_WAITS: Final = (CONTENTION.id, CORES_TAKEN.id)
_MOST_OF_IT: Final = 0.5
"""Chosen: of a stall, as in findings that name one."""


def decide(case: Case) -> Verdict:
    """The verdict of a case: on what lies beside start-up and single stalls.

    Where nobody knows what the stalls are, it stands only if it is the same with them: the host is the limit. A rank
    that is late against its peers is so in every step, whatever all ranks do once.
    """
    causes = compete.ranked_causes(case.findings, is_alone=case.is_alone, is_cpu=case.is_cpu)
    if case.refusals:
        why = "; ".join(filter(None, (case.refusals[0], case.meanwhile)))
        return _inconclusive(case, causes, f"this trace does not allow a verdict: {why}", None)
    is_beside_peers = _of_a_peer(causes) is not None
    start = None if is_beside_peers else _starting(case, causes)
    if start is not None:
        return start
    found = _beside(case, causes)
    stall = _finding(case, STALL.id)
    if stall is None or is_beside_peers or case.unknown_apart < UNEXPLAINED or found.bottleneck in _AS_STALLS:
        return found
    beside = f"without them the step is {found.bottleneck.value}"
    why = f"{stall.title}; {beside}: this trace cannot show whether they are start-up"
    return _inconclusive(case, causes, why, stall)


def _beside(case: Case, causes: Sequence[Finding]) -> Verdict:
    """The verdict on what lies beside start-up and single stalls."""
    causes = sorted(causes, key=lambda one: _is_slight(case, one))  # what is slight hides no other cause
    top = causes[0] if causes else None
    beside = _leading_peer(causes, is_cpu=case.is_cpu)
    unexplained = case.budget.fraction("idle_dependency") + case.budget.fraction("idle_unknown")
    if case.beside(unexplained) >= max(UNEXPLAINED, case.beside(top.fraction) if top else 0):
        if beside is not None:
            return _bound(case, [beside, *(one for one in causes if one is not beside)])
        said = format_fraction(case.budget.shown("idle_dependency", "idle_unknown"))
        why = f"{said} of the window is idle time of unknown cause"
        return _inconclusive(case, causes, why, None)
    compute = case.compute
    # lateness is tested against chance, not by share alone
    is_late = top is not None and kind_of(top.id).bottleneck is Bottleneck.STRAGGLER
    is_late = is_late or (top is not None and top.id in _INSIDE_WORK)
    is_of_hosts = not case.is_alone and top is not None and _can_be_had(top)
    is_work = compute >= NEARLY_ALL_WORK_OF_HOSTS if is_of_hosts else case.is_nearly_all_work(top)
    least = min(case.dominant, DOMINANT_OF_HOSTS if is_of_hosts else 1.0)
    may_be_small = not is_late and compute >= MOSTLY_WORK
    is_small = top is not None and may_be_small and (_outweighs(case, top) or _saves_little(case, top))
    if top is not None and _weight(case, top) >= least and (is_late or not is_work) and not is_small:
        return _bound(case, compete.put_first(causes))
    if compute >= MOSTLY_WORK:
        if beside is not None:
            return _bound(case, [beside, *(one for one in causes if one is not beside)])
        return _kernel_bound(case, causes)
    if top is not None:
        return _bound(case, compete.put_first(causes))
    launch = _finding(case, LAUNCH_BOUND.id)
    is_of_work = launch is not None and compete.superseding(launch, shown.of_work(case), Way.BEHIND) is not None
    if is_of_work or _finding(case, UNREAD.id) is not None:  # the overhead is that of work which is named
        return _kernel_bound(case, causes)
    return _inconclusive(
        case, causes, f"no cause is large enough for a verdict: {shown.largest_part(case.budget)}", None
    )


def _can_be_had(cause: Finding) -> bool:
    """Whether all of a cause that most ranks share can be had: what hosts do, and the latency of many collectives."""
    return kind_of(cause.id).bottleneck in _OF_HOSTS or cause.has(LATENCY_METRIC)


def _of_a_peer(causes: Sequence[Finding]) -> Finding | None:
    """The first cause that is measured against peers and large enough for the verdict."""
    return next((one for one in causes if one.fraction >= _LEAST_BESIDE_PEERS.get(one.id, 1)), None)


def _leading_peer(causes: Sequence[Finding], *, is_cpu: bool) -> Finding | None:
    """The same, unless a cause that all ranks have gives clearly more: not transfer, whose gain no trace can tell."""
    found = _of_a_peer(causes)
    if found is None:
        return None
    others = (
        one
        for one in causes
        if one.id not in _LEAST_BESIDE_PEERS and compete.superseding(one, [found], Way.SECOND) is None
    )
    most = max((compete.expected_ns(one, is_cpu=is_cpu) for one in others), default=0.0)
    return found if compete.expected_ns(found, is_cpu=is_cpu) >= NEAR_LARGEST * most else None


def _finding(case: Case, name: str) -> Finding | None:
    return next((finding for finding in case.findings if finding.id == name), None)


def _failed(case: Case) -> set[str]:
    """The checks of the capture that failed."""
    quality = _finding(case, QUALITY.id)
    return {item.metric for item in quality.evidence} if quality is not None else set()


def _starting(case: Case, causes: Sequence[Finding]) -> Verdict | None:
    """No verdict, where start-up or single stalls leave too little to judge; None: what lies beside them decides."""
    trials, stall = _finding(case, WARMUP.id), _finding(case, STALL.id)
    if trials is not None and trials.fraction >= max(DOMINANT, causes[0].fraction if causes else 0):
        return _inconclusive(case, causes, f"{trials.title}; {_TRIALS}", trials)
    if stall is None or stall.fraction < UNEXPLAINED:
        return None
    starved = _starved(case, stall)
    if starved is not None:
        why = f"{stall.title}; {_STARVED.format(format_fraction(starved.fraction))}"
        return _inconclusive(case, [starved, *causes], why, stall)
    if case.is_steady and 1 - case.apart >= LEAST_BESIDE:
        return None
    beside = 1 - stall.fraction
    computes = min(case.budget.fraction("compute") / beside, 1.0) if beside > 0 else 0.0
    rest = f"beside that, {format_fraction(computes)} of the time is compute: {_UNSTEADY}"
    return _inconclusive(case, causes, f"{stall.title}; {rest}", stall)


def _starved(case: Case, stall: Finding) -> Finding | None:
    """The wait for a core that most of a stall must be: two shares have in common what exceeds the whole."""
    waits = next((finding for finding in case.findings if finding.id in _WAITS), None)
    is_most = waits is not None and waits.fraction + stall.fraction - 1 >= _MOST_OF_IT * stall.fraction
    return waits if stall.id == STALL.id and is_most else None


def _weight(case: Case, finding: Finding) -> float:
    """Share (0-1) of the step that a cause has or that a fix saves at most, the larger: debts are paid elsewhere.

    On a CPU without what ordinary programs have of it. The wait for a batch and its copy are one path: what comes late
    is then copied with nothing beside it, and whoever brings it sooner copies it meanwhile.
    """
    whole_ns = case.step_ns or case.budget.window_ns
    beyond = compete.beyond_usual(finding, is_cpu=case.is_cpu)
    path = {STARVED.id, TO_DEVICE.id}
    beside = sum(other.fraction for other in case.findings if finding.id in path and other.id in path - {finding.id})
    if not case.is_alone:
        return finding.fraction * beyond + beside
    saved = finding.recoverable_ns / whole_ns if whole_ns else 0.0
    return case.beside(max(finding.fraction, saved) * beyond + beside)


def _measured_by(case: Case, top: Finding) -> CommandLine:
    """The command that measures what a cause is worth: its changes tried, else delays at its place."""
    return case.scope.command.under("profkit try" if kind_of(top.id).tries else "profkit probe")


_SMALL: Final = "the largest cause has less than {} of the window: it is less certain that it is the bottleneck"


def _bound(case: Case, causes: Sequence[Finding]) -> Verdict:
    top, kind = causes[0], kind_of(causes[0].id)
    close = len(causes) > 1 and causes[1].recoverable_ns >= NEAR_LARGEST * top.recoverable_ns
    # what is measured against peers is as true where it is small
    is_sure = _weight(case, top) >= case.dominant or top.id in _LEAST_BESIDE_PEERS
    confidence = top.confidence * (0.85 if close else 1.0) * (1.0 if is_sure else 0.6) * (1 - case.apart / 2)
    if case.compute >= MOSTLY_WORK and top.id not in _LEAST_BESIDE_PEERS:
        confidence *= 0.8  # the work itself is the larger part: the cause limits, it does not dominate
    caveats = shown.caveats(case, top)
    if not is_sure:
        caveats = (_SMALL.format(format_fraction(case.dominant)), *caveats)
    assert kind.bottleneck is not None  # noqa: S101 - what competes has one
    listed = compete.led_by(top, (*causes, *shown.of_work(case)))
    started = _started(case) if top.id == LAUNCH_BOUND.id else None
    if started is not None:
        listed.insert(1, started[0])
    return Verdict(
        bottleneck=kind.bottleneck,
        is_healthy=False,
        confidence=stated(confidence, 1.0 if kind.is_of_run else case.confidence_cap, is_cpu=case.is_cpu),
        headline=shown.headline(case, top) + (started[1] if started is not None else ""),
        step_ns=case.step_ns,
        recoverable_ns=top.recoverable_ns,
        speedup_ceiling=shown.ceiling(case, top),
        next_tool=top.next_tools[0]
        if top.next_tools
        else recapture(case.scope, "more evidence", "the same finding, with more certainty"),
        fixes=tuple(dict.fromkeys(finding.fix for finding in listed[:MAX_HEADLINE])),
        proof=top.proof or kind.proof_for(is_cpu=case.is_cpu),
        measure=_measured_by(case, top),
        caveats=caveats,
        findings=shown.first(listed, case),
        ruled_out=shown.ruled_out(case, kind.bottleneck),
        rank=case.rank,
        source=case.source,
    )


def _kernel_bound(case: Case, causes: Sequence[Finding]) -> Verdict:
    compute, said = case.budget.fraction("compute"), format_fraction(case.budget.shown("compute"))
    beside = case.beside(compute)
    owed = [one for one in causes if _is_owed(case, one)]
    slight = [one for one in (*shown.of_work(case), *causes) if _is_slight(case, one)]
    work = [one for one in shown.of_work(case) if one not in slight]
    causes = [one for one in causes if one not in (*owed, *slight)]
    weighty = [f for f in (*work, *causes) if _is_weighty(case, f)]
    weighty = compete.ranked_work(weighty, is_cpu=case.is_cpu)
    is_healthy = not weighty and not work and compute >= HEALTHY_WORK and (case.matrix_share or 0) >= HEALTHY_MATRIX
    is_healthy = is_healthy and not _is_odd(case.question) and not owed and not case.slow_products
    top = weighty[0] if weighty else None
    asked = _asked(case, top) if not is_healthy else None
    top = None if asked is not None else top
    first = asked or top or next(iter(work), None)
    others = dict.fromkeys((*filter(None, [asked]), *work, *causes))
    listed = [shown.with_line(one, case) if one is first else one for one in compete.led_by(first, others)]
    line = f"; {shown.line(case)}" if case.busiest is not None and first is None else ""
    what = "operators" if case.is_cpu else "kernels"
    # in another number format the roof is another
    is_other_roof = first is not None and first.id in {FALLBACK.id, NO_TF32.id}
    roof = f"; {case.at_roof}" if case.at_roof and not is_other_roof else ""
    is_slow = bool(case.slow_products) and (first is None or first.id == LINE.id)
    roof = f"; {case.slow_products}" if is_slow else roof
    if is_healthy:
        matrix = format_fraction(case.matrix_share or 0)
        headline = (
            f"healthy: {said} of the window is compute; matrix products are {matrix} of {what[:-1]} time{line}{roof}"
        )
    elif first is not None and (top is not None or first.id == LINE.id):
        cause = first.title if top is None else shown.beside_work(case, top)
        headline = f"{said} of the window is compute; {cause}{roof}"
    elif first is not None:
        headline = f"{said} of the window is compute; {first.title}{roof}. Is that intentional?"
    else:
        most = f"; {case.hottest}" if case.hottest else ""
        headline = f"the {what} themselves take {said} of the window{most}{line}{roof}"
    if case.slows:
        is_healthy, work_said = False, f"{said} of the recorded steps is compute{line}{roof}"
        headline = f"{case.slows}; {work_said if first is None else headline}"
    tool = (top.next_tools[0] if top is not None and top.next_tools else None) or case.later or case.hottest_kernel_tool
    if WHOLE_GRAPHS.id in _failed(case):
        tool = graph_timeline(case.scope)
    return Verdict(
        bottleneck=Bottleneck.KERNEL,
        is_healthy=is_healthy,
        confidence=stated(
            (0.85 if beside >= HEALTHY_WORK else 0.65) * (1 - case.apart / 2), case.confidence_cap, is_cpu=case.is_cpu
        ),
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
        fixes=tuple(dict.fromkeys((*[shown.FASTER_PRODUCTS] * is_slow, *(f.fix for f in listed))))[:MAX_HEADLINE]
        or (shown.fix_of_work(case, may_be_left=not owed),),
        proof=(top.proof or kind_of(top.id).proof_for(is_cpu=case.is_cpu)) if top is not None else "",
        measure=_measured_by(case, top) if top is not None else None,
        caveats=shown.caveats(case, top),
        findings=shown.first(listed, case),
        ruled_out=shown.ruled_out(case, Bottleneck.KERNEL),
        rank=case.rank,
        source=case.source,
    )


def _asked(case: Case, top: Finding | None) -> Finding | None:
    """What has most of the work, where the first finding would save too little of its time to explain it.

    Rows that are dropped; the line with most of it; else, before what is true of most programs, a model that never
    trains, and other forward work that no backward pass reads.
    """
    if top is not None and kind_of(top.id).leads:
        return None
    whole_ns = case.step_ns or case.budget.window_ns
    is_generic = top is not None and top.id == UNFUSED.id
    saves = top.recoverable_ns / whole_ns if top is not None and whole_ns else 0.0
    if top is not None and not is_generic:
        saves = max(saves, top.fraction)
    least = LINE.limit("generic" if is_generic else "explained")
    line, unread, rows = case.question, _finding(case, UNREAD.id), _finding(case, MASKED_ROWS.id)
    of_line = least
    if line is not None and line.measure.metric == OWN_SHARE:
        line = line if line.fraction >= LINE.limit("own") else None
        of_line = LINE.limit("own_generic" if is_generic else "own_explained")
    if rows is not None and saves < least * rows.fraction:
        return rows
    if line is not None and saves < of_line * line.fraction and not _is_there(top, line):
        return line
    frozen = _finding(case, FROZEN.id)
    if frozen is not None and frozen.severity is Severity.HIGH and (top is None or _is_usual(case, top, frozen)):
        return frozen
    is_asked = is_generic and unread is not None and not unread.recoverable_ns and saves < least * unread.fraction
    return unread if is_asked else None


def _is_odd(line: Finding | None) -> bool:
    """Whether so much of the step is outside any layer that the work is not called healthy unasked."""
    return line is not None and line.measure.metric == OWN_SHARE and line.fraction >= LINE.limit("odd")


def _started(case: Case) -> tuple[Finding, str] | None:
    """The question about a place outside any layer that starts many of the operators, and a clause that names it."""
    line = case.question
    if line is None or not line.has(OWN_STARTED):
        return None
    share = format_fraction(line.seen(OWN_STARTED).value)
    return line, f"; {share} of the operators are started at {line.places[0].place.name}"


def _is_usual(case: Case, top: Finding, other: Finding) -> bool:
    """Whether a finding is overhead of which ordinary programs have most as well, and less than another one."""
    is_most = 2 * compete.beyond_usual(top, is_cpu=case.is_cpu) < 1
    return top.id == LAUNCH_BOUND.id and is_most and top.fraction < other.fraction


def _is_there(top: Finding | None, asked: Finding) -> bool:
    """Whether a finding names a cause at the line that is asked about."""
    if top is None or top.id == UNFUSED.id or not top.places:
        return False
    return top.fraction >= SEVERITY_FROM[Severity.HIGH] and top.places[0].place.name == asked.places[0].place.name


def _outweighs(case: Case, cause: Finding) -> bool:
    """Whether work that is thrown away has far more of the step than the largest cause."""
    wasted = (one for one in case.findings if one.id in _WASTED and one.recoverable_ns)
    most = max((compete.expected_ns(one, is_cpu=case.is_cpu) for one in wasted), default=0.0)
    return most >= FAR_MORE * compete.expected_ns(cause, is_cpu=case.is_cpu)


def _saves_little(case: Case, cause: Finding) -> bool:
    """Whether so much of a cause stays on a CPU that its fix saves, at most, less than a dominant share.

    Waits for the work of other stages count as such: no trace of one rank shows that a fix saves more.
    """
    if cause.has(SENDS_METRIC) or _is_slight(case, cause):
        return True
    whole_ns = case.step_ns or case.budget.window_ns
    if not case.is_cpu or not cause.recoverable_ns or not whole_ns:
        return False
    return most_of(cause.recoverable_ns / whole_ns, cause.id) < case.dominant


def _is_slight(case: Case, finding: Finding) -> bool:
    """Whether a change of which only a trial shows that it applies would give too little to send somebody after it."""
    kind, whole_ns = kind_of(finding.id), case.step_ns or case.budget.window_ns
    is_large = kind.bottleneck is not None and finding.fraction >= DOMINANT  # the bar shows that much, and asks for it
    return case.is_cpu and not is_large and 0 < finding.recoverable_ns < kind.leads_from * whole_ns


def _is_owed(case: Case, finding: Finding) -> bool:
    """Whether waits cost little at once: that a program without PyTorch could go on without a result, nobody knows."""
    is_late = finding.has(SYNC_AT_ONCE) and not case.scope.is_of_torch
    return is_late and case.budget.fraction("idle_sync") < SEVERITY_FROM[Severity.MEDIUM]


def _is_weighty(case: Case, finding: Finding) -> bool:
    """Whether a finding is worth a line of its own beside the work itself: not what is usual."""
    if (finding.id in _ASKED and not finding.recoverable_ns) or finding.has(SENDS_METRIC) or _is_slight(case, finding):
        return False
    beyond = compete.beyond_usual(finding, is_cpu=case.is_cpu)
    is_usual = beyond < 1 and finding.fraction * beyond < SEVERITY_FROM[Severity.MEDIUM]
    return finding.severity in (Severity.HIGH, Severity.MEDIUM) and not is_usual


_STEADY: Final = "record a longer trace of steady steps"
_MISSING: Final = {
    UNRECORDED.id: "record what runs on the device as well",
    LOST.id: "record what runs on the device as well",
    NO_OPERATORS.id: "record the operators as well",
}
"""Failed check to what the next capture is for, where length is not what is missing."""


def _inconclusive(case: Case, causes: Sequence[Finding], why: str, stall: Finding | None) -> Verdict:
    quality, failed = _finding(case, QUALITY.id), _failed(case)
    if case.refusals and case.instead is not None:
        tool = case.instead
    elif case.refusals or stall is not None or case.is_unlinked:
        purpose = next((said for check, said in _MISSING.items() if check in failed), _STEADY)
        look_for = "steady steps after warm-up, and all checks ok"
        # operators are torch.profiler's: nsys has them through CUDA builds of torch alone
        is_for_torch = NO_OPERATORS.id in failed and case.scope.command.may_run_python
        tool = (operators if is_for_torch else recapture)(case.scope, purpose, look_for)
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
