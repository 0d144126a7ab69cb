"""What was given on a command line, by the tool that wrote it and by its part in the hand-over."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from profkit.errors import TraceNotFoundError, UnsupportedTraceError
from profkit.ingest.discover import find_sources, is_stream
from profkit.ingest.kind import Part
from profkit.ingest.ncu.source import no_trace
from profkit.ingest.sources import source_of


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """The files: `first` make the report, the others are set beside it."""

    first: tuple[str, ...]
    timelines: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()

    @property
    def has_second(self) -> bool:
        """Whether there is a second tool."""
        return bool(self.timelines or self.profiles)


def sources_of(paths: Iterable[str]) -> Sources:
    """The files behind paths, told by their content, in any order.

    What knows operators comes first; without it, a timeline does. A folder without traces may hold
    ncu's reports. Raises TraceNotFoundError, and UnsupportedTraceError for ncu's reports without any trace, and for a
    trace beside another tool's file that is no file itself: it is read once for the report and once for what that keeps
    nothing of.
    """
    found = [(source, _part_of(source)) for path in paths for source in _found(path)]
    operators, timelines, kernels = (
        tuple(dict.fromkeys(source for source, part in found if part is wanted)) for wanted in Part
    )
    if kernels and not operators and not timelines:
        raise no_trace(kernels[0])
    if operators:
        given = Sources(first=operators, timelines=timelines, profiles=kernels)
    else:
        given = Sources(first=timelines, profiles=kernels)
    stream = next((source for source in given.first if is_stream(source)), None)
    if stream is not None and given.has_second:
        name = "standard input" if stream == "-" else stream
        raise UnsupportedTraceError(
            f"{name} can be read only once, and beside another tool's file it is read twice",
            hint="save it as a file first",
        )
    return given


def _found(path: str) -> list[str]:
    try:
        return find_sources([path])
    except TraceNotFoundError:
        from profkit.ingest.ncu.reader import find_ncu_sources

        try:
            profiles = find_ncu_sources([path])
        except TraceNotFoundError:
            profiles = []
        if not any(_part_of(source) is Part.KERNELS for source in profiles):
            raise
        return profiles


def _part_of(source: str) -> Part:
    return source_of(Path(source), source).part
