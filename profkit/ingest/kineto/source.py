"""torch.profiler's traces as a source: JSON of any compression; what they hold, and how they are recorded again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profkit.ingest.kind import How, Part, Source

if TYPE_CHECKING:
    from profkit.model.trace import Trace, Traits

FORMAT: Final = "kineto"
TOOL: Final = "torch.profiler"
STEP_SOURCE: Final = "ProfilerStep"


def traits() -> Traits:
    """What torch.profiler's traces hold."""
    from profkit.model.trace import Traits

    return Traits(
        format=FORMAT,
        tool=TOOL,
        step_source=STEP_SOURCE,
        step_marks="ProfilerStep# markers",
        has_host_calls=False,
        is_system_wide=False,
        recapture="profkit capture --unprofiled-steps 10 --warmup-steps 5",
        how_to_mark_steps="call prof.step() at the end of every iteration, with a schedule",
        how_to_mark_input="use torch's DataLoader, or wrap your own in record_function('data_loader')",
        how_to_have_operators="profile with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
        how_to_be_steady="record again: wait 10 steps, warm up 5, record 12, and stop before the job ends",
    )


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
