"""The trace of a capture's second window, which lies beside the timed one and says where in the code its operators are.

In: a timed trace as read. Out: the same with `Trace.again`, where there is a file of the same capture and rank.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from msgspec.structs import replace

from profkit.errors import ProfkitError
from profkit.files import is_plain_file
from profkit.ingest.discover import is_stream, is_url
from profkit.model.trace import Trace, TraceWarning

PLACES_OF: Final = "profkit_places_of"
"""The key by which the trace of a second window is known: the name of the timed one."""
_TIMED: Final = ".pt.trace.json.gz"
_SECOND: Final = ".places.json.gz"


def second_beside(source: str) -> Path | None:
    """The file where the second window of a timed trace would be, None where none is."""
    if is_url(source) or is_stream(source) or not source.endswith(_TIMED):
        return None
    place = Path(source.removesuffix(_TIMED) + _SECOND)
    return place if is_plain_file(place) else None


def with_second(trace: Trace) -> Trace:
    """A timed trace with its second window, where that lies beside it; with a warning where it cannot be read."""
    place = second_beside(trace.meta.source)
    capture_id = trace.meta.metadata.get("profkit_capture_id")
    if place is None or not isinstance(capture_id, str) or PLACES_OF in trace.meta.metadata:
        return trace
    from profkit.ingest.kineto.reader import read_trace

    try:
        again = read_trace(str(place))
    except ProfkitError as error:
        warning = TraceWarning(id="places.unreadable", message=f"lines of code are missing: {error.message}")
        return replace(trace, warnings=(*trace.warnings, warning))
    told = again.meta.metadata
    if told.get("profkit_capture_id") != capture_id or again.meta.rank != trace.meta.rank or PLACES_OF not in told:
        return trace
    return replace(trace, again=again)
