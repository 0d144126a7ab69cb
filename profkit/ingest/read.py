"""A source of any kind to traces: torch.profiler's JSON gives one, an nsys export one for each process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from profkit.errors import ProfkitError, each_blamed
from profkit.files import is_plain_file
from profkit.ingest.discover import is_stream, is_url
from profkit.ingest.kind import How
from profkit.ingest.sources import SUFFIXES, source_of
from profkit.redact import shown_url

if TYPE_CHECKING:
    from profkit.ingest.bytes.bytesource import Progress
    from profkit.model.trace import Trace

PLACES_OF: Final = "profkit_places_of"
"""The key by which the trace of a capture's second window is known: the name of the timed one."""
_TIMED: Final = ".pt.trace.json.gz"
_SECOND: Final = ".places.json.gz"


@each_blamed("reading it")
def read_traces(
    source: str | PathLike[str],
    *,
    lenient: bool = False,
    jobs: int = 1,
    progress: Progress | None = None,
    meanwhile: Callable[[], object] | None = None,
    again: bool = False,
) -> Iterator[Trace]:
    """The traces of a source, in the order of ranks; raises TraceError and MissingCapabilityError.

        [trace.meta.rank for trace in profkit.read_traces("nsys.sqlite")]

    `lenient`, `jobs` and `meanwhile` are for JSON (see `read_trace`). An nsys report is exported first, into a
    temporary folder, where nsys is there. `again` reads what a capture recorded once more beside it (`Trace.again`).
    """
    source = fspath(source)
    how = How(source=source, lenient=lenient, jobs=jobs, progress=progress, meanwhile=meanwhile)
    if is_url(source):
        yield from _read_remote(source, how)
        return
    path = Path(source)
    traces = source_of(path, source).read(path, how)
    yield from map(_with_second, traces) if again else traces  # no name here keeps one while the next is made


def _read_remote(url: str, how: How) -> Iterator[Trace]:
    from profkit.ingest.bytes.remote import fetched

    with fetched(url, SUFFIXES) as local:
        for trace in source_of(local, str(local)).read(local, replace(how, source=str(local), meanwhile=None)):
            yield replace(trace, meta=replace(trace.meta, source=shown_url(url)))


def second_beside(source: str) -> Path | None:
    """The file of a capture's second window where it lies beside its timed trace, None where there is none."""
    if is_url(source) or is_stream(source) or not source.endswith(_TIMED):
        return None
    place = Path(source.removesuffix(_TIMED) + _SECOND)
    return place if is_plain_file(place) else None


def _with_second(trace: Trace) -> Trace:
    """A timed trace with its second window, of the same capture and rank; with a warning where it cannot be read."""
    place = second_beside(trace.meta.source)
    capture_id = trace.meta.metadata.get("profkit_capture_id")
    if place is None or not isinstance(capture_id, str) or PLACES_OF in trace.meta.metadata:
        return trace
    shown = str(place)
    try:
        again = next(iter(source_of(place, shown).read(place, How(source=shown))))
    except ProfkitError as error:
        from profkit.model.trace import TraceWarning

        message = f"lines of code are missing: {error.message}"
        return replace(trace, warnings=(*trace.warnings, TraceWarning(id="places.unreadable", message=message)))
    told = again.meta.metadata
    if told.get("profkit_capture_id") != capture_id or again.meta.rank != trace.meta.rank or PLACES_OF not in told:
        return trace
    return replace(trace, again=again)
