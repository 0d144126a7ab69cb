"""A side of a comparison: runs, each of one trace or more.

The step time of a run is the mean steady step of its slowest rank: a synchronous job is as fast as that one. Steps
timed before the profiler started (`capture.json`) come first, for they hold none of its cost.

Which traces are one run: ranks of one recording are, and windows of one process; two recordings are two. Every path
named by the caller is a run of its own, but for files that are ranks of one recording. Steps, windows and ranks never
count as runs: statistics are over recordings.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from profkit.compare.captures.measured import KINDS, Measured, measured, recorded_inputs
from profkit.errors import ProfkitError, blamed
from profkit.files import read_small
from profkit.ingest.bytes.bytesource import Progress
from profkit.ingest.discover import find_sources
from profkit.ingest.numbers import LONGEST_PLAUSIBLE_NS, whole
from profkit.ingest.read import read_traces
from profkit.model.documents.report import Failure, Report
from profkit.model.grouped import grouped
from profkit.ranks.reduce.options import Options
from profkit.ranks.reduce.outcome import failure_of
from profkit.ranks.reduce.summary import UNKNOWN_RANK
from profkit.ranks.run.fleet_report import report_of
from profkit.redact import shown_url

MANIFEST: Final = "capture.json"
_MAX_MANIFEST_BYTES: Final = 64 * 2**20
_RANK: Final = re.compile(r"rank[-_]?\d+", re.IGNORECASE)


class Run(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """One run: the traces of its ranks, or of several windows of one process; `unprofiled_ns` belongs to each trace."""

    name: str
    traces: tuple[Measured, ...]
    unprofiled_ns: tuple[tuple[int, ...], ...]
    """Steps timed without the profiler, ns, per trace; empty where none are known."""
    work: Mapping[str, float] = msgspec.field(default_factory=dict)
    """What a step of all ranks works on, by kind (tokens, samples), where the script told it."""

    @cached_property
    def joint(self) -> Report | None:
        """What `profkit triage` says of all ranks together; None where no two ranks were summed up."""
        outcomes = [trace.outcome for trace in self.traces if trace.outcome is not None]
        if len({outcome.summary.rank for outcome in outcomes} - {UNKNOWN_RANK}) < 2 or len(outcomes) < len(self.traces):
            return None
        return report_of(outcomes, (), Options())

    @property
    def bottleneck(self) -> str:
        """The verdict of `profkit triage`: on all ranks together, else what most of the traces have."""
        if self.joint is not None:
            return self.joint.verdict.bottleneck.value
        return Counter(trace.verdict.bottleneck.value for trace in self.traces).most_common(1)[0][0]

    @property
    def late_rank(self) -> int | None:
        """The rank whose lateness this verdict is about."""
        first = self.joint.verdict.findings[:1] if self.joint is not None else ()
        return first[0].rank if first else None

    @property
    def waits_ns(self) -> tuple[float, float] | None:
        """Waiting and transfer in exposed communication, ns per step, means over ranks; None where not told apart."""
        rows = self.joint.fleet.rows if self.joint is not None and self.joint.fleet is not None else ()
        waits = [row.wait_ns for row in rows if row.wait_ns is not None]
        if not rows or len(waits) < len(self.traces):
            return None
        return sum(waits) / len(rows), sum(row.transfer_ns for row in rows) / len(rows)

    @cached_property
    def shares(self) -> Mapping[str, float]:
        """The findings of that triage, by id: of all ranks, or the mean where half of the traces have it; 0-1."""
        findings = [finding for trace in self.traces for finding in trace.report.findings]
        whole: dict[str, float] = {}
        if self.joint is not None:
            findings = [finding for finding in self.joint.findings if finding.rank is not None]
            across = [finding for finding in self.joint.findings if finding.rank is None]
            whole = {finding.id: finding.fraction for finding in (*across, *self.joint.verdict.findings)}
        found = grouped((finding.id, finding.fraction) for finding in findings)
        usual = {id_: sum(of) / len(of) for id_, of in found.items() if 2 * len(of) >= len(self.traces)}
        return {**usual, **whole}

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
            process = trace.rank, trace.pid
            by_rank[process] = by_rank.get(process, ()) + steps
        return max(by_rank.values(), key=lambda steps: sum(steps) / len(steps))


class Side(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The runs of a side, and what of it could not be read."""

    name: str
    runs: tuple[Run, ...]
    failures: tuple[Failure, ...] = ()

    @property
    def waits_ns(self) -> tuple[float, float] | None:
        """Waiting and transfer of all runs, as `Run.waits_ns`; None where one run does not tell them apart."""
        known = [run.waits_ns for run in self.runs if run.waits_ns is not None]
        if len(known) < len(self.runs):
            return None
        return sum(wait for wait, _ in known) / len(known), sum(transfer for _, transfer in known) / len(known)

    @property
    def late_rank(self) -> int | None:
        """The rank that the verdicts on all runs name, None where they name none or not the same."""
        named = {run.late_rank for run in self.runs}
        return named.pop() if len(named) == 1 else None

    @cached_property
    def failed(self) -> dict[str, list[str]]:
        """What the checks that fail say of its traces, by check."""
        checks = (check for trace in self.traces for check in trace.report.checks)
        return grouped((check.id, check.message) for check in checks if not check.ok)

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that one of its traces had in use, None where none tells."""
        return max((peak for trace in self.traces if (peak := trace.counts.peak_bytes) is not None), default=None)

    @property
    def traces(self) -> tuple[Measured, ...]:
        """All traces, in the order of runs and ranks."""
        return tuple(trace for run in self.runs for trace in run.traces)


def shared_work(sides: Iterable[Side]) -> str:
    """The best kind of work that every run of all sides told, "" if there is none."""
    runs = [run for side in sides for run in side.runs]
    return next((kind for kind in KINDS if all(run.work.get(kind, 0) > 0 for run in runs)), "")


def alike(baseline: Side, candidate: Side) -> tuple[Side, Side]:
    """The sides as they can be set against each other: by steps where every trace has some, else by windows.

    By the same windows: steps that were found by a period or by ranges cut off what the other side has in its window.
    """
    sides = baseline, candidate
    if len({trace.has_steps for side in sides for trace in side.traces}) == 1:
        return sides
    return _by_windows(baseline), _by_windows(candidate)


def _by_windows(side: Side) -> Side:
    def whole(trace: Measured) -> Measured:
        return replace(trace.whole or trace, n_steps=1, has_steps=False, inputs=trace.inputs)

    return replace(side, runs=tuple(replace(run, traces=tuple(map(whole, run.traces))) for run in side.runs))


def read_side(name: str, paths: Sequence[str], *, lenient: bool = False, progress: Progress | None = None) -> Side:
    """A side read from traces, folders and capture folders; raises the last error if nothing can be read.

    What cannot be read beside what can is a `Failure` of the side.
    """
    read: list[Read] = []
    failures: list[Failure] = []
    errors: list[ProfkitError] = []
    found = [(path, source) for path in paths for source in find_sources([path])]
    for path, source in found:
        try:
            for trace in read_traces(source, lenient=lenient, progress=progress):
                with blamed("measuring it", source):
                    one = measured(trace, is_one_of_many=len(found) > 1 or trace.meta.n_in_source > 1)
                one = replace(one, inputs=recorded_inputs(source))
                read.append(Read(path=shown_url(path), source=shown_url(source), trace=one))
        except ProfkitError as error:
            errors.append(error)
            failures.append(failure_of(source, error))
    if not read:
        raise errors[-1]
    runs = tuple(
        Run(
            name=run,
            traces=tuple(item.trace for item in files),
            unprofiled_ns=tuple(_unprofiled_ns(item.source, item.trace) for item in files),
            work=_work_of([item.trace for item in files]),
        )
        for run, files in runs_of(read)
    )
    return Side(name=name, runs=runs, failures=tuple(failures))


def _work_of(traces: Sequence[Measured]) -> dict[str, float]:
    """A run's work per step: the sum over its ranks of the mean over a rank's traces; of what each of them told."""
    by_rank = grouped((trace.rank, trace.work) for trace in traces).values()
    return {
        kind: sum(sum(work[kind] for work in works) / len(works) for works in by_rank)
        for kind in KINDS
        if all(kind in trace.work for trace in traces)
    }


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


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """A trace with where it was found: `path` as the caller named it, `source` the file, for which `path` may stand."""

    path: str
    source: str
    trace: Measured

    @property
    def is_named(self) -> bool:
        """Whether the caller named the file itself, not a folder."""
        return self.path == self.source

    @property
    def folder(self) -> str:
        """The folder of the file."""
        return str(Path(self.source).parent)

    @property
    def process(self) -> tuple[int | None, str]:
        """The rank and the process id, which tell a process where process ids differ between ranks."""
        return self.trace.rank, self.trace.pid


Group = list[Read]


def runs_of(read: Sequence[Read]) -> list[tuple[str, Group]]:
    """The runs among the traces of a side, each with its name, in the order in which they were named."""
    is_one_job = _n_ranks(item for item in read if item.is_named) > 1
    out: list[tuple[str, Group]] = []
    for group in _by(read, lambda item: "" if is_one_job and item.is_named else item.path):
        found = list(_of_path(group))
        is_whole = len(found) == 1 and not (group[0].is_named and len(group) > 1)
        for run in found:
            name = run[0].source if len(run) == 1 else run[0].folder
            out.append((group[0].path if is_whole else name, run))
    return out


def _of_path(read: Group) -> Iterable[Group]:
    """The runs in what one path holds: a folder of runs, of ranks, or of recordings of ranks."""
    if _is_one_recording(read):
        yield read
        return
    folders = _by(read, lambda item: item.folder)
    if len(folders) > 1 and _n_ranks(read) > 1 and all(_n_ranks(folder) == 1 for folder in folders):
        folders = [read]  # a folder for each rank
    for folder in folders:
        yield from _of_folder(folder)


def _of_folder(read: Group) -> Iterable[Group]:
    """The runs among files beside each other."""
    if _is_one_recording(read) or _is_one_set_of_processes(read):
        yield read
    elif _n_ranks(read) < 2:
        yield from _processes(read)
    else:
        for recording in _recordings(read):
            yield from [recording] if _is_one_recording(recording) else _sets(recording)


def _is_one_recording(read: Group) -> bool:
    """Whether the traces are of one file, or of ranks that are there once each."""
    ranks = [item.trace.rank for item in read]
    return len({item.source for item in read}) == 1 or (None not in ranks and len(set(ranks)) == len(ranks))


def _is_one_set_of_processes(read: Group) -> bool:
    """Whether the traces are windows of the same processes, one per rank.

    Process ids tell that on one rank, and on many where no two ranks share one (in containers they all may be 1) and
    the steps go on from window to window: a job that starts again counts its steps again.
    """
    processes = {item.process for item in read}
    ranks, pids = ({process[place] for process in processes} for place in (0, 1))
    if "" in pids or len(processes) > len(ranks) or len(pids) < len(ranks):
        return False
    return len(ranks) == 1 or all(_goes_on(windows) for windows in _by(read, lambda item: item.process))


def _goes_on(windows: Group) -> bool:
    """Whether no two windows of a process hold a step of one number, and each holds steps."""
    numbers = [item.trace.step_numbers for item in windows]
    seen = set().union(*numbers)
    return all(numbers) and len(seen) == sum(map(len, numbers))


def _processes(read: Group) -> Iterable[Group]:
    """The runs among traces of one rank: a process is one; of unknown rank, so is what was recorded at one time."""
    if all(item.trace.rank is None for item in read):
        at_once = _recordings(read)
    else:
        at_once = _by(read, lambda item: item.source)
    runs: list[Group] = []
    for group in at_once:
        pids = {item.trace.pid for item in group} - {""}
        same = next((run for run in runs if pids & {item.trace.pid for item in run}), None)
        if same is None:
            runs.append(list(group))
        else:
            same += group
    return runs


def _recordings(read: Group) -> list[Group]:
    """The traces by recording: windows that overlap in wall time, directly or by way of others."""
    out: list[Group] = []
    until = 0
    for item in sorted(read, key=lambda item: item.trace.span_unix_ns):
        begin, end = item.trace.span_unix_ns
        if not out or begin >= until:
            out.append([])
        out[-1].append(item)
        until = max(until, end)
    return out


def _sets(read: Group) -> Iterable[Group]:
    """The runs among traces of one time that hold a rank twice: sets of one naming, where each is whole.

    Else names tell nothing, and all are one run: too few runs give no answer, too many a wrong one.
    """
    ranks = {item.trace.rank for item in read}
    sets = _by(read, lambda item: (item.folder, _RANK.sub("rank", Path(item.source).name)))
    is_whole = all({item.trace.rank for item in one} == ranks and _is_one_recording(one) for one in sets)
    return sets if is_whole else [read]


def _n_ranks(read: Iterable[Read]) -> int:
    """How many different ranks are known."""
    return len({item.trace.rank for item in read} - {None})


def _by(read: Iterable[Read], key: Callable[[Read], Hashable]) -> list[Group]:
    return list(grouped((key(item), item) for item in read).values())
