"""What was given on a command line, by the tool that wrote it and by its part in the hand-over."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from profkit.errors import TraceNotFoundError, UnsupportedTraceError
from profkit.ingest.discover import find_sources, is_stream
from profkit.ingest.read import Tool, tool_of
from profkit.shell import quoted_path


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
    """Give the files behind paths, told by their content, in any order.

    torch.profiler comes first, since it alone knows operators; without it nsys does. A folder without traces may hold
    ncu's reports. Raises TraceNotFoundError, and UnsupportedTraceError for ncu's reports without any trace, and for a
    trace beside another tool's file that is no file itself: it is read once for the report and once for what that keeps
    nothing of.
    """
    found = [(source, tool_of(source)) for path in paths for source in _found(path)]
    kineto, nsys, ncu = (
        tuple(dict.fromkeys(source for source, tool in found if tool is wanted))
        for wanted in (Tool.KINETO, Tool.NSYS, Tool.NCU)
    )
    if ncu and not kineto and not nsys:
        raise UnsupportedTraceError(
            f"{ncu[0]} is an ncu report: it knows single kernels, and no step",
            hint=f"profkit kernels {quoted_path(ncu[0])}; or triage it together with the trace that it belongs to",
        )
    given = Sources(first=kineto, timelines=nsys, profiles=ncu) if kineto else Sources(first=nsys, profiles=ncu)
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
        if not any(tool_of(source) is Tool.NCU for source in profiles):
            raise
        return profiles
