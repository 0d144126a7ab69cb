"""A `Trace` as Chrome trace events: for sources that are no such events themselves, as an nsys export."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.export.place import PER_RANK, UNNUMBERED, Place, described, touching, us_text
from profkit.model.table import NO_ROW
from profkit.model.trace import Kind, Trace

_PER_PIECE: Final = 20_000
_GPU_CATEGORY: Final = {Kind.COMPUTE: "kernel", Kind.COMM: "kernel", Kind.COPY: "gpu_memcpy"}
_HOST: Final = (
    ("spans", "user_annotation"),
    ("ops", "cpu_op"),
    ("calls", "cuda_runtime"),
    ("waits", "os_runtime"),
    ("overhead", "overhead"),
    ("python", "python_function"),
)
_DEVICE: Final = (("device_spans", "gpu_user_annotation"), ("sync_rows", "cuda_sync"))
_DEVICE_ORDER: Final = 2**24
"""Where Kineto puts devices among processes: after the hosts."""


def events_of(trace: Trace, place: Place, window_ns: tuple[int, int] | None = None) -> Iterator[bytes]:
    """Pieces of events, joined by commas: all rows of the trace that touch the window, and the arrows of launches."""
    writer = _Writer(trace, place, window_ns)
    yield writer.heads()
    for table, category in _HOST:
        rows = getattr(trace, table)
        external = rows.correlation if table == "calls" else None
        yield from writer.host(rows, category, external)
    yield from writer.gpu()
    for table, category in _DEVICE:
        yield from writer.device(getattr(trace, table), category)
    yield from writer.arrows()


class _Writer:
    """One trace under way: its names as JSON, the numbers of its processes."""

    def __init__(self, trace: Trace, place: Place, window_ns: tuple[int, int] | None) -> None:
        self._trace, self._place, self._window = trace, place, window_ns
        self._names = tuple(map(json.dumps, trace.strings))
        pids: dict[str, int] = {}
        for thread in trace.threads:
            pids.setdefault(thread.pid, self._pid(_number(thread.pid, UNNUMBERED + len(pids))))
        self._pids = pids
        tids = [_number(thread.tid, number) for number, thread in enumerate(trace.threads)]
        self._threads = [
            f'"pid":{pids[thread.pid]},"tid":{tid}' for thread, tid in zip(trace.threads, tids, strict=True)
        ]
        self._tids = tids

    def _pid(self, value: int) -> int:
        return value if self._place.n == 1 else (self._place.number + 1) * PER_RANK + value

    def heads(self) -> bytes:
        """The names of processes and threads."""
        events: list[bytes] = []
        for text, pid in self._pids.items():
            events += self._place.process(pid, f"process {text}", 0)
        for device in self._trace.device_indices:
            events += self._place.process(self._pid(device), f"GPU {device}", _DEVICE_ORDER + device)
        for thread, tid in zip(self._trace.threads, self._tids, strict=True):
            name = thread.name or f"thread {thread.tid}"
            events.append(described(self._pids[thread.pid], "thread_name", {"name": name}, tid=tid))
        return b",\n".join(events)

    def _chosen(self, start_ns: NDArray[Any], end_ns: NDArray[Any]) -> NDArray[np.intp]:
        return touching(start_ns, end_ns, self._window)

    def host(self, rows: Any, category: str, correlation: NDArray[Any] | None) -> Iterator[bytes]:
        """Ranges of host threads."""
        at = self._chosen(rows.start_ns, rows.end_ns)
        lanes = [self._threads[code] for code in rows.thread[at].tolist()]
        args = None if correlation is None else [f'{{"correlation":{one}}}' for one in correlation[at].tolist()]
        yield from self._ranges(rows, at, lanes, [category] * at.size, args)

    def device(self, rows: Any, category: str) -> Iterator[bytes]:
        """Ranges of device streams that are no work."""
        at = self._chosen(rows.start_ns, rows.end_ns)
        lanes = self._streams(rows.device[at].tolist(), rows.stream[at].tolist())
        yield from self._ranges(rows, at, lanes, [category] * at.size, None)

    def gpu(self) -> Iterator[bytes]:
        """Kernels and copies, with the arguments by which profkit and other tools know them."""
        gpu = self._trace.gpu
        at = self._chosen(gpu.start_ns, gpu.end_ns)
        device, stream = gpu.device[at].tolist(), gpu.stream[at].tolist()
        category = [_GPU_CATEGORY[Kind(kind)] for kind in gpu.kind[at].tolist()]
        further = (column[at].tolist() for column in (gpu.correlation, gpu.n_bytes, gpu.grid, gpu.block))
        columns = zip(device, stream, *further, strict=True)
        args = [
            f'{{"device":{on},"stream":{queue},"correlation":{link}'
            + (f',"bytes":{size}' if size >= 0 else "")
            + (f',"grid":{grid},"block":{block}' if any(grid) else "")
            + "}"
            for on, queue, link, size, grid, block in columns
        ]
        yield from self._ranges(gpu, at, self._streams(device, stream), category, args)

    def arrows(self) -> Iterator[bytes]:
        """From each launch to its device row, where both are shown."""
        gpu, calls = self._trace.gpu, self._trace.calls
        at = self._chosen(gpu.start_ns, gpu.end_ns)
        at = at[gpu.launch_row[at] != NO_ROW]
        row = gpu.launch_row[at]
        shown = np.isin(row, self._chosen(calls.start_ns, calls.end_ns))
        at, row = at[shown], row[shown]
        ends = zip(
            [self._threads[code] for code in calls.thread[row].tolist()],
            self._times(calls.start_ns[row]),
            self._streams(gpu.device[at].tolist(), gpu.stream[at].tolist()),
            self._times(gpu.start_ns[at]),
            (at * self._place.n + self._place.number).tolist(),
            strict=True,
        )
        texts = [
            f'{{"ph":"s","cat":"ac2g","name":"ac2g","id":{number},{host},"ts":{since}}},\n'
            f'{{"ph":"f","cat":"ac2g","name":"ac2g","id":{number},{device},"ts":{until},"bp":"e"}}'
            for host, since, device, until, number in ends
        ]
        yield from _pieces(texts)

    def _streams(self, device: Sequence[int], stream: Sequence[int]) -> list[str]:
        return [f'"pid":{self._pid(on)},"tid":{queue}' for on, queue in zip(device, stream, strict=True)]

    def _times(self, times_ns: NDArray[Any]) -> list[str]:
        return [us_text(time_ns) for time_ns in (times_ns + self._place.shift_ns).tolist()]

    def _ranges(
        self, rows: Any, at: NDArray[np.intp], lanes: Sequence[str], category: Sequence[str], args: list[str] | None
    ) -> Iterator[bytes]:
        columns = zip(
            category,
            lanes,
            rows.name[at].tolist(),
            self._times(rows.start_ns[at]),
            map(us_text, (rows.end_ns[at] - rows.start_ns[at]).tolist()),
            args if args is not None else ["{}"] * at.size,
            strict=True,
        )
        texts = [
            f'{{"ph":"X","cat":"{kind}",{lane},"name":{self._names[name] if name >= 0 else NO_NAME}'
            f',"ts":{since},"dur":{lasts},"args":{told}}}'
            for kind, lane, name, since, lasts, told in columns
        ]
        yield from _pieces(texts)


NO_NAME: Final = '""'


def _pieces(texts: Sequence[str]) -> Iterator[bytes]:
    for first in range(0, len(texts), _PER_PIECE):
        yield ",\n".join(texts[first : first + _PER_PIECE]).encode()


def _number(text: str, other: int) -> int:
    """An id as the number it is, or another one."""
    return int(text) if text.isdecimal() and len(text) < 10 else other
