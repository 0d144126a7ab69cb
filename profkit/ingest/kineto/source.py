"""torch.profiler's traces as a source: JSON of any compression."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profkit.ingest.kind import How, Part, Source
from profkit.ingest.kineto.traits import FORMAT, STEP_SOURCE, TOOL

if TYPE_CHECKING:
    from profkit.model.trace import Trace


def _read(path: Path, how: How) -> Iterator[Trace]:
    from profkit.ingest.kineto.merged_ranks import may_be_merged, refuse_several_processes, traces_by_rank
    from profkit.ingest.kineto.reader import read_trace

    if os.path.isfile(path) and may_be_merged(path, how.source):  # noqa: PTH113 - no error for a long name
        n_ranks = 0
        for trace in traces_by_rank(path, how.source):
            n_ranks += 1
            yield trace
        if n_ranks:
            return
    trace = read_trace(how.source, lenient=how.lenient, jobs=how.jobs, progress=how.progress, meanwhile=how.meanwhile)
    refuse_several_processes(trace)
    yield trace


def _is_one(head: bytes, path: Path, source: str) -> bool:
    return True  # what is none is refused by the reader, which can say why


KINETO: Final = Source(
    name=FORMAT,
    tool=TOOL,
    part=Part.OPERATORS,
    step_source=STEP_SOURCE,
    suffixes=(".json", ".json.gz", ".json.zst", ".pt.trace"),
    is_one=_is_one,
    read=_read,
)
