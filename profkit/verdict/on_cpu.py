"""What a removal gives on a CPU: more than the time of its cause, which also took caches and cores from the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from profkit.findings import kind_of
from profkit.findings.communication import SENDS_METRIC
from profkit.findings.kind import FindingKind
from profkit.findings.patterns import GIL
from profkit.model.documents.report import Bottleneck, Verdict, speedup
from profkit.model.finding import Finding

BEYOND: Final = 0.25
"""What removals have saved beyond the time of their cause, as a share of it, or of the rest of the step where that is
shorter: nine of ten no more (docs/accuracy.md)."""
BEYOND_SHARED: Final = 0.6
"""The same of what ranks do together, and of what holds Python's lock: both take cores and time from the work beside
them. Chosen after the first looks of docs/accuracy.md: a quarter more was too little for most of such causes there."""
_SHARES_CORES: Final = (Bottleneck.COMM, Bottleneck.STRAGGLER)


def beyond_of(kind: FindingKind) -> float:
    """What a removal of that cause saves beyond its time, as a share of it."""
    return BEYOND_SHARED if kind.bottleneck in _SHARES_CORES or kind.id == GIL.id else BEYOND


def most_share(share: float, beyond: float | None = None) -> float:
    """What a fix saves at most (0-1) of a step of which the cause takes that share.

    `beyond` is `BEYOND` as it is now, unless given: analyses/accuracy asks what profkit says with another one.
    """
    added = BEYOND if beyond is None else beyond
    return share + added * min(share, max(1 - share, 0.0))


def most_of(share: float, *names: str) -> float:
    """The same of causes by the ids of their findings: as of the one that takes most from the rest of the step."""
    return most_share(share, max(beyond_of(kind_of(name)) for name in names))


def most_ns(recoverable_ns: int, whole_ns: int | None, beyond: float | None = None) -> int:
    """What a fix saves at most of a step, or of a window without steps, whose cause takes so long."""
    if not whole_ns:
        return round((1 + (BEYOND if beyond is None else beyond)) * recoverable_ns)
    return round(whole_ns * most_share(recoverable_ns / whole_ns, beyond))


def _is_bound(finding: Finding) -> bool:
    """Whether its time is only a bound of what a fix saves, as that of waits for the work of other stages is."""
    return kind_of(finding.id).is_bound or finding.has(SENDS_METRIC)


def bounded(verdict: Verdict, findings: Sequence[Finding], *, is_cpu: bool) -> tuple[Verdict, tuple[Finding, ...]]:
    """The verdict and all findings with what their fixes save at most, where the time of the cause is no bound."""
    top = verdict.findings[0] if verdict.recoverable_ns and verdict.findings else None
    whole_ns = top.most_recoverable_ns if top is not None else None  # of the part in which the cause lies
    if not is_cpu:
        return replace(verdict, most_recoverable_ns=whole_ns), tuple(findings)

    def most(recoverable_ns: int, part_ns: int | None, name: str) -> int | None:
        if recoverable_ns <= 0 and not part_ns:
            return None
        return most_ns(max(recoverable_ns, part_ns or 0), verdict.step_ns, beyond_of(kind_of(name)))

    def bound(finding: Finding) -> Finding:
        at_most = most(finding.recoverable_ns, finding.most_recoverable_ns, finding.id)
        if _is_bound(finding):
            return replace(finding, recoverable_ns=at_most or 0)
        return replace(finding, most_recoverable_ns=at_most)

    at_most = most(verdict.recoverable_ns, whole_ns, verdict.findings[0].id) if verdict.findings else None
    if verdict.findings and _is_bound(verdict.findings[0]) and at_most and verdict.step_ns:
        ceiling = speedup(1 - at_most / verdict.step_ns)
        verdict, at_most = replace(verdict, recoverable_ns=at_most, speedup_ceiling=ceiling), None
    shown = replace(
        verdict,
        most_recoverable_ns=at_most,
        findings=tuple(map(bound, verdict.findings)),
    )
    return shown, tuple(map(bound, findings))
