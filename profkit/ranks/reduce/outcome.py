"""The job of one worker: a source of traces to what the parent needs of it, some KB to a megabyte, never tables."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from profkit.allocator import return_free_memory
from profkit.analyzers import quality
from profkit.errors import ProfkitError, blamed
from profkit.findings.capture import FEW_STEPS
from profkit.ingest.numbers import rank_in_name
from profkit.ingest.read import read_traces
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.report import Failure, Verdict
from profkit.model.documents.tracks import Tracks
from profkit.model.trace import Trace
from profkit.pipeline import Analysed, analyse
from profkit.ranks.reduce.options import Options
from profkit.ranks.reduce.records import RankSummary
from profkit.ranks.reduce.summary import UNKNOWN_RANK, summarise
from profkit.verdict import Case

_NOT_FOR_RANKS = frozenset({FEW_STEPS.id})
"""Checks that limit what one rank says of its steps, not what 80 collectives say of who is late."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One trace's report with its summary for the other ranks. `summary.rank` is `UNKNOWN_RANK` where nothing tells it.

    `case` is what its verdict was made from; `confidence_cap` the most that a statement on lateness may claim, given
    the faults of the capture.
    """

    report: RankReport
    verdict: Verdict
    case: Case
    summary: RankSummary
    confidence_cap: float
    tracks: Tracks | None = None
    """Where the options ask for them; never kept between runs."""


def outcomes_of(source: str, options: Options) -> tuple[Outcome, ...]:
    """The outcomes of a source: one of torch.profiler's JSON, one for each process of an nsys export."""
    return tuple(_outcome(trace, options) for trace in read_traces(source, lenient=options.lenient, again=True))


def outcome(analysed: Analysed, *, tracks_room: int = 0) -> Outcome:
    """The outcome of a trace that is analysed, with up to `tracks_room` intervals to draw it."""
    return_free_memory(analysed.facts.trace.meta.n_events)
    said = analysed.rank.rank
    named = rank_in_name(analysed.rank.source.rpartition("/")[2])
    rank = named if said is None and named >= 0 else said
    gate: quality.Quality = analysed.results["quality"]
    return Outcome(
        report=replace(
            analysed.rank, rank=rank, findings=tuple(replace(finding, rank=rank) for finding in analysed.rank.findings)
        ),
        verdict=replace(analysed.verdict, rank=rank),
        case=replace(analysed.case, rank=rank),
        summary=summarise(analysed.facts, rank=UNKNOWN_RANK if rank is None else rank),
        confidence_cap=quality.confidence_cap(gate, without=_NOT_FOR_RANKS),
        tracks=_drawn(analysed, tracks_room),
    )


def _drawn(analysed: Analysed, room: int) -> Tracks | None:
    if not room:
        return None
    from profkit.tracks import tracks_of  # only where a page asks for it

    return tracks_of(analysed, room=room)


def _outcome(trace: Trace, options: Options) -> Outcome:
    analysed = analyse(trace, step_range=options.step_range, command=options.command, is_alone=False)
    with blamed("summing it up for the other ranks", trace.meta.source):
        return outcome(analysed, tracks_room=options.tracks_room)


def failure_of(source: str, error: Exception) -> Failure:
    """Why a source could not be analysed, in one line."""
    message = error.message if isinstance(error, ProfkitError) else str(error).partition("\n")[0]
    return Failure(source=source, error=type(error).__name__, message=message or "no reason given")
