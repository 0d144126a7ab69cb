"""What `import profkit` offers: traces to the report, one alone or all ranks of a job together; scaling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Final

from profkit.errors import ProfkitError, TraceError, UnsupportedTraceError
from profkit.ingest.bytes.bytesource import Progress
from profkit.ingest.discover import find_sources, path_texts
from profkit.ingest.read import read_traces
from profkit.model.documents.report import Failure, Report
from profkit.ranks.reduce.options import Options
from profkit.redact import shown_url

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from profkit.model.documents.scaling import Held, ScalingReport
    from profkit.model.documents.tracks import Tracks
    from profkit.pipeline import Analysed
    from profkit.ranks.reduce.outcome import Outcome
    from profkit.ranks.run.jobs import Finished, Keeping

Paths = str | PathLike[str] | Iterable[str | PathLike[str]]
"""One path or several."""
MAX_FULL: Final = 64
"""Ranks up to which the report carries each one's tables; of more, `profkit triage` on a file shows them. Chosen: 20 to
50 KB each, which nobody reads of hundreds."""


def triage(  # noqa: PLR0913 - each by name
    paths: Paths,
    *,
    lenient: bool = False,
    jobs: int = 1,
    step_range: tuple[int, int] | None = None,
    command: str | None = None,
    progress: Progress | None = None,
    with_tracks: bool = False,
) -> Report:
    """The report on one trace or several (one per rank): a file, a folder as a capture's, or several of them.

        profkit.triage("trace.json.gz").verdict.bottleneck

    An nsys export gives a trace for each process with kernels. One source that cannot be read raises; of several, the
    bad ones become `Report.failures` unless all are bad. All is done in this process; `triage_ranks` takes workers.
    `with_tracks`: with the rows that a page or another viewer draws (`Report.tracks`).
    Raises UsageError for what names no file: neither a path nor several of them.
    """
    sources = find_sources(path_texts(paths, "triage"))
    room = room_for(len(sources)) if with_tracks else 0
    options = Options(lenient=lenient, step_range=step_range, command=command, tracks_room=room)
    if len(sources) == 1:
        return _of_one_source(sources[0], options, jobs=jobs, progress=progress)
    from profkit.ranks.run.workers import Here

    return triage_ranks(sources, options, executor=Here())


def scaling(
    paths: Paths,
    *,
    held: Held | str | None = None,
    metric: str | None = None,
    capacity_bytes: float | None = None,
    lenient: bool = False,
) -> ScalingReport:
    """Strong and weak scaling efficiency with intervals, and whether the baseline is fit to give them.

        profkit.scaling("results.csv").series[0].largest.efficiency
        profkit.scaling(["run2/", "run4/", "run8/"], held="weak")

    `paths`: tables with a row for each run, or folders of captures, one for each run. `held`: what stays the same,
    "strong" (work per step) or "weak" (work per GPU), if the table does not tell. `capacity_bytes`: memory of one GPU.
    Raises UsageError, or TraceError for what cannot be read.
    """
    from profkit.compare.paths import scale_paths

    return scale_paths(paths, held=held, metric=metric, capacity_bytes=capacity_bytes, lenient=lenient)


def triage_ranks(
    sources: Sequence[str],
    options: Options | None = None,
    *,
    executor: Executor | None = None,
    n_workers: int = 1,
    keeping: Keeping | None = None,
    tell: Callable[[Finished], None] | None = None,
) -> Report:
    """The report on many ranks, each read by a worker.

    `executor`: any `concurrent.futures.Executor` whose workers see the sources, with `n_workers` workers; it is not
    shut down. Without one, that many processes are made here. `keeping`: where finished ranks are kept and looked for.
    A source that cannot be analysed becomes a `Failure`; `tell` hears of each that ends, and may raise to end the run.
    Raises the last error if none can be analysed.
    """
    from profkit.ranks.run.jobs import Job
    from profkit.ranks.run.workers import Gathering, finished, pool_of

    options = options or Options()
    is_slim = len(sources) > MAX_FULL
    jobs = [Job(source=source, options=options, keeping=keeping, is_slim=is_slim) for source in sources]
    place = {source: number for number, source in enumerate(sources)}
    empty: list[Finished] = []
    with pool_of(n_workers, executor) as pool:
        gathering = Gathering(pool)
        for result in finished(jobs, pool):
            gathering.add(place[result.source], result)
            if result.is_empty:
                empty.append(result)
            if tell is not None:
                tell(result)
            del result  # what it holds is in the gathering, or merged already
        gathering.end()
    empty.sort(key=lambda result: place[result.source])  # as they were given, whichever ended first
    outcomes = gathering.outcomes()
    if not outcomes:
        raise error_of(empty[-1])
    return _together(outcomes, [result.failure for result in empty if result.failure is not None], options)


def error_of(result: Finished) -> ProfkitError:
    """The error of a job that came to nothing, as its own kind where that is one of ours."""
    from profkit import errors

    failure = result.failure
    if failure is None:
        return UnsupportedTraceError(
            f"{shown_url(result.source)} holds no trace", hint="profkit info shows what is in a file"
        )
    named = getattr(errors, failure.error, None)
    kind = named if isinstance(named, type) and issubclass(named, ProfkitError) else TraceError
    hint = result.hint or "profkit triage -v on that file alone shows more"
    error: ProfkitError = kind(failure.message, hint=hint)
    return error


def _of_one_source(source: str, options: Options, *, jobs: int, progress: Progress | None) -> Report:
    several: list[Outcome] = []
    load = partial(import_module, "profkit.pipeline")  # its analyzers take long to import
    for trace in read_traces(source, lenient=options.lenient, jobs=jobs, progress=progress, meanwhile=load, again=True):
        from profkit.pipeline import alone, analyse

        is_alone = trace.meta.n_in_source == 1  # the file's only trace: no other rank needs a summary of it
        analysed = analyse(trace, step_range=options.step_range, command=options.command, is_alone=is_alone)
        if is_alone:
            told = alone(analysed)
            return Report(
                verdict=told.verdict,
                ranks=(told.rank,),
                findings=told.rank.findings,
                skipped=told.rank.skipped,
                tracks=_drawn(told, options.tracks_room),
            )
        from profkit.ranks.reduce.outcome import outcome

        several.append(outcome(analysed, tracks_room=options.tracks_room // trace.meta.n_in_source))
        del analysed, trace  # a trace is gone before the next one of the file is made
    return _together(several, [], options)


def room_for(n_ranks: int) -> int:
    """How many intervals of each of so many ranks a page has room for; none where it has no tables of them either."""
    from profkit.tracks.rows import ROOM

    return ROOM // max(n_ranks, 1) if n_ranks <= MAX_FULL else 0


def _drawn(analysed: Analysed, room: int) -> tuple[Tracks, ...]:
    if not room:
        return ()
    from profkit.tracks import tracks_of  # only where a page asks for it

    return (tracks_of(analysed, room=room),)


def _together(outcomes: Sequence[Outcome], failures: Sequence[Failure], options: Options) -> Report:
    from profkit.ranks.run.fleet_report import report_of

    return report_of(outcomes, failures, options)
