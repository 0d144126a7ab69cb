"""Paths to a comparison, a scaling study or a ladder: which are tables and which traces, and what is read of each."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from pathlib import Path

from profkit.compare.captures.sides import read_side
from profkit.compare.comparison import compare
from profkit.compare.ladder.study import Asked, climb_table
from profkit.compare.results import compare_tables
from profkit.compare.scaling.study import scale
from profkit.compare.scaling.traced import traced_table
from profkit.compare.stats.judge import DEFAULT_MARGIN
from profkit.compare.tables.result_tables import is_result_table, read_table
from profkit.errors import UsageError
from profkit.ingest.bytes.bytesource import Progress
from profkit.ingest.discover import path_texts
from profkit.model.documents.comparison import Comparison
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
