"""Which of several ranks `profkit where` shows: the late one, or the one asked for."""

from __future__ import annotations

import msgspec

from profkit.cli.shared.ranks import Plan, report_on
from profkit.errors import UsageError
from profkit.findings.ranks.stragglers import LATE_RANK, RANK0
from profkit.ingest.discover import find_sources
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.report import Report
from profkit.model.finding import Finding
from profkit.ranks.reduce.options import Options
from profkit.render.words.triage import shown_rank
from profkit.units import format_numbers

_OF_RANKS = (LATE_RANK.id, RANK0.id)


class OneRank(msgspec.Struct, frozen=True, kw_only=True):
    """A trace, and why it is this one of several."""

    source: str
    rank: int | None = None
    """None where the trace does not say, or was not read yet."""
    n_ranks: int = 1
    chosen: str = ""
    findings: tuple[Finding, ...] = ()
    """What ranks compared with each other show of this one."""


def one_rank(path: str, rank: int | None, *, lenient: bool) -> OneRank:
    """The trace that a path means: the only one, that of `rank`, else that of which the verdict on all of them is.

    Raises UsageError where no trace, or several, are of that rank.
    """
    sources = find_sources([path])
    if len(sources) == 1:
        return OneRank(source=sources[0], rank=rank)
    report = report_on(sources, Options(lenient=lenient), Plan())
    shown = shown_rank(report) if rank is None else _asked(report, rank)
    if shown is None:
        raise UsageError(f"{path} holds no trace that could be read", hint="profkit triage says why")
    mine = [one for one in report.findings if one.id in _OF_RANKS and one.rank == shown.rank]
    late = next((one.title for one in mine), "the verdict on all of them is from this one; --rank N shows another")
    return OneRank(
        source=shown.source,
        rank=shown.rank,
        n_ranks=len(report.ranks),
        chosen="asked for" if rank is not None else late,
        findings=tuple(one for one in mine if one.places),
    )


def _asked(report: Report, rank: int) -> RankReport:
    found = [one for one in report.ranks if one.rank == rank]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{len(found)} traces are of rank {rank}", hint=f"name one: profkit where {found[0].source}")
    there = sorted({one.rank for one in report.ranks if one.rank is not None})
    hint = f"there are ranks {format_numbers(there)}" if there else "the traces do not say their ranks"
    raise UsageError(f"no trace is of rank {rank}", hint=hint)
