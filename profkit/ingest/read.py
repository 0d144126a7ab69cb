"""A source of any kind to traces: torch.profiler's JSON gives one, an nsys export one for each process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from profkit.errors import each_blamed
from profkit.ingest.discover import is_url
from profkit.ingest.kind import How
from profkit.ingest.second import with_second
from profkit.ingest.sources import SUFFIXES, source_of
from profkit.redact import shown_url

if TYPE_CHECKING:
    from profkit.ingest.bytes.bytesource import Progress
    from profkit.model.trace import Trace


@each_blamed("reading it")
def read_traces(
    source: str,
    *,
    lenient: bool = False,
    jobs: int = 1,
    progress: Progress | None = None,
    meanwhile: Callable[[], object] | None = None,
    again: bool = False,
) -> Iterator[Trace]:
    """The traces of a source, in the order of ranks; raises TraceError and MissingCapabilityError.

    `lenient`, `jobs` and `meanwhile` are for JSON (see `read_trace`). An nsys report is exported first, into a
    temporary folder, where nsys is there. `again` reads what a capture recorded once more beside it (`Trace.again`).
    """
    how = How(source=source, lenient=lenient, jobs=jobs, progress=progress, meanwhile=meanwhile)
    if is_url(source):
        yield from _read_remote(source, how)
        return
    path = Path(source)
    for trace in source_of(path, source).read(path, how):
        yield with_second(trace) if again else trace


def _read_remote(url: str, how: How) -> Iterator[Trace]:
    from profkit.ingest.bytes.remote import fetched

    with fetched(url, SUFFIXES) as local:
        for trace in source_of(local, str(local)).read(local, replace(how, source=str(local), meanwhile=None)):
            yield replace(trace, meta=replace(trace.meta, source=shown_url(url)))
