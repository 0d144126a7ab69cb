"""Traces to the report: one alone, or all ranks of a job judged together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from profkit.errors import ProfkitError
from profkit.ingest.bytesource import Progress
from profkit.ingest.discover import find_sources
from profkit.ingest.read import read_traces
from profkit.model.report import Failure, Report
from profkit.pipeline import analyse
from profkit.ranks.options import Options

if TYPE_CHECKING:
    from profkit.ranks.outcome import Outcome


def triage(
    paths: Sequence[str],
    *,
    lenient: bool = False,
    jobs: int = 1,
    step_range: tuple[int, int] | None = None,
    command: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Give the report on one trace or several (one per rank): files, or folders of them, as a capture's.

    An nsys export gives a trace for each process with kernels. One source that cannot be read raises; of several, the
    bad ones become `Report.failures` unless all are bad. All is done in this process; `triage_ranks` takes workers.
    """
    sources = find_sources(paths)
    options = Options(lenient=lenient, step_range=step_range, command=command)
    if len(sources) == 1:
        return _of_one_source(sources[0], options, jobs=jobs, progress=progress)
    from profkit.ranks.outcome import failure_of, outcomes_of

    analysed: list[Outcome] = []
    failures: list[Failure] = []
    for source in sources:
        try:
            analysed += outcomes_of(source, options, jobs=jobs, progress=progress)
        except ProfkitError as error:
            failures.append(failure_of(source, error))
            last_error = error
    if not analysed:
        raise last_error
    return _together(analysed, failures, options)


def _of_one_source(source: str, options: Options, *, jobs: int, progress: Progress | None) -> Report:
    several: list[Outcome] = []
    for trace in read_traces(source, lenient=options.lenient, jobs=jobs, progress=progress):
        analysed = analyse(trace, step_range=options.step_range, command=options.command)
        if trace.meta.format == "kineto":  # the file's only trace: no other rank needs a summary of it
            return Report(
                verdict=analysed.verdict,
                ranks=(analysed.rank,),
                findings=analysed.rank.findings,
                skipped=analysed.rank.skipped,
            )
        from profkit.ranks.outcome import outcome

        several.append(outcome(analysed))
        del analysed, trace  # a trace is gone before the next one of the file is made
    return _together(several, [], options)


def _together(outcomes: Sequence[Outcome], failures: Sequence[Failure], options: Options) -> Report:
    from profkit.ranks.together import report_of

    return report_of(outcomes, failures, options)
