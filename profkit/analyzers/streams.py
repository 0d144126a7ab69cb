"""Which streams are used, for what, and how much of the window each is busy."""

from __future__ import annotations

import msgspec
import numpy as np

from profkit.analyzers.base import Analyzer
from profkit.model.arrays import distinct
from profkit.model.finding import Skipped
from profkit.model.intervals import Intervals
from profkit.model.report import Section, StreamUse, TableView
from profkit.model.trace import Kind
from profkit.timeline import DeviceFacts, Facts

_MIXED_SHARE = 0.1  # chosen: a second kind below a tenth of a stream's operations does not make it "mixed"


class Streams(msgspec.Struct, frozen=True, kw_only=True):
    """The streams of each device, the busiest first."""

    by_device: dict[int, tuple[StreamUse, ...]]


def measure(facts: Facts) -> Streams | Skipped:
    """Give the streams of every device."""
    if not facts.devices:
        return Skipped(
            analyzer="streams",
            reason="no device activity in this trace",
            how_to_get="profile with ProfilerActivity.CUDA on a machine with a GPU",
        )
    return Streams(by_device={device.device: _streams(facts, device) for device in facts.devices})


def _streams(facts: Facts, device: DeviceFacts) -> tuple[StreamUse, ...]:
    gpu = facts.trace.gpu
    rows = device.activity.rows
    low, high = facts.trace.window_ns
    uses = []
    for stream in distinct(gpu.stream[rows]):
        mine = rows[gpu.stream[rows] == stream]
        busy = Intervals.of(gpu.start_ns[mine], gpu.end_ns[mine]).clip(low, high).total_ns
        uses.append(
            StreamUse(
                stream=int(stream),
                label=_label(np.bincount(gpu.kind[mine], minlength=3)),
                busy_ns=busy,
                occupancy=busy / facts.window_ns if facts.window_ns else 0.0,
                n_ops=int(mine.size),
            )
        )
    return tuple(sorted(uses, key=lambda use: (-use.busy_ns, use.stream)))


def _label(counts: np.ndarray[tuple[int], np.dtype[np.intp]]) -> str:
    present = [kind for kind in (Kind.COMPUTE, Kind.COMM) if counts[kind] >= _MIXED_SHARE * counts.sum()]
    if len(present) == 2:
        return "mixed"
    names = {Kind.COMPUTE: "compute", Kind.COMM: "comm", Kind.COPY: "copy"}
    return names[present[0]] if present else names[Kind(int(counts.argmax()))]


def present(result: Streams) -> Section:
    """Show all streams."""
    rows = tuple(
        (device, use.stream, use.label, use.busy_ns, use.occupancy, use.n_ops)
        for device, uses in result.by_device.items()
        for use in uses
    )
    return Section(
        analyzer="streams",
        title="streams",
        values={"n_streams": len(rows)},
        tables=(
            TableView(
                title="streams",
                headers=("device", "stream", "carries", "busy", "of window", "operations"),
                units=("count", "count", "text", "ns", "fraction", "count"),
                rows=rows,
            ),
        ),
    )


ANALYZER = Analyzer(
    name="streams",
    question="which streams carry what, and how busy are they?",
    needs="device activity (kernel, gpu_memcpy, gpu_memset rows)",
    measure=measure,
    present=present,
)
