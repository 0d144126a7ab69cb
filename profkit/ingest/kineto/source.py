"""torch.profiler's traces as a source: JSON of any compression."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profkit.ingest.kind import How, Part, Source

if TYPE_CHECKING:
    from profkit.model.trace import Trace, Traits


def _read(path: Path, how: How) -> Iterator[Trace]:
    from profkit.ingest.kineto.reader import read_trace

    yield read_trace(how.source, lenient=how.lenient, jobs=how.jobs, progress=how.progress, meanwhile=how.meanwhile)


def _is_one(head: bytes, path: Path, source: str) -> bool:
    return True  # what is none is refused by the reader, which can say why


def traits() -> Traits:
    """What torch.profiler's traces hold."""
    from profkit.model.trace import Traits

    return Traits(
        format=KINETO.name,
        tool=KINETO.tool,
        step_source=KINETO.step_source,
        step_marks="ProfilerStep# markers",
        has_host_calls=False,
        is_system_wide=False,
        recapture="profkit capture --baseline 10 --warmup 5 --steps 12",
        how_to_mark_steps="call prof.step() at the end of every iteration, with a schedule",
        how_to_mark_input="use torch's DataLoader, or wrap your own in record_function('data_loader')",
        how_to_have_operators="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        how_to_be_steady="record again: wait 10 steps, warm up 5, record 12, and stop before the job ends",
    )


KINETO: Final = Source(
    name="kineto",
    tool="torch.profiler",
    part=Part.OPERATORS,
    step_source="ProfilerStep",
    suffixes=(".json", ".json.gz", ".json.zst", ".pt.trace"),
    is_one=_is_one,
    read=_read,
)
