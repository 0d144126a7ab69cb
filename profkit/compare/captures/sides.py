"""A side of a comparison: runs, each of one trace or more. What counts as a run is decided here, and nowhere else.

Every path named by the caller is a run of its own. In a folder, a subfolder is a run; the files beside each other are
one run where their ranks are all different or where one process wrote them (several windows), else each is a run.

The step time of a run is the mean steady step of its slowest rank: a synchronous job is as fast as that one. Steps
timed before the profiler started (`capture.json`) come first, for they hold none of its cost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from profkit.compare.captures.measured import Measured, measured
from profkit.compare.captures.recorded import KINDS, recorded_work, work_of_run
from profkit.errors import ProfkitError, blamed
from profkit.files import read_small
from profkit.ingest.bytes.bytesource import Progress
from profkit.ingest.discover import find_sources
from profkit.ingest.numbers import LONGEST_PLAUSIBLE_NS, whole
from profkit.ingest.read import read_traces
from profkit.model.documents.report import Failure
from profkit.redact import shown_url

MANIFEST: Final = "capture.json"
_MAX_MANIFEST_BYTES: Final = 64 * 2**20


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run: the traces of its ranks, or of several windows of one process; `unprofiled_ns` belongs to each trace."""

    name: str
    traces: tuple[Measured, ...]
    unprofiled_ns: tuple[tuple[int, ...], ...]
    """Steps timed without the profiler, ns, per trace; empty where none are known."""
    work: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What a step of all ranks works on, by kind (tokens, samples), where the script told it."""

    @property
    def has_unprofiled(self) -> bool:
        """Whether every trace knows steps without the profiler."""
        return all(self.unprofiled_ns)

    def steps_ns(self, *, is_unprofiled: bool) -> tuple[int, ...]:
        """The steps of the slowest rank, ns, in order; empty where a trace has none."""
        kinds = self.unprofiled_ns if is_unprofiled else tuple(trace.report.steps.durations_ns for trace in self.traces)
        if not all(kinds):
            return ()
        by_rank: dict[object, tuple[int, ...]] = {}
        for trace, steps in zip(self.traces, kinds, strict=True):
            by_rank[trace.meta.rank] = by_rank.get(trace.meta.rank, ()) + steps
        return max(by_rank.values(), key=lambda steps: sum(steps) / len(steps))


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a side, and what of it could not be read."""

    name: str
    runs: tuple[Run, ...]
    failures: tuple[Failure, ...] = ()

    @property
    def traces(self) -> tuple[Measured, ...]:
        """All traces, in the order of runs and ranks."""
        return tuple(trace for run in self.runs for trace in run.traces)


def shared_work(sides: Iterable[Side]) -> str:
    """The best kind of work that every run of all sides told, "" if there is none."""
    runs = [run for side in sides for run in side.runs]
    return next((kind for kind in KINDS if all(run.work.get(kind, 0) > 0 for run in runs)), "")


def read_side(name: str, paths: Sequence[str], *, lenient: bool = False, progress: Progress | None = None) -> Side:
    """A side read from traces, folders and capture folders; raises the last error if nothing can be read.

    What cannot be read beside what can is a `Failure` of the side.
    """
    runs: list[Run] = []
    failures: list[Failure] = []
    errors: list[ProfkitError] = []
    for path in paths:
        read: list[tuple[str, Measured]] = []
        for source in find_sources([path]):
            try:
                traces = read_traces(source, lenient=lenient, progress=progress)
                with blamed("measuring it", source):
                    read.extend((shown_url(source), one) for one in map(measured, traces))
            except ProfkitError as error:
                errors.append(error)
                failures.append(Failure(source=source, error=type(error).__name__, message=error.message))
        runs += _runs_of(shown_url(path), read)
    if not runs:
        raise errors[-1]
    return Side(name=name, runs=tuple(runs), failures=tuple(failures))


def _runs_of(path: str, read: Sequence[tuple[str, Measured]]) -> Iterable[Run]:
    folders: dict[Path, list[tuple[str, Measured]]] = {}
    for source, trace in read:
        folders.setdefault(Path(source).parent, []).append((source, trace))
    for folder, files in folders.items():
        if len(files) > 1 and not _is_one_run([trace for _, trace in files]):
            yield from (_run(source, [(source, trace)]) for source, trace in files)
        else:
            yield _run(path if len(folders) == 1 else str(folder), files)


def _is_one_run(traces: Sequence[Measured]) -> bool:
    ranks = [trace.meta.rank for trace in traces]
    if None not in ranks and len(set(ranks)) == len(ranks):
        return True
    return len({(trace.pid, trace.meta.rank) for trace in traces}) == 1 and traces[0].pid != ""


def _run(name: str, files: Sequence[tuple[str, Measured]]) -> Run:
    return Run(
        name=name,
        traces=tuple(trace for _, trace in files),
        unprofiled_ns=tuple(_unprofiled_ns(source, trace) for source, trace in files),
        work=work_of_run((trace.meta.rank, recorded_work(source, trace.meta.metadata)) for source, trace in files),
    )


def _unprofiled_ns(source: str, trace: Measured) -> tuple[int, ...]:
    """The steps before the profiler, from the manifest beside the trace, else their mean from the trace itself."""
    for rank in _manifest_ranks(Path(source).with_name(MANIFEST)):
        baseline = rank.get("baseline")
        if rank.get("trace") == Path(source).name and isinstance(baseline, Mapping):
            steps = baseline.get("steps_ns")
            if isinstance(steps, list) and steps and all(map(_is_step, steps)):
                return tuple(steps)
    mean = trace.meta.metadata.get("profkit_unprofiled_step_mean_ns")
    return (int(mean),) if mean is not None and _is_step(mean) else ()


def _is_step(value: object) -> bool:
    """Whether a value is a whole number of ns that a step can last."""
    return isinstance(value, int) and whole(value, 1, LONGEST_PLAUSIBLE_NS) is not None


def _manifest_ranks(path: Path) -> Sequence[Mapping[str, Any]]:
    """The processes that `capture.json` knows; none where it is absent or not what profkit writes."""
    try:
        ranks = json.loads(read_small(path, _MAX_MANIFEST_BYTES)).get("ranks")
    except (OSError, ValueError, AttributeError, RecursionError):
        return ()
    return [rank for rank in ranks if isinstance(rank, Mapping)] if isinstance(ranks, list) else ()
