"""Result tables to a comparison: each configuration that both sides have is judged by itself; there is no why."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.compare.stats.judge import DEFAULT_MARGIN, judge
from profkit.compare.stats.sample import Sample
from profkit.compare.tables.result_tables import ResultTable, matched, read_table
from profkit.errors import UsageError
from profkit.model.documents.comparison import Comparison, SideReport


def compare_tables(paths: Sequence[str], *, metric: str | None = None, margin: float = DEFAULT_MARGIN) -> Comparison:
    """The comparison of two tables, or of the two arms of one; raises UsageError where it is not clear which.

    Of several configurations the one that fared worst stands in front.
    """
    tables = [read_table(path, metric=metric) for path in paths]
    if len(tables) > 2:
        raise UsageError(f"{len(tables)} tables to compare", hint="put all runs of a side into one table")
    cells = _two_arms(tables[0]) if len(tables) == 1 else matched(tables[0], tables[1])
    judged = [
        (name, judge(old, new, margin=margin, metric=tables[0].metric.column), old, new) for name, old, new in cells
    ]
    _, worst, old, new = min(judged, key=lambda item: item[1].effect)
    caveats = [warning for table in tables for warning in table.warnings]
    caveats.append("tables hold no traces: they show whether it changed, not why")
    if len(judged) > 1:
        caveats.append(f"{len(judged)} configurations, each judged alone: one of many can look changed by chance")
    return Comparison(
        judgement=worst,
        baseline=_side(old, tables[0].source),
        candidate=_side(new, tables[-1].source),
        waterfall=None,
        compute=None,
        comm=None,
        findings=(),
        readings=(),
        unlike=(),
        caveats=tuple(caveats),
        configurations=tuple((name, judgement) for name, judgement, _, _ in judged) if len(judged) > 1 else (),
    )


def _two_arms(table: ResultTable) -> list[tuple[str, Sample, Sample]]:
    arms = table.arms()
    if len(arms) != 2:
        raise UsageError(
            f"{table.source} holds {len(arms)} arm{'s' * (len(arms) != 1)}, not two: {'; '.join(list(arms)[:4])}",
            hint="name two tables, or keep two values in the column 'arm'; profkit scaling reads series",
        )
    baseline, candidate = arms.values()
    return [(f"{baseline.name} -> {candidate.name}", baseline, candidate)]


def _side(sample: Sample, source: str) -> SideReport:
    return SideReport(
        name=sample.name,
        sources=(source,),
        n_runs=len(sample.values),
        n_traces=0,
        n_steps=sum(len(run) for run in sample.steps),
        device="",
        is_cpu=False,
        bottleneck="",
        occupancy={},
        busy_comm_ns=0,
        hidden_comm_ns=0,
        peak_memory_bytes=None,
        run_values=sample.values,
    )
