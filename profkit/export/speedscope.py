"""The host's threads and the device's streams as flame charts over time, for https://www.speedscope.app."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import rows_by_value
from profkit.model.trace import Trace
from profkit.version import __version__

_SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"


class Charts:
    """Charts of one rank after the other, with the names that they share."""

    def __init__(self) -> None:
        self._frames: dict[str, int] = {}
        self._profiles: list[dict[str, Any]] = []

    def add(self, trace: Trace, *, prefix: str = "", shift_ns: int = 0, window_ns: tuple[int, int] | None) -> None:
        """Add a chart for each thread (what calls what) and each stream of a trace, cut to the window."""
        window = window_ns or trace.window_ns
        codes = np.array([self._frames.setdefault(name, len(self._frames)) for name in trace.strings], np.int64)
        for name, starts, ends, code in (*_threads(trace), *_streams(trace)):
            inside = (starts < window[1]) & (ends > window[0]) & (code >= 0)
            start, end = np.clip(starts[inside], *window), np.clip(ends[inside], *window)
            if start.size:
                self._profiles.append(
                    {
                        "type": "evented",
                        "name": prefix + name,
                        "unit": "nanoseconds",
                        "startValue": int(window[0] + shift_ns),
                        "endValue": int(window[1] + shift_ns),
                        "events": list(_events(start + shift_ns, end + shift_ns, codes[code[inside]])),
                    }
                )

    def text(self, name: str) -> bytes:
        """The document."""
        document = {
            "$schema": _SCHEMA,
            "name": name,
            "exporter": f"profkit {__version__}",
            "activeProfileIndex": 0,
            "shared": {"frames": [{"name": name} for name in self._frames]},
            "profiles": self._profiles,
        }
        return json.dumps(document, separators=(",", ":")).encode()

    def __len__(self) -> int:
        return len(self._profiles)


Rows = tuple[str, NDArray[Any], NDArray[Any], NDArray[Any]]
"""A chart: its name, starts, ends and codes of names."""


def _threads(trace: Trace) -> Iterator[Rows]:
    tables = (trace.spans, trace.ops, trace.calls, trace.python)
    columns = zip(*((table.thread, table.start_ns, table.end_ns, table.name) for table in tables), strict=True)
    thread, start, end, name = map(np.concatenate, columns)
    for code, rows in rows_by_value(thread):
        of = trace.threads[int(code)]
        yield of.name or f"thread {of.tid}", start[rows], end[rows], name[rows]


def _streams(trace: Trace) -> Iterator[Rows]:
    gpu = trace.gpu
    for device, of_device in rows_by_value(gpu.device):
        for stream, mine in rows_by_value(gpu.stream[of_device]):
            rows = of_device[mine]
            yield f"GPU {device} stream {stream}", gpu.start_ns[rows], gpu.end_ns[rows], gpu.name[rows]


def _events(start: NDArray[Any], end: NDArray[Any], code: NDArray[Any]) -> Iterator[dict[str, Any]]:
    """Opens and closes, in order and nested; what reaches beyond the range around it ends with that."""
    order = np.lexsort((-end, start))
    around: list[tuple[int, int]] = []
    for at, until, name in zip(start[order].tolist(), end[order].tolist(), code[order].tolist(), strict=True):
        yield from _closed(around, at)
        last = min(until, around[-1][0]) if around else until
        yield {"type": "O", "frame": name, "at": at}
        around.append((last, name))
    yield from _closed(around, None)


def _closed(around: list[tuple[int, int]], at: int | None) -> Iterator[dict[str, Any]]:
    while around and (at is None or around[-1][0] <= at):
        until, name = around.pop()
        yield {"type": "C", "frame": name, "at": until}
