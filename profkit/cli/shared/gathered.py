"""What `profkit export` and `profkit open` begin with: the traces analysed, and each rank's place in one file."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from profkit import files
from profkit.cli.shared.say import say
from profkit.errors import ProfkitError, UnsupportedTraceError, UsageError
from profkit.export.document import MARK, Part
from profkit.export.place import MOST_RANKS, Place
from profkit.ingest.kind import Part as Tells

if TYPE_CHECKING:
    from profkit.export.own import Around
    from profkit.ingest.bytes.bytesource import Progress
    from profkit.model.documents.rank_report import RankReport
    from profkit.model.documents.tracks import Tracks
    from profkit.model.finding import Finding
    from profkit.model.trace import Trace

ALL: Final = sys.maxsize
"""Room for every interval: a file for a viewer is not shortened as a page is."""
_HEAD_BYTES: Final = 64
_APART: Final = 10
"""Windows further apart than so many of them are on clocks that say nothing of each other. Chosen."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says of reading."""

    lenient: bool = False
    step_range: tuple[int, int] | None = None
    jobs: int = 1


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks of all sources in order, with the file of each, and their places in one file."""

    paths: tuple[Path, ...]
    """Of each rank, the file that it is read from; ranks of one file stand together."""
    tracks: tuple[Tracks, ...]
    places: tuple[Place, ...]
    ranks: tuple[RankReport, ...]
    findings: tuple[Finding, ...]
    """As the report lists them."""

    def files(self) -> Iterator[tuple[Path, list[int]]]:
        """Each file with the numbers of its ranks."""
        for path in dict.fromkeys(self.paths):
            yield path, [number for number, one in enumerate(self.paths) if one == path]

    def traces_in(self, path: Path, **reading: Any) -> Iterator[tuple[int, Trace]]:
        """The traces in a file, read once more, each with the number of its rank."""
        from profkit.ingest.read import read_traces

        mine = [number for number, one in enumerate(self.paths) if one == path]
        by_rank = {self.tracks[number].rank: number for number in mine}
        for at, trace in enumerate(read_traces(str(path), **reading)):
            yield by_rank.get(trace.meta.rank, mine[min(at, len(mine) - 1)]), trace


class _Judged(msgspec.Struct, frozen=True):
    tracks: tuple[Tracks, ...]
    ranks: tuple[RankReport, ...]
    findings: tuple[Finding, ...]


@contextmanager
def local_files(paths: Iterable[str]) -> Iterator[list[str]]:
    """The traces behind paths as files that can be read twice: streams and URLs are fetched first."""
    from profkit.ingest.bytes.remote import fetched
    from profkit.ingest.bytes.spool import spooled
    from profkit.ingest.discover import find_sources, is_stream, is_url
    from profkit.ingest.sources import SUFFIXES

    with ExitStack() as stack:
        found = []
        for source in find_sources(paths):
            if is_url(source):
                found.append(str(stack.enter_context(fetched(source, SUFFIXES))))
            else:
                found.append(str(stack.enter_context(spooled(source))) if is_stream(source) else source)
        yield _without_exports(found)


def _without_exports(sources: list[str]) -> list[str]:
    """The traces without exports of them that lie in the same folder; an export that is alone is a trace."""
    if len(sources) == 1:
        return sources
    found = [source for source in sources if not is_export(Path(source))]
    if found and len(found) < len(sources):
        say(f"left out, since profkit exported them: {', '.join(sorted(set(sources) - set(found)))}")
    return found or sources


def gathered(sources: Sequence[str], asked: Asked, progress: Progress) -> Gathered:
    """The sources analysed; raises UsageError for what has no events, and for more ranks than one file takes."""
    for source in sources:
        if kind_of(source) is Tells.KERNELS:
            raise UsageError(f"{source} holds measures of kernels, no events", hint="give the trace of the same job")
    _refuse_many(len(sources))
    judged = _alone(sources[0], asked, progress) if len(sources) == 1 else None
    judged = judged or _together(sources, asked)
    tracks = judged.tracks
    _refuse_many(len(tracks))
    left_out = sorted(set(sources) - {one.source for one in tracks})
    if left_out:
        say(f"left out, since it is not compared with the others: {', '.join(left_out)}")
    order = sorted(tracks, key=lambda one: (sources.index(one.source), -1 if one.rank is None else one.rank))
    return Gathered(
        paths=tuple(Path(one.source) for one in order),
        tracks=tuple(order),
        places=tuple(_places(order)),
        ranks=judged.ranks,
        findings=judged.findings,
    )


def _refuse_many(n: int) -> None:
    if n > MOST_RANKS:
        raise UsageError(
            f"{n} ranks are too many for one file (at most {MOST_RANKS})", hint="name the ranks to look at"
        )


def is_export(path: Path) -> bool:
    """Whether a file is one that `profkit export` wrote, by how it begins."""
    from profkit.ingest.bytes.bytesource import read_chunks

    if not files.is_plain_file(path):
        return False
    try:
        head = next(iter(read_chunks(path, source=str(path), chunk_bytes=_HEAD_BYTES)), b"")
    except ProfkitError:
        return False
    return head.startswith(f'{{"{MARK}"'.encode())


def kind_of(source: str) -> Tells:
    """What a file tells of a job."""
    from profkit.ingest.sources import source_of

    return source_of(Path(source), source).part


def _alone(source: str, asked: Asked, progress: Progress) -> _Judged | None:
    """A source with one rank, judged as `profkit triage` judges it; None for one with several."""
    from profkit.ingest.read import read_traces
    from profkit.pipeline import alone, analyse
    from profkit.tracks import tracks_of

    traces = read_traces(source, lenient=asked.lenient, jobs=asked.jobs, progress=progress, again=True)
    trace = next(iter(traces), None)
    if trace is None or trace.meta.n_in_source > 1:
        return None
    told = alone(analyse(trace, step_range=asked.step_range))
    return _Judged((tracks_of(told, room=ALL),), (told.rank,), told.rank.findings)


def _together(sources: Sequence[str], asked: Asked) -> _Judged:
    from profkit.api import triage_ranks
    from profkit.ranks.reduce.options import Options
    from profkit.ranks.run.workers import Here

    options = Options(lenient=asked.lenient, step_range=asked.step_range, tracks_room=ALL)
    report = triage_ranks(sources, options, executor=Here())
    for failure in report.failures:
        say(f"left out: {failure.message}")
    if not report.tracks:
        raise UnsupportedTraceError(
            f"nothing in {', '.join(sources)} can be drawn", hint="profkit triage says what is wrong with each"
        )
    return _Judged(report.tracks, report.ranks, report.findings)


def _places(tracks: Sequence[Tracks]) -> Iterator[Place]:
    """Each rank's place: on the clock that the ranks have in common, where they have one."""
    shifts = _shifts(tracks)
    taken: set[int] = set()
    for number, (one, shift_ns) in enumerate(zip(tracks, shifts, strict=True)):
        is_new = one.rank is not None and one.rank not in taken
        rank = one.rank if is_new and one.rank is not None else next(n for n in range(number + 1) if n not in taken)
        taken.add(rank)
        label = f"rank {rank}" if is_new else Path(one.source).name
        yield Place(number=number, n=len(tracks), rank=rank, label=label, shift_ns=shift_ns)


def _shifts(tracks: Sequence[Tracks]) -> list[int]:
    """What to add to each rank's times to have them since the earliest rank's origin, on one clock."""
    if len({one.source for one in tracks}) == 1:  # one recorder has one clock
        return [0] * len(tracks)
    base = min(one.origin_unix_ns for one in tracks)
    shifts = [one.origin_unix_ns - base + one.shift_ns for one in tracks]
    begins = [one.window_ns[0] + shift for one, shift in zip(tracks, shifts, strict=True)]
    longest = max(one.window_ns[1] - one.window_ns[0] for one in tracks)
    if max(begins) - min(begins) <= _APART * longest:
        return shifts
    say("the clocks of these traces say nothing of each other: their first steps are put side by side")
    return [min(begins) - one.window_ns[0] for one in tracks]


def parts_of(found: Gathered, asked: Asked, around: Around | None, progress: Progress) -> Iterator[Part]:
    """The parts of one document: a file of torch.profiler each, or all processes of an nsys export together."""
    windows = windows_of(found, asked, around)
    for path, mine in found.files():
        tracks = tuple(found.tracks[number] for number in mine)
        part = Part(
            source=str(path),
            path=path,
            tracks=tracks,
            places=tuple(found.places[number] for number in mine),
            window_ns=windows[mine[0]],
        )
        if kind_of(str(path)) is not Tells.OPERATORS:
            drawn = partial(_drawn, path, found, windows, progress)
            metadata = {"baseTimeNanoseconds": tracks[0].origin_unix_ns, "schemaVersion": 1}
            part = replace(part, path=None, drawn=drawn, metadata=metadata)
        yield part


def _drawn(
    path: Path, found: Gathered, windows: Sequence[tuple[int, int] | None], progress: Progress
) -> Iterator[bytes]:
    """The events of all processes of an export."""
    from profkit.export.drawn import events_of

    for number, trace in found.traces_in(path, progress=progress):
        yield from events_of(trace, found.places[number], windows[number])


def windows_of(found: Gathered, asked: Asked, around: Around | None) -> list[tuple[int, int] | None]:
    """What of each rank is exported, on its own clock; None for all of it."""
    if around is not None:
        low, high = (time_ns + found.places[around.number].shift_ns for time_ns in around.window_ns)
        return [(low - place.shift_ns, high - place.shift_ns) for place in found.places]
    if asked.step_range is not None:
        return [one.window_ns for one in found.tracks]
    return [None] * len(found.tracks)
