"""Two verdicts on one job: confirmed, overturned, answered, or open, each with its reason in numbers.

Budgets are compared part by part, as shares of the step, against what step-to-step scatter allows.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.tools import operators, recapture, system_timeline
from profkit.compare.stats.inference import welch
from profkit.compare.stats.judge import DEFAULT_ALPHA
from profkit.crosscheck.trace_profile import Portrait
from profkit.findings.crosscheck import CONFIRMED, OPEN, OVERTURNED
from profkit.model.budget import HOST_PARTS, words
from profkit.model.documents.handover import HandoverStatus, PartAgreement
from profkit.model.documents.report import Bottleneck
from profkit.model.finding import NextTool
from profkit.units import format_fraction
from profkit.verdict import MOSTLY_WORK

PARTS_OF: Final = {
    Bottleneck.DATA: ("idle_data",),
    Bottleneck.COPY: ("copy_exposed",),
    Bottleneck.SYNC: ("idle_sync",),
    Bottleneck.OVERHEAD: HOST_PARTS,
    Bottleneck.KERNEL: ("compute",),
    Bottleneck.COMM: ("comm_exposed",),
    Bottleneck.STRAGGLER: ("comm_exposed",),
    Bottleneck.MEMORY: ("idle_sync",),
}
"""The parts of the budget that a bottleneck shows in; allocator calls block, so memory pressure shows as sync."""


_MADE_BY_PROFILERS: Final = frozenset({Bottleneck.OVERHEAD, Bottleneck.SYNC})
"""Causes that a profiler's own cost on the host can make; where another is gone in the second run, the runs differ."""


def agreement(first: Portrait, second: Portrait) -> tuple[PartAgreement, ...]:
    """Each part of the budget in both tools, in the order of the contract."""
    return tuple(part_agreement(first, second, (part,)) for part in first.parts_ns if part in second.parts_ns)


def part_agreement(first: Portrait, second: Portrait, parts: tuple[str, ...]) -> PartAgreement:
    """Parts taken together, named by the first of them where there is one."""
    shares = [sum(side.share(part) for part in parts) for side in (first, second)]
    allowed = _allowed([_by_step(side, parts) for side in (first, second)])
    difference = abs(shares[1] - shares[0])
    agrees: bool | None = difference <= max(CONFIRMED.limit("floor"), allowed or 0.0)
    if allowed is None and not agrees:
        agrees = None
    return PartAgreement(part=" + ".join(parts), first=shares[0], second=shares[1], allowed=allowed, agrees=agrees)


def _by_step(side: Portrait, parts: tuple[str, ...]) -> list[float]:
    together = np.sum([side.parts_ns[part] for part in parts], axis=0)
    return [float(value) for value in together / np.maximum(side.step_ns, 1)]


def _allowed(steps: list[list[float]]) -> float | None:
    """Half the 95 % interval of a difference of means over steps (Welch), None with one step on a side."""
    if min(map(len, steps)) < 2:
        return None
    estimate = welch(*steps)
    if estimate is None:  # no step differs from another
        return 0.0
    low, high = estimate.interval(DEFAULT_ALPHA)
    return (high - low) / 2


class Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """What comes of two verdicts; `cause` is the deciding share in both tools, None where the first names no cause."""

    status: HandoverStatus
    sentence: str
    confidence: float
    why: str = ""
    """Why the confidence is what it is now; "" where it is as it was."""
    cause: PartAgreement | None = None
    next_tool: NextTool | None = None


def cause_words(bottleneck: Bottleneck) -> str:
    """What a bottleneck's parts of the budget are called in a sentence."""
    return words(*PARTS_OF[bottleneck])


def ruling(first: Portrait, second: Portrait, *, differs: str = "") -> Ruling:
    """What the second tool's verdict makes of the first's; both must be of the same workload.

    `differs` is what makes the runs differ all the same: then the second makes the first no surer and replaces nothing.
    """
    ours, theirs = first.verdict, second.verdict
    nothing, other = Bottleneck.INCONCLUSIVE, second.tool
    if theirs.bottleneck is nothing:
        said = f"{other} cannot tell either" if ours.bottleneck is nothing else f"{other} cannot confirm it"
        return _open(first, f"{said}: {theirs.headline}", theirs.next_tool)
    if ours.bottleneck is nothing and differs:
        return _open(first, f"{other} says {theirs.bottleneck.value}, but this is no answer: {differs}", _again(first))
    if ours.bottleneck is nothing:
        return Ruling(
            status=HandoverStatus.ANSWERED,
            sentence=f"{other} answers what {first.tool} left open: {theirs.bottleneck.value}, {theirs.headline}",
            confidence=theirs.confidence,
            why=f"from {second.tool}; {first.tool} could not tell",
        )
    cause = part_agreement(first, second, PARTS_OF[ours.bottleneck])
    if ours.bottleneck is theirs.bottleneck:
        return _confirmed(first, second, cause, differs)
    return _contradicted(first, second, cause, differs)


def _open(first: Portrait, sentence: str, tool: NextTool) -> Ruling:
    confidence = first.verdict.confidence
    return Ruling(status=HandoverStatus.OPEN, sentence=sentence, confidence=confidence, next_tool=tool)


def _shares(first: Portrait, second: Portrait, cause: PartAgreement) -> str:
    here, there = format_fraction(cause.first), format_fraction(cause.second)
    return f"{cause_words(first.verdict.bottleneck)} {here} of the step by {first.tool}, {there} by {second.tool}"


def _confirmed(first: Portrait, second: Portrait, cause: PartAgreement, differs: str) -> Ruling:
    ours, theirs = first.verdict.confidence, second.verdict.confidence
    doubt = differs or _is_more_disturbed(first, second)
    is_surer = theirs > ours and not doubt
    why = f"{ours:.2f} -> {theirs:.2f}: from {second.tool}, whose capture allows more;"
    why += " where two tools agree, the higher confidence holds"
    said = f"{second.tool} confirms {first.verdict.bottleneck.value}: {_shares(first, second, cause)}"
    return Ruling(
        status=HandoverStatus.CONFIRMED,
        sentence=f"{said}; {doubt}, so the confidence stays" if doubt else said,
        confidence=theirs if is_surer else ours,
        why=why if is_surer else "",
        cause=cause,
        next_tool=second.verdict.next_tool,  # the first's is what was just run
    )


def _contradicted(first: Portrait, second: Portrait, cause: PartAgreement, differs: str) -> Ruling:
    ours, theirs = first.verdict.bottleneck, second.verdict.bottleneck
    limit = MOSTLY_WORK if ours is Bottleneck.KERNEL else OVERTURNED.limit("dominant")
    shares = _shares(first, second, cause)
    slower = _is_more_disturbed(first, second)
    is_gone = cause.agrees is False and cause.second < limit and not slower
    if is_gone and ours in _MADE_BY_PROFILERS and not differs:
        return Ruling(
            status=HandoverStatus.OVERTURNED,
            sentence=f"{second.tool} overturns {ours.value}: {shares}; it is {theirs.value}",
            confidence=second.verdict.confidence,
            why=f"from {second.tool}: its verdict replaces the other",
            cause=cause,
        )
    if differs:
        reason, tool = differs, _again(first)
    elif cause.agrees is None:
        reason = "with one step on a side, the variation of steps is unknown"
        tool = _longer_capture(first, second)
    elif slower:
        reason = f"{slower}, so {second.tool} disturbs the job more"
        tool = operators(first.scope, *_UNDISTURBED)
    elif is_gone:
        reason = f"a profiler cannot cause {cause_words(ours)}: the runs differ, record both again"
        tool = _again(first)
    elif cause.agrees and abs(cause.difference) > OPEN.limit("floor"):
        reason = "the steps vary more than the shares differ"
        tool = _longer_capture(first, second)
    elif cause.agrees:
        reason = "the shares agree: the causes are close to each other"
        tool = system_timeline(first.scope, "record the same steps for longer", "which of the two causes stays")
    else:
        reason = f"the cause stays above {format_fraction(limit)} in {second.tool} too"
        tool = operators(first.scope, *_UNDISTURBED)
    before = first.verdict.confidence
    after = min(before, OPEN.limit("doubt"))
    return Ruling(
        status=HandoverStatus.OPEN,
        sentence=f"{second.tool} says {theirs.value}, {first.tool} {ours.value}: {shares}; {reason}",
        confidence=after,
        why=f"{before:.2f} -> {after:.2f}: contradicted, not resolved" if after < before else "",
        cause=cause,
        next_tool=tool,
    )


_AGAIN: Final = (
    "record again: does the cause come back?",
    "the same part of the budget in each of several captures",
)
_UNDISTURBED: Final = (
    "time steps without any profiler: trust the tool whose steps come closer",
    "the check profiler.cost, and unprofiled_step_ns of both captures",
)


def _again(first: Portrait) -> NextTool:
    return operators(first.scope, *_AGAIN)


def _longer_capture(first: Portrait, second: Portrait) -> NextTool:
    short = first if first.step_ns.size <= second.step_ns.size else second
    return recapture(
        short.scope, "record more steps: so few do not show the variation", "5 steps or more in each capture"
    )


def _is_more_disturbed(first: Portrait, second: Portrait) -> str:
    """How the second tool's steps show that it disturbs the job more than the first, "" where they do not.

    By the distance to steps timed without a profiler where they are known, else by whose steps are longer.
    """
    plain = first.unprofiled_step_ns or second.unprofiled_step_ns
    means = first.mean_step_ns, second.mean_step_ns
    if plain:
        away = [abs(mean - plain) / plain for mean in means]
        if away[1] > away[0] + OVERTURNED.limit("same_step"):
            return (
                f"its steps are {format_fraction(away[1])} away from steps without a profiler, {first.possessive} are"
                f" {format_fraction(away[0])}"
            )
        return ""
    longer = means[1] / means[0] - 1
    return f"its steps are {format_fraction(longer)} longer" if longer > OVERTURNED.limit("same_step") else ""
