"""Tables and traces for `profkit export`: those of one source as it is read, those of several on one clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from profkit.cli.shared.gathered import Asked, gathered, windows_of
from profkit.export.place import Place

if TYPE_CHECKING:
    from profkit.export.tables import Columns
    from profkit.ingest.bytes.bytesource import Progress
    from profkit.model.trace import Trace


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Which table is asked for, and of what; `name` None is the device's work, or operators where there is none."""

    name: str | None
    asked: Asked
    key: str | None = None


def tabled(sources: list[str], table: Table, progress: Progress) -> tuple[str, Columns]:
    """The name of the table and its columns."""
    from profkit.export import tables

    if table.name in tables.OF_REPORTS:
        found = gathered(sources, table.asked, progress)
        if table.name == "budget":
            return table.name, tables.budget(found.ranks)
        if table.name == "findings":
            return table.name, tables.findings(found.findings)
        return "work", tables.work(found.tracks)
    name = table.name
    parts: list[Columns] = []
    for trace, place, window_ns in each_trace(sources, table.asked, table.key, progress):
        name = name or ("gpu" if len(trace.gpu) else "ops")
        rank = place.rank if trace.meta.rank is None else trace.meta.rank
        parts.append(tables.of_trace(trace, name, rank=rank, shift_ns=place.shift_ns, window_ns=window_ns))
    return name or "gpu", tables.together(parts)


def each_trace(
    sources: list[str], asked: Asked, key: str | None, progress: Progress
) -> Iterator[tuple[Trace, Place, tuple[int, int] | None]]:
    """Each trace with its place among the others, and the window of it that is asked for, on its own clock."""
    from profkit.ingest.read import read_traces
    from profkit.pipeline import narrowed

    if len(sources) == 1 and key is None:
        for trace in read_traces(sources[0], lenient=asked.lenient, jobs=asked.jobs, progress=progress):
            cut = trace if asked.step_range is None else narrowed(trace, asked.step_range)
            yield trace, Place(rank=trace.meta.rank), None if asked.step_range is None else cut.window_ns
        return
    found = gathered(sources, asked, progress)
    where = None
    if key is not None:
        from profkit.export.own import around

        where = around(found.tracks, key)
    windows = windows_of(found, asked, where)
    for path, _ in found.files():
        for number, trace in found.traces_in(path, lenient=asked.lenient, progress=progress):
            yield trace, found.places[number], windows[number]
