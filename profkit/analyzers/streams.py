"""Which streams are used, for what, and how much of the window each is busy."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.base import RECORD_A_DEVICE, Analyzer
from profkit.model.arrays import I64, MANY, coded, distinct, laid_out, of_rows, rows_by_value
from profkit.model.documents.rank_report import Section, StreamUse, TableView
from profkit.model.finding import Skipped
from profkit.model.intervals import Intervals
from profkit.model.trace import Kind
from profkit.timeline import DeviceFacts, Facts
from profkit.units import format_fraction

MAX_STREAMS = 1_024
"""Of each device; chosen: the most that CUDA's own pool has for each is 32 of each priority."""
_UNASKED: Final = 0.05
"""Chosen: the severity "medium"."""
_MIXED_SHARE = 0.1  # chosen: a second kind below a tenth of a stream's operations does not make it "mixed"


class Streams(msgspec.Struct, frozen=True, kw_only=True):
    """The streams of each device, the busiest first: of each at most `MAX_STREAMS` of those there are."""

    by_device: dict[int, tuple[StreamUse, ...]]
    n_by_device: dict[int, int]

    @property
    def n_streams(self) -> int:
        """How many there are on all devices."""
        return sum(self.n_by_device.values())


def measure(facts: Facts) -> Streams | Skipped:
    """The streams of every device."""
    if not facts.devices:
        return Skipped(reason="no device activity in this trace", how_to_get=RECORD_A_DEVICE)
    stream = facts.trace.gpu.stream
    return Streams(
        by_device={device.device: _streams(facts, device) for device in facts.devices},
        n_by_device={
            device.device: int(distinct(of_rows(stream, device.activity.rows)).size) for device in facts.devices
        },
    )


def _streams(facts: Facts, device: DeviceFacts) -> tuple[StreamUse, ...]:
    gpu = facts.trace.gpu
    rows = device.activity.rows
    low, high = facts.trace.window_ns
    streams, place = coded(of_rows(gpu.stream, rows))
    start, end = (np.clip(of_rows(times, rows), low, high) for times in (gpu.start_ns, gpu.end_ns))
    busy_ns = _busy_ns(place, streams.size, start, end)
    counts = np.bincount(place * 3 + of_rows(gpu.kind, rows), minlength=3 * streams.size).reshape(-1, 3)
    order = np.lexsort((streams, -busy_ns))[:MAX_STREAMS]
    return tuple(
        StreamUse(
            stream=int(streams[each]),
            label=_label(counts[each]),
            busy_ns=int(busy_ns[each]),
            occupancy=int(busy_ns[each]) / facts.window_ns if facts.window_ns else 0.0,
            n_ops=int(counts[each].sum()),
        )
        for each in order
    )


def _busy_ns(place: NDArray[np.intp], n: int, start: I64, end: I64) -> I64:
    """How long each of `n` streams is busy; `place` is that of a row."""
    line = laid_out((place, place), (start, end)) if n > MANY else None
    busy = np.zeros(n, np.int64)
    if line is None:
        for each, mine in rows_by_value(place):
            busy[each] = Intervals.of(start[mine], end[mine]).total_ns
        return busy
    spans = Intervals.of(*line)
    order = np.argsort(line[0], kind="stable")  # a stretch begins where one of its rows does
    owner = place[order][np.searchsorted(line[0][order], spans.start_ns)]
    np.add.at(busy, owner, spans.lengths_ns)
    return busy


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
        title="streams",
        values={"n_streams": result.n_streams},
        tables=(
            TableView.of(
                "streams",
                {
                    "device": "count",
                    "stream": "count",
                    "carries": "text",
                    "busy": "ns",
                    "of window": "fraction",
                    "operations": "count",
                },
                rows,
                note="" if len(rows) == result.n_streams else f"the busiest {len(rows):,} of {result.n_streams:,}",
            ),
        ),
    )


def notes(facts: Facts) -> tuple[str, ...]:
    """Say which communication holds nothing up, and what other devices do."""
    main = facts.main_device
    if main is None:
        return ()
    unasked = main.unasked.total_ns / facts.window_ns if facts.window_ns else 0.0
    said = (
        f"for {format_fraction(unasked)} of the window communication runs alone, and the host had not launched the next"
        " kernel: faster communication alone saves nothing there"
    )
    return (*((said,) if unasked >= _UNASKED else ()), *_other_devices(facts, main))


def _other_devices(facts: Facts, main: DeviceFacts) -> tuple[str, ...]:
    others = [device for device in facts.devices if device is not main and device.activity.any]
    if not others:
        return ()
    idle = main.activity.any.gaps(*facts.trace.window_ns)
    busy = reduce(or_, (device.activity.any for device in others)) & idle
    share = format_fraction(busy.total_ns / idle.total_ns if idle else 0.0)
    return (
        f"the verdict is on device {main.device}, busiest of {len(others) + 1}; others work {share} of its idle time",
    )


ANALYZER = Analyzer(
    name="streams",
    question="what does each stream run, and how busy is it?",
    needs="device activity (kernel, gpu_memcpy, gpu_memset rows)",
    measure=measure,
    present=present,
)
