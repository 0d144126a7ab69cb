"""Traces for tests: drawn as ASCII timelines, or built row by row, and written as the files a profiler writes.

    trace = draw('''
        steps  | 0.........1.........
        gpu s7 | ..KKKK..kk..NNN.....
        main   | L..L....L..L........
    ''')

One character is one microsecond (`unit_ns`). A run of one letter is one row; a change of case ends a row, so that
`KKkk` is two kernels back to back. Lines of one name are one lane, so ranges can be drawn inside ranges.

    gpu s7, gpu1 s20    device (0 if left out) and stream:  K kernel  N NCCL kernel  C copy to device
                        D copy to the host  M memset  X synchronisation row
    any other name      a host thread:  L cudaLaunchKernel  G cudaGraphLaunch  H cudaMemcpyAsync
                        S cudaStreamSynchronize
                        A cudaMalloc  O operator  W DataLoader wait  R gloo range  U user range  P Python frame
    steps               a digit begins a step, which lasts to the next digit or the end of the line

The n-th device row is linked to the n-th launching call (L, G, H) by time; where none is drawn, every device row gets
a launch call of 1 us that begins `lag_us` before it. All of it goes through the real reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from profkit.errors import UsageError
from profkit.ingest.assemble.build import build_trace
from profkit.ingest.assemble.raw import RawTrace
from profkit.ingest.kineto.batch import decode_batch
from profkit.ingest.kineto.source import traits
from profkit.model.trace import Trace

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

HOST_PID: Final = 1000

_DEVICE_ROWS: Final = {
    "K": ("kernel", "compute_kernel"),
    "N": ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
    "C": ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)"),
    "D": ("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)"),
    "M": ("gpu_memset", "Memset (Device)"),
    "X": ("cuda_sync", "Stream Sync"),
}
_HOST_ROWS: Final = {
    "L": ("cuda_runtime", "cudaLaunchKernel"),
    "G": ("cuda_runtime", "cudaGraphLaunch"),
    "H": ("cuda_runtime", "cudaMemcpyAsync"),
    "S": ("cuda_runtime", "cudaStreamSynchronize"),
    "A": ("cuda_runtime", "cudaMalloc"),
    "O": ("cpu_op", "aten::op"),
    "W": ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
    "R": ("user_annotation", "gloo:all_reduce"),
    "U": ("user_annotation", "forward"),
    "P": ("python_function", "train.py(1): step"),
}
_LAUNCHING: Final = "LGH"
_LANE: Final = re.compile(r"gpu(\d*) s(\d+)")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a trace: times in ns; `args` as Kineto writes them."""

    name: str
    cat: str
    start_ns: int
    end_ns: int
    pid: int | str = HOST_PID
    tid: int | str = HOST_PID
    ph: str = "X"
    args: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def as_json(self) -> str:
        """The event as JSON with times as decimal microseconds, three digits, never through a float."""
        head = json.dumps({"ph": self.ph, "cat": self.cat, "name": self.name, "pid": self.pid, "tid": self.tid})
        times = f'"ts": {_decimal_us(self.start_ns)}, "dur": {_decimal_us(self.end_ns - self.start_ns)}'
        return f'{head[:-1]}, {times}, "args": {json.dumps(dict(self.args))}}}'


def _decimal_us(time_ns: int) -> str:
    sign = "-" if time_ns < 0 else ""
    return f"{sign}{abs(time_ns) // 1000}.{abs(time_ns) % 1000:03d}"


def kernel(
    name: str, start_ns: int, end_ns: int, *, correlation: int, stream: int = 7, device: int = 0, **args: Any
) -> Row:
    """A kernel row."""
    arguments = {"device": device, "stream": stream, "correlation": correlation, **args}
    return Row(name=name, cat="kernel", start_ns=start_ns, end_ns=end_ns, pid=device, tid=stream, args=arguments)


def launch(
    start_ns: int, end_ns: int, *, correlation: int, name: str = "cudaLaunchKernel", cat: str = "cuda_runtime"
) -> Row:
    """A launch call on the host."""
    return Row(name=name, cat=cat, start_ns=start_ns, end_ns=end_ns, args={"correlation": correlation})


def span(name: str, start_ns: int, end_ns: int, *, cat: str = "user_annotation", tid: int = HOST_PID) -> Row:
    """A host range."""
    return Row(name=name, cat=cat, start_ns=start_ns, end_ns=end_ns, tid=tid)


def operator(name: str, start_ns: int, end_ns: int, *, tid: int = HOST_PID, **args: Any) -> Row:
    """An operator's row; `args` as Kineto writes them, spaces of their names as underscores: `Input_Dims=[[2, 3]]`."""
    arguments = {key.replace("_", " "): value for key, value in args.items()}
    return Row(name=name, cat="cpu_op", start_ns=start_ns, end_ns=end_ns, tid=tid, args=arguments)


def to_json(
    rows: Iterable[Row], *, layout: str = "kineto", metadata: Mapping[str, Any] | None = None, rank: int | None = None
) -> bytes:
    """A trace file. Layouts: "kineto", "minified", "indented", "events_last", "list"."""
    top: dict[str, Any] = {"schemaVersion": 1, **(metadata or {})}
    if rank is not None:
        top["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": rank + 1}
    events = [row.as_json() for row in rows]
    head = json.dumps(top)[1:-1]
    if layout == "list":
        return f"[{','.join(events)}]".encode()
    if layout == "events_last":
        return f'{{{head}, "traceEvents": [{", ".join(events)}]}}'.encode()
    joined = ",\n".join(f"  {event}" for event in events)
    text = f'{{\n  {head},\n  "traceEvents": [\n{joined}\n  ],\n  "traceName": "t.json"\n}}\n'
    if layout == "kineto":
        return text.encode()
    # ts and dur are small in tests, so that json's floats hold them exactly
    document = json.loads(text)
    if layout == "minified":
        return json.dumps(document, separators=(",", ":")).encode()
    if layout == "indented":
        return json.dumps(document, indent=4).encode()
    raise UsageError(f"unknown layout {layout!r}")


def trace_of(rows: Iterable[Row], **metadata: Any) -> Trace:
    """The `Trace` of rows, through the real decoder."""
    array = f"[{','.join(row.as_json() for row in rows)}]".encode()
    return build_trace(RawTrace("drawn", traits(), batches=[decode_batch(array)], metadata=metadata))


def draw(picture: str, *, lag_us: int = 5, unit_ns: int = 1000, origin_ns: int = 10**9, **metadata: Any) -> Trace:
    """The `Trace` of a picture (see the module's text); times begin at `origin_ns`."""
    return trace_of(drawn_rows(picture, lag_us=lag_us, unit_ns=unit_ns, origin_ns=origin_ns), **metadata)


def drawn_rows(picture: str, *, lag_us: int = 5, unit_ns: int = 1000, origin_ns: int = 10**9) -> list[Row]:
    """The rows of a picture, linked; raises UsageError for a letter or lane it does not know."""
    device: list[Row] = []
    host: list[Row] = []
    steps: list[Row] = []
    threads: dict[str, int] = {}
    for line in filter(str.strip, picture.splitlines()):
        lane, bar, cells = line.partition("|")
        lane, cells = lane.strip(), cells.rstrip().removeprefix(" ")
        if not bar:
            raise UsageError(f"{line!r} has no |")
        at = [(origin_ns + unit_ns * first, origin_ns + unit_ns * stop, letter) for first, stop, letter in _runs(cells)]
        if lane == "steps":
            steps += _steps(cells, unit_ns, origin_ns)
        elif match := _LANE.fullmatch(lane):
            device += [_device_row(int(match[1] or 0), int(match[2]), *run) for run in at]
        else:
            tid = threads.setdefault(lane, HOST_PID + len(threads))
            host += [_host_row(tid, *run) for run in at]
    return steps + _linked(device, host, lag_us * unit_ns, unit_ns)


def _runs(cells: str) -> list[tuple[int, int, str]]:
    runs, place = [], 0
    for letter, group in groupby(cells):
        length = len(list(group))
        if letter not in ". ":
            runs.append((place, place + length, letter))
        place += length
    return runs


def _steps(cells: str, unit_ns: int, origin_ns: int) -> list[Row]:
    starts = [place for place, letter in enumerate(cells) if letter.isdigit()]
    edges = [origin_ns + unit_ns * place for place in (*starts, len(cells))]
    return [span(f"ProfilerStep#{number}", start, end) for number, (start, end) in enumerate(pairwise(edges))]


def _device_row(device: int, stream: int, start_ns: int, end_ns: int, letter: str) -> Row:
    if letter.upper() not in _DEVICE_ROWS:
        raise UsageError(f"no device row is drawn as {letter!r}")
    cat, name = _DEVICE_ROWS[letter.upper()]
    args = {"device": device, "stream": stream}
    return Row(name=name, cat=cat, start_ns=start_ns, end_ns=end_ns, pid=device, tid=stream, args=args)


def _host_row(tid: int, start_ns: int, end_ns: int, letter: str) -> Row:
    if letter.upper() not in _HOST_ROWS:
        raise UsageError(f"no host row is drawn as {letter!r}")
    cat, name = _HOST_ROWS[letter.upper()]
    return Row(name=name, cat=cat, start_ns=start_ns, end_ns=end_ns, tid=tid)


def _linked(device: list[Row], host: list[Row], lag_ns: int, call_ns: int) -> list[Row]:
    work = sorted((row for row in device if row.cat != "cuda_sync"), key=lambda row: row.start_ns)
    launching = {_HOST_ROWS[letter][1] for letter in _LAUNCHING}
    calls = sorted((row for row in host if row.name in launching), key=lambda row: row.start_ns)
    others = [row for row in (*device, *host) if row not in work and row not in calls]
    if not calls:
        calls = [
            Row(
                name="cudaLaunchKernel",
                cat="cuda_runtime",
                start_ns=row.start_ns - lag_ns,
                end_ns=row.start_ns - lag_ns + call_ns,
            )
            for row in work
        ]
    return [
        *others,
        *(_with_correlation(row, number) for number, row in enumerate(work, 1)),
        *(_with_correlation(row, number) for number, row in enumerate(calls, 1)),
    ]


def _with_correlation(row: Row, correlation: int) -> Row:
    return replace(row, args={**row.args, "correlation": correlation})


def interval_lists(*, size: int = 60, max_size: int = 12) -> SearchStrategy[list[tuple[int, int]]]:
    """A hypothesis strategy for lists of `(start, end)` within `[0, size]`, empty and reversed ones among them."""
    from hypothesis import strategies as st  # a test-time package

    return st.lists(st.tuples(st.integers(0, size), st.integers(0, size)), max_size=max_size)


def row_lists(*, max_size: int = 20, origin_ns: int = 10**9) -> SearchStrategy[list[Row]]:
    """A hypothesis strategy for the rows of a small trace: one step, and kernels, copies, calls, ranges in it.

    Rows overlap and share start times at will; every device row has one launch call of its own correlation.
    """
    from hypothesis import strategies as st  # a test-time package

    times = st.tuples(st.integers(0, 200), st.integers(0, 50))
    device_rows = st.tuples(st.sampled_from("KNCDM"), st.integers(0, 2), st.sampled_from([0, 7, 20]), times)
    host_rows = st.tuples(st.sampled_from("SAOWRUP"), st.integers(0, 2), times)

    @st.composite
    def rows(draw_from: DrawFn) -> list[Row]:
        device = [
            _device_row(number, stream, origin_ns + start, origin_ns + start + length, letter)
            for letter, number, stream, (start, length) in draw_from(st.lists(device_rows, max_size=max_size))
        ]
        host = [
            _host_row(HOST_PID + thread, origin_ns + start, origin_ns + start + length, letter)
            for letter, thread, (start, length) in draw_from(st.lists(host_rows, max_size=max_size))
        ]
        step = span("ProfilerStep#0", origin_ns, origin_ns + 300)
        return [step, *_linked(device, host, lag_ns=draw_from(st.integers(0, 40)), call_ns=3)]

    return rows()
