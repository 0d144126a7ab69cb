"""Where a trace's time goes in the user's code: of every finding, or of one finding, module, kernel or operator.

In: the trace of one rank, and which of several it is. Out: the `Where` that `profkit where` and the tools of agents
show. Begin with `one_rank`, then `analysed_of`, then `places_of`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from profkit.analyzers.code.tree import HOW_TO_GET, NO_STACKS, ModuleTree, no_stacks, tree_table
from profkit.errors import UnsupportedTraceError, UsageError
from profkit.findings import KINDS
from profkit.findings.ranks.stragglers import LATE_RANK, RANK0
from profkit.ingest.discover import find_sources
from profkit.ingest.read import read_traces
from profkit.model.documents.where import PlacesOf, Where
from profkit.model.finding import Finding
from profkit.pipeline import Analysed, alone, analyse
from profkit.render.words.triage import shown_rank
from profkit.units import format_numbers

if TYPE_CHECKING:
    from profkit.ingest.bytes.bytesource import Progress
    from profkit.model.documents.rank_report import RankReport
    from profkit.model.documents.report import Report

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


def one_rank(path: str, rank: int | None, report_on: Callable[[list[str]], Report]) -> OneRank:
    """The trace that a path means: the only one, that of `rank`, else that of which the verdict on all of them is.

    `report_on`: makes the report on several traces. Raises UsageError where no trace, or several, are of that rank.
    """
    sources = find_sources([path])
    if len(sources) == 1:
        return OneRank(source=sources[0], rank=rank)
    report = report_on(sources)
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


def analysed_of(chosen: OneRank, *, lenient: bool, progress: Progress | None = None) -> Analysed:
    """The trace analysed; raises UnsupportedTraceError where it holds no stacks, UsageError if of another rank."""
    why, others = NO_STACKS, []
    for trace in read_traces(chosen.source, lenient=lenient, progress=progress, again=True):
        told = alone(analyse(trace))
        if chosen.n_ranks == 1 and chosen.rank not in (None, told.rank.rank):
            others.append(told.rank.rank)
            continue
        if told.facts.code is not None or any(one.places for one in told.rank.findings):
            return told
        why, others = no_stacks(trace), []
    if others:
        said = f"is of rank {others[0]}" if others[0] is not None else "does not say its rank"
        raise UsageError(f"{chosen.source} {said}", hint="leave out --rank")
    raise UnsupportedTraceError(f"{chosen.source}: {why}", hint=HOW_TO_GET)


def places_of(analysed: Analysed, chosen: OneRank, what: str = "") -> Where:
    """The places of every finding and the module tree; with `what` those of one finding, module, kernel or operator.

    Raises UsageError where the trace has nothing of that name.
    """
    told = _about(analysed, chosen, what) if what else _all(analysed, chosen)
    rank = analysed.rank.rank if chosen.n_ranks == 1 else chosen.rank
    return replace(told, rank=rank, n_ranks=chosen.n_ranks, chosen=chosen.chosen)


def _all(analysed: Analysed, chosen: OneRank) -> Where:
    """The places of every finding and the module tree."""
    facts = analysed.facts
    measured = analysed.results.get("code")
    tree = measured if isinstance(measured, ModuleTree) else None
    return Where(
        source=facts.trace.meta.source,
        window_ns=facts.window_ns,
        n_steps=facts.n_steps,
        subjects=(
            *(_of_finding(one) for one in (*chosen.findings, *analysed.rank.findings) if one.places),
            *(() if tree is None else _work(tree)),
        ),
        modules=() if tree is None else tree.uses,
        phase_ns={} if tree is None else dict(tree.phase_ns),
        tables=() if tree is None else tree_table(tree),
    )


def _work(tree: ModuleTree) -> tuple[PlacesOf, ...]:
    """All kernels, or on a CPU all operators, by line."""
    if not tree.places:
        return ()
    name = "all operators" if tree.scope.is_cpu else "all kernels and copies"
    share = min(tree.scope.fraction(tree.work_ns), 1.0)
    return (PlacesOf(kind="work", name=name, title="", share=share, ns=tree.work_ns, places=tree.places[:5]),)


def _of_finding(one: Finding) -> PlacesOf:
    return PlacesOf(kind="finding", name=one.id, title=one.title, share=one.fraction, ns=0, places=one.places)


def _about(analysed: Analysed, chosen: OneRank, what: str) -> Where:
    """The places of one thing; raises UsageError where the trace has nothing of that name."""
    facts = analysed.facts
    findings = (*chosen.findings, *analysed.rank.findings)
    found = next((one for one in findings if one.id == what), None)
    if found is not None:
        one = _of_finding(found)
    elif what in KINDS:
        known = ", ".join(finding.id for finding in findings) or "nothing"
        raise UsageError(f"the trace shows no {what}", hint=f"it shows {known}")
    else:
        one = _of_name(analysed, what)
    return Where(source=facts.trace.meta.source, window_ns=facts.window_ns, n_steps=facts.n_steps, subjects=(one,))


def _of_name(analysed: Analysed, what: str) -> PlacesOf:
    from profkit.analyzers.code.about import near, rows_about
    from profkit.timeline.code import shares

    facts = analysed.facts
    subject = rows_about(facts, what)
    if subject is None or facts.code is None:
        like = ", ".join(near(facts, what))
        raise UsageError(
            f"no finding, module, kernel or operator of the trace is called {what!r}",
            hint=f"did you mean {like}?" if like else "profkit where TRACE lists findings and modules",
        )
    total = int(subject.rows.ns.sum())
    names = subject.names[0] if len(subject.names) == 1 else f"{subject.names[0]} and {len(subject.names) - 1} more"
    return PlacesOf(
        kind=subject.kind,
        name=names,
        title="",
        share=min(total / facts.window_ns, 1.0) if facts.window_ns else 0.0,
        ns=total,
        places=shares(facts.code, subject.rows, most=12),
    )
