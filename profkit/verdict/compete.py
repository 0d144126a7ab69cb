"""Which findings compete for a verdict: what their kinds say of each other, applied to one rank and to many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from msgspec.structs import replace

from profkit.findings import kind_of
from profkit.findings.host import LAUNCH_BOUND
from profkit.findings.kernels import UNFUSED
from profkit.findings.kind import Way
from profkit.model.finding import UNSURE, Finding

_OF_QUESTION: Final = 0.5
"""Of the time of a question, from which a surer finding comes before it. Chosen: it then explains most of it."""
_GENERIC: Final = frozenset({UNFUSED.id, LAUNCH_BOUND.id})
"""What most programs have, and names no single thing to change."""
Explains = Callable[[Finding, Finding], float]
"""The share (0-1) of the second finding's time that the first one explains; negative: it is not known."""


def by_time(one: Finding, other: Finding) -> float:
    """One finding's time over another's of the same rank, as if the smaller lay inside the larger."""
    if one.rank != other.rank:
        return 0.0
    return one.fraction / other.fraction if other.fraction else 1.0


def superseding(
    finding: Finding, others: Iterable[Finding], *ways: Way, explains: Explains = by_time
) -> Finding | None:
    """The first of other findings to which one gives way in one of these ways; None: it stands."""
    return next(
        (
            other
            for other in others
            for rule in kind_of(other.id).supersedes
            if rule.id == finding.id and rule.way in ways and explains(other, finding) >= rule.share
        ),
        None,
    )


def said_once(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings of one trace without those that another one names, if that one is sure enough to stand for both."""
    sure = [finding for finding in findings if finding.confidence > UNSURE]
    return tuple(one for one in findings if superseding(one, sure, Way.SAID_ONCE) is None)


def beyond_usual(finding: Finding, *, is_cpu: bool) -> float:
    """The part (0-1) of a finding's time that competes: on a CPU without what ordinary programs have of its kind.

    What one stretch of each step has competes whole: ordinary programs have theirs in many short ones.
    """
    kind = kind_of(finding.id)
    if not is_cpu or "usual" not in kind.thresholds:
        return 1.0
    whole = finding.fraction
    return min(max(1 - kind.limit("usual") / whole, finding.one_stretch / whole, 0.0), 1.0) if whole else 0.0


def ranked_causes(findings: Sequence[Finding], *, is_alone: bool = True, is_cpu: bool = False) -> list[Finding]:
    """The causes, the largest expected saving first; of two on the same time the one that names what to change.

    Of many ranks (not `is_alone`) by their shares: what a fix saves one rank, waits for others may take again.
    """
    named = [finding for finding in findings if kind_of(finding.id).bottleneck is not None]
    standing = [
        _with_joined(finding, named)
        for finding in named
        if superseding(finding, findings, Way.JOINED, Way.BEHIND) is None
    ]
    first = order if is_alone else by_share
    return sorted(standing, key=partial(first, is_cpu=is_cpu))


def ranked_work(findings: Sequence[Finding], *, is_cpu: bool = False) -> list[Finding]:
    """Findings on the work: those that lead, then those whose change no other one names, by what a fix saves.

    A question (no part of the budget, no surer than `UNSURE`) comes behind a surer finding that has half of its time.
    """
    named = [one for one in findings if one.confidence > UNSURE and one.recoverable_ns and one.id not in _GENERIC]

    def is_asked(one: Finding) -> bool:
        is_question = one.confidence <= UNSURE and kind_of(one.id).part is None  # no measured idle time
        return is_question and any(by_time(other, one) >= _OF_QUESTION for other in named)

    def place(one: Finding) -> tuple[bool, bool, tuple[float, float]]:
        is_behind = is_asked(one) or superseding(one, findings, Way.BEHIND) is not None
        return not kind_of(one.id).leads, is_behind, order(one, is_cpu=is_cpu)

    return sorted(findings, key=place)


def order(finding: Finding, *, is_cpu: bool = False) -> tuple[float, float]:
    """Its place among findings, the least first: by what a fix saves at most, as the ceiling says, times how sure.

    Not by its part of the bar, which is where time goes, not what a change gives. With `is_cpu`, what is usual there
    does not count.
    """
    return -expected_ns(finding, is_cpu=is_cpu), by_share(finding, is_cpu=is_cpu)


def expected_ns(finding: Finding, *, is_cpu: bool = False) -> float:
    """What a fix saves at most, times how sure the finding is, ns."""
    return finding.recoverable_ns * beyond_usual(finding, is_cpu=is_cpu) * finding.confidence


def by_share(finding: Finding, *, is_cpu: bool = False) -> float:
    """Its place by its part of the window, times how sure, the least first."""
    return -finding.fraction * beyond_usual(finding, is_cpu=is_cpu) * finding.confidence


def led_by(lead: Finding | None, others: Iterable[Finding]) -> list[Finding]:
    """The finding of the headline, then the others, the largest expected saving first."""
    rest = sorted(others, key=order)
    return rest if lead is None else [lead, *(one for one in rest if one is not lead)]


def _with_joined(one: Finding, named: Sequence[Finding]) -> Finding:
    """A finding with the first evidence of those that joined it, and no more confidence than they have."""
    for other in named:
        if superseding(other, [one], Way.JOINED) is not None:
            evidence = (*one.evidence, *other.evidence[:2])
            one = replace(one, evidence=evidence, confidence=min(one.confidence, other.confidence))
    return one


def put_first(causes: Sequence[Finding]) -> Sequence[Finding]:
    """Ranked causes, with the one in front to which the largest comes second, unless that one has half of the step."""
    top, kind = causes[0], kind_of(causes[0].id)
    ahead = [cause for cause in causes if superseding(top, [cause], Way.SECOND) is not None]
    if not ahead or top.fraction >= kind.limit("headline"):
        return causes
    first = min(ahead, key=order)
    return causes if first.fraction < kind.limit("window") else [first, *(one for one in causes if one is not first)]
