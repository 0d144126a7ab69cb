"""Traces of one tool with another tool's results beside them, to one report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from profkit.crosscheck.compared_timelines import timeline
from profkit.crosscheck.kernel_evidence import profiled
from profkit.crosscheck.sources import Sources
from profkit.crosscheck.trace_profile import Portrait, portrait_of
from profkit.errors import ProfkitError
from profkit.ingest.bytes.bytesource import Progress
from profkit.ingest.ncu.reader import read_profiles
from profkit.ingest.read import read_traces
from profkit.kernels.assess import assess_all
from profkit.model.documents.handover import Handover, HandoverStatus, KernelHandover, TimelineHandover
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.report import Failure, Report, Verdict
from profkit.model.kernel import KernelReport
from profkit.model.trace import Trace
from profkit.pipeline import analyse
from profkit.ranks.reduce.options import Options
from profkit.ranks.reduce.outcome import failure_of
from profkit.redact import shown_url

_MAX_NAMED: Final = 8

Pairs = list[tuple[Portrait, Portrait]]


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How traces are read and judged, and in how many processes."""

    options: Options
    jobs: int = 1
    progress: Progress | None = None


def handed_over(report: Report, sources: Sources, reading: Reading) -> Report:
    """The report with what the second tool says of it; `report` was made from `sources.first`.

    Traces of the first tool with a partner are read again here, for what a report does not keep: launches and steps.
    What cannot be read of the second tool is a failure of the report, which stays as it was where that is all of it.
    """
    failures: list[Failure] = []
    seconds: list[Portrait] = []
    for source in sources.timelines:
        try:
            seconds += _portraits((source,), reading)
        except ProfkitError as error:
            failures.append(failure_of(source, error))
    kernels = _kernels(sources.profiles, failures)
    if not seconds and kernels is None:
        return replace(report, failures=(*report.failures, *failures))
    firsts = [_as_reported(one, report) for one in _portraits(_needed(report, seconds, sources.first), reading)]
    pairs, unpaired = paired(firsts, seconds) if seconds else ([], ())
    done = {(first.rank.source, first.rank.rank) for first, _ in pairs}
    if seconds and firsts:
        alone = [rank for rank in report.ranks if (rank.source, rank.rank) not in done]
        unpaired = (*without_partner(alone, firsts[0].tool), *unpaired)
    timelines = tuple(timeline(first, second) for first, second in pairs)
    shown = _shown(report.verdict, firsts)
    own = next((place for place, (first, _) in enumerate(pairs) if first is shown), None)
    told = _together(timelines, profiled(shown, kernels) if kernels is not None else None, unpaired, own)
    report = replace(report, handover=told, failures=(*report.failures, *failures))
    return _ruled(report, None) if own is None else _ruled(report, timelines[own], pairs[own][1])


def paired(firsts: Sequence[Portrait], seconds: Sequence[Portrait]) -> tuple[Pairs, tuple[str, ...]]:
    """The pairs, in the order of the first tool's, and a sentence for those of the second without a partner.

    By rank, else by device; one trace on either side are a pair whatever they are called. A rank or a device that
    occurs twice on a side pairs nothing.
    """
    if len(firsts) == len(seconds) == 1:
        return [(firsts[0], seconds[0])], _other_rank(firsts[0], seconds[0])
    pairs: Pairs = []
    left = list(seconds)
    for first in firsts:
        partner = _partner(first, firsts, left)
        if partner is not None:
            left.remove(partner)
            pairs.append((first, partner))
    return pairs, without_partner([one.rank for one in left], seconds[0].tool if seconds else "")


def without_partner(ranks: Sequence[RankReport], tool: str) -> tuple[str, ...]:
    """One sentence on a tool's ranks without a partner, () where there are none."""
    if not ranks:
        return ()
    names = [str(one.rank) if one.rank is not None else one.source for one in ranks]
    named = ", ".join(names[:_MAX_NAMED])
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return (f"no partner for rank {named}{more} of {tool}",)


def _partner(first: Portrait, firsts: Sequence[Portrait], left: Sequence[Portrait]) -> Portrait | None:
    if first.rank.rank is not None and all(other.rank.rank is not None for other in left):
        ours = [one for one in firsts if one.rank.rank == first.rank.rank]
        theirs = [one for one in left if one.rank.rank == first.rank.rank]
    else:
        ours = [one for one in firsts if one.device == first.device]
        theirs = [one for one in left if one.device == first.device]
    return theirs[0] if len(ours) == len(theirs) == 1 else None


def _other_rank(first: Portrait, second: Portrait) -> tuple[str, ...]:
    ranks = first.rank.rank, second.rank.rank
    if None in ranks or ranks[0] == ranks[1]:
        return ()
    return (f"rank {ranks[0]} of {first.tool} is compared with rank {ranks[1]} of {second.tool}: one trace each",)


def _as_reported(portrait: Portrait, report: Report) -> Portrait:
    """A portrait with the rank as the report has it, which may know it from the file's name."""
    same = [rank for rank in report.ranks if rank.source == portrait.rank.source]
    return replace(portrait, rank=same[0]) if len(same) == 1 else portrait


def _needed(report: Report, seconds: Sequence[Portrait], given: Sequence[str]) -> list[str]:
    """The sources of the first tool to read again: the verdict's, and those of ranks that the second tool has.

    As they were given: a report has URLs without their secrets, which fetch nothing.
    """
    theirs = {second.rank.rank for second in seconds}
    is_known = None not in theirs and all(rank.rank is not None for rank in report.ranks)
    chosen = [
        rank.source
        for rank in report.ranks
        if rank.source == report.verdict.source or (bool(seconds) and (not is_known or rank.rank in theirs))
    ]
    whole = {shown_url(source): source for source in given}
    return [whole.get(source, source) for source in dict.fromkeys(chosen or [report.ranks[0].source])]


def _portraits(sources: Iterable[str], reading: Reading) -> list[Portrait]:
    options = reading.options

    def portrait(trace: Trace) -> Portrait:
        return portrait_of(analyse(trace, step_range=options.step_range, command=options.command))

    found: list[Portrait] = []
    for source in sources:
        # map, not a loop variable: a trace is gone before the next one of the file is made
        found += map(
            portrait, read_traces(source, lenient=options.lenient, jobs=reading.jobs, progress=reading.progress)
        )
    return found


def _kernels(sources: Sequence[str], failures: list[Failure]) -> KernelReport | None:
    read = []
    for source in sources:
        try:
            read.append((source, read_profiles(source)))
        except ProfkitError as error:
            failures.append(failure_of(source, error))
    if not read:
        return None
    return assess_all(
        [profile for _, one in read for profile in one.profiles],
        sources=[source for source, _ in read],
        warnings=[warning for _, one in read for warning in one.warnings],
    )


def _shown(verdict: Verdict, portraits: Sequence[Portrait]) -> Portrait:
    """The portrait of the trace that the report's verdict speaks of."""
    wanted = verdict.source, verdict.rank
    return next((one for one in portraits if (one.rank.source, one.rank.rank) == wanted), portraits[0])


def _together(
    timelines: tuple[TimelineHandover, ...],
    kernels: KernelHandover | None,
    unpaired: tuple[str, ...],
    own: int | None,
) -> Handover:
    """The whole hand-over; its status is that of the timeline of the rank shown, else that of the profiles.

    `own` is the place of that timeline, None where the rank has none.
    """
    leading = timelines[own or 0] if timelines else None
    merged = leading if leading is not None and leading.status is not HandoverStatus.REFUSED else kernels or leading
    if merged is None:
        sentence = "no trace of the second tool is of a rank of the first"
        return Handover(status=HandoverStatus.REFUSED, sentence=sentence, unpaired=unpaired)
    sentence = merged.sentence
    if len(timelines) > 1 and merged is leading:
        n = sum(line.status is merged.status for line in timelines)
        sentence += f" (the same on {n} of {len(timelines)} ranks)"
    return Handover(status=merged.status, sentence=sentence, timelines=timelines, kernels=kernels, unpaired=unpaired)


_TAKES_OVER: Final = (HandoverStatus.OVERTURNED, HandoverStatus.ANSWERED)


def _ruled(report: Report, own: TimelineHandover | None, second: Portrait | None = None) -> Report:
    """The report with its verdict as the second tool leaves it: surer, in doubt, or replaced; and what is next.

    `own` is the timeline of the rank shown, made from `second`. Only where the report's verdict is that rank's; a
    verdict on all ranks together stays.
    """
    told = report.handover
    assert told is not None  # noqa: S101 - set by the caller
    verdict = report.verdict
    line = own if own is not None and _is_of(own, report) else None
    if line is not None and second is not None and line.status in _TAKES_OVER:
        return _replaced(report, line, second)
    if line is not None and line.status is not HandoverStatus.REFUSED:
        caveats = (*verdict.caveats, line.sentence) if line.status is HandoverStatus.OPEN else verdict.caveats
        tool = line.next_tool or verdict.next_tool
        verdict = replace(verdict, confidence=line.confidence_after, caveats=caveats, next_tool=tool)
    kernels = told.kernels
    if kernels is not None and kernels.status is HandoverStatus.CONFIRMED and kernels.next_tool is not None:
        verdict = replace(verdict, next_tool=kernels.next_tool)
    return replace(report, verdict=verdict)


def _is_of(line: TimelineHandover, report: Report) -> bool:
    """Whether a timeline was judged on the verdict that the report gives, not on one that other ranks changed."""
    rank = report.verdict.rank
    return line.rank == rank and line.first_bottleneck == report.verdict.bottleneck.value


def _replaced(report: Report, line: TimelineHandover, second: Portrait) -> Report:
    """The report with the second tool's rank in place of the first's; the first's goes beside it."""
    first = next(rank for rank in report.ranks if (rank.source, rank.rank) == (report.verdict.source, line.rank))
    ranks = tuple(second.rank if rank is first else rank for rank in report.ranks)
    told = report.handover
    assert told is not None  # noqa: S101 - set by the caller
    lines = tuple(replace(one, other_rank=first) if one is line else one for one in told.timelines)
    return replace(
        report,
        verdict=replace(second.verdict, caveats=(*second.verdict.caveats, line.sentence)),
        ranks=ranks,
        findings=tuple(finding for rank in ranks for finding in rank.findings),
        skipped=tuple(dict.fromkeys(skip for rank in ranks for skip in rank.skipped)),
        handover=replace(told, timelines=lines),
    )
