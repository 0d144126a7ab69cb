"""Paths to a comparison, a scaling study or a ladder: which are tables and which traces, and what is read of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

from profkit.compare.captures.sides import read_side
from profkit.compare.comparison import compare
from profkit.compare.ladder.cells import Asked
from profkit.compare.ladder.study import climb_table
from profkit.compare.scaling.study import scale, traced_table
from profkit.compare.stats.judge import DEFAULT_MARGIN, judge
from profkit.compare.stats.sample import Sample
from profkit.compare.tables.result_tables import ResultTable, is_result_table, matched, read_table
from profkit.errors import UsageError
from profkit.ingest.bytes.bytesource import Progress
from profkit.ingest.discover import path_texts
from profkit.model.documents.comparison import Comparison, SideReport
from profkit.model.documents.ladder import LadderReport
from profkit.model.documents.scaling import Held, ScalingReport

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]


def compare_paths(
    baseline: Paths,
    candidate: Paths | None = None,
    *,
    margin: float = DEFAULT_MARGIN,
    metric: str | None = None,
    lenient: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Whether the candidate is faster than the baseline, by how much, how sure that is, and why.

        profkit.compare("before/", "after/")
        profkit.compare(["a1", "a2", "a3"], ["b1", "b2", "b3"]).judgement.answer
        profkit.compare("results.csv")

    A side is a path or several, each one run: traces, folders of a capture, or a table of results; a table alone holds
    both sides. `margin`: changes below it (a fraction) count as none. `metric`: the measured column of tables.
    Raises UsageError for sides that cannot be compared, TraceError for what cannot be read.
    """
    before = path_texts(baseline, "compare")
    after = [] if candidate is None else path_texts(candidate, "compare")
    are_tables = {is_result_table(Path(path)) for path in (*before, *after)}
    if are_tables == {True}:
        return compare_tables([*before, *after], metric=metric, margin=margin)
    if True in are_tables:
        raise UsageError("a table and a trace cannot be compared", hint="give tables on both sides, or traces")
    if not after:
        raise UsageError(f"{before[0]} is one side", hint="name the other one as well: profkit compare A B")
    if metric is not None:
        raise UsageError("--metric names a column, but these are traces", hint="leave it out")
    sides = [
        read_side(name, paths, lenient=lenient, progress=progress)
        for name, paths in (("baseline", before), ("candidate", after))
    ]
    return compare(*sides, margin=margin)


def scale_paths(
    paths: Paths,
    *,
    held: Held | str | None = None,
    metric: str | None = None,
    capacity_bytes: float | None = None,
    lenient: bool = False,
    progress: Progress | None = None,
) -> ScalingReport:
    """The scaling study that `profkit.scaling` gives, of tables or of folders of captures."""
    given = path_texts(paths, "scaling")
    named = [path for path in given if is_result_table(Path(path))]
    folders = [path for path in given if path not in named]
    tables = [read_table(path, metric=metric) for path in named]
    traces = None
    if folders:
        side = read_side("runs", folders, lenient=lenient, progress=progress)
        table, traces = traced_table(", ".join(folders), side.runs)
        tables = tables or [table]
    return scale(tables, held=None if held is None else Held(held), capacity_bytes=capacity_bytes, traces=traces)


def ladder(  # noqa: PLR0913 - each by name
    path: str | PathLike[str],
    *,
    order: str | None = None,
    rung: str | None = None,
    series: Iterable[str] | None = None,
    settings: Iterable[str] = (),
    metric: str | None = None,
    margin: float | None = None,
) -> LadderReport:
    """What each rung of a ladder of changes gave, what it cost in memory, and which change turns from gain to loss.

        profkit.ladder("runs.csv").ladders[0].total
        profkit.ladder("runs.csv", order="fp32,bf16,compile|liger,packing")

    `path`: a table with a row for each run. `order`: the rungs from the base up, alternatives with `|`. `rung`,
    `series`, `settings`, `metric`: the columns that name rungs, tell series apart, configure and measure, where their
    headings do not tell. `margin`: changes below it (a fraction) count as none. Raises UsageError, or TraceError for
    what cannot be read.
    """
    given = path_texts(path, "ladder")
    if len(given) > 1:
        raise UsageError(f"a ladder is of one table, not {len(given)}", hint="put all runs into one")
    if margin is not None and not 0 <= margin < 1:
        raise UsageError(f"margin={margin}: a share from 0 to below 1")
    asked = Asked(
        order=order,
        rung=rung,
        series=None if series is None else tuple(series),
        settings=tuple(settings),
        metric=metric,
        margin=DEFAULT_MARGIN if margin is None else margin,
    )
    return climb_table(given[0], asked)


def compare_tables(paths: Sequence[str], *, metric: str | None = None, margin: float = DEFAULT_MARGIN) -> Comparison:
    """The comparison of two tables, or of the two arms of one; raises UsageError where it is not clear which.

    Each configuration that both sides have is judged by itself, without a why. Of several the one that
    fared worst stands in front.
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
