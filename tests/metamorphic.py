"""Jobs run on paper: a host program and the streams it feeds, with times known to the nanosecond; and changed files.

    job = Job()
    job.step(0, lambda: job.op("aten::mm", lambda: job.launch(200_000)))
    report = triaged(job.rows, tmp_path)

A device operation starts `lag_ns` after its launch call began, on a free stream; else `TURNAROUND_NS` after the one
before it.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from profkit.api import triage
from profkit.model.documents.report import Report
from profkit.testing import HOST_PID, Row, to_json

Body = Callable[[], object]

TURNAROUND_NS: Final = 1_000
GEMM: Final = "ampere_bf16_s16816gemm_bf16_128x128_tn"
ALL_REDUCE: Final = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Job:
    """One process with one launching thread: each method moves its clock and adds the rows a profiler would write."""

    def __init__(
        self, *, pid: int = HOST_PID, device: int = 0, lag_ns: int = 5_000, calls: str = "cuda", first: int = 1
    ) -> None:
        self.now_ns = 10**9
        self.rows: list[Row] = []
        self._calls = calls
        self._pid, self._device, self._lag_ns = pid, device, lag_ns
        self._free_ns: dict[int, int] = {}
        self._correlation = first - 1

    def work(self, duration_ns: int) -> None:
        """Let the host do what no row shows."""
        self.now_ns += duration_ns

    def range(self, name: str, body: Body, *, cat: str = "user_annotation") -> None:
        """Open a range around what the body does."""
        start = self.now_ns
        body()
        self._add(Row(name=name, cat=cat, start_ns=start, end_ns=self.now_ns))

    def step(self, number: int, body: Body) -> None:
        """Mark what the body does as a step."""
        self.range(f"ProfilerStep#{number}", body)

    def steps(self, n: int, body: Body) -> None:
        """Mark so many steps."""
        for number in range(n):
            self.step(number, body)

    def op(self, name: str, body: Body, *, dispatch_ns: int = 4_000) -> None:
        """Call an operator: half of its dispatching before the body, half after it."""

        def dispatched() -> None:
            self.work(dispatch_ns // 2)
            body()
            self.work(dispatch_ns // 2)

        self.range(name, dispatched, cat="cpu_op")

    def ops(self, n: int, duration_ns: int, *, op: str = "aten::mm", rest_ns: int = 0, **asked: Any) -> None:
        """Call an operator n times, each for a kernel, and do as long what no row shows."""
        dispatch_ns = asked.pop("dispatch_ns", 4_000)
        for _ in range(n):
            self.op(op, lambda: self.launch(duration_ns, **asked), dispatch_ns=dispatch_ns)
            self.work(rest_ns)

    def launch(
        self, duration_ns: int, *, name: str = GEMM, stream: int = 7, after: tuple[int, ...] = (), cost_ns: int = 4_000
    ) -> int:
        """Launch a kernel that waits for the streams `after`; give its end."""
        self._call(f"{self._calls}LaunchKernel", cost_ns)
        return self._queued(name, "kernel", stream, (self.now_ns - cost_ns, duration_ns), after)

    def replay(self, n: int, duration_ns: int, gap_ns: int, *, stream: int = 7) -> None:
        """Launch a CUDA graph of n kernels with gaps between them."""
        self._call(f"{self._calls}GraphLaunch", 30_000)
        start = max(self.now_ns - 30_000 + self._lag_ns, self._free_ns.get(stream, 0) + TURNAROUND_NS)
        for node in range(n):
            end = start + duration_ns
            arguments = {"device": self._device, "stream": stream, "correlation": self._correlation}
            arguments |= {"graph id": 1, "graph node id": node + 1}
            place = {"pid": self._device, "tid": stream}
            self.rows.append(Row(name=GEMM, cat="kernel", start_ns=start, end_ns=end, args=arguments, **place))
            self._free_ns[stream], start = end, end + gap_ns

    def copy(self, duration_ns: int, *, to: str = "Device", is_pageable: bool = False, stream: int = 7) -> None:
        """Copy a batch; from pageable memory the call lasts until the copy has ended."""
        start = self.now_ns
        memory = "Pageable" if is_pageable else "Pinned"
        name = f"Memcpy HtoD ({memory} -> Device)" if to == "Device" else f"Memcpy DtoH (Device -> {memory})"
        self._correlation += 1
        end = self._queued(name, "gpu_memcpy", stream, (start, duration_ns), ())
        self.now_ns = end if is_pageable else start + 4_000
        arguments = {"correlation": self._correlation}
        name = f"{self._calls}MemcpyAsync"
        self._add(Row(name=name, cat="cuda_runtime", start_ns=start, end_ns=self.now_ns, args=arguments))

    def synchronise(self, *, stream: int = 7, call: str = "StreamSynchronize", cost_ns: int = 2_000) -> None:
        """Wait until a stream has run dry."""
        self._call(self._calls + call, max(self._free_ns.get(stream, 0) - self.now_ns, 0) + cost_ns)

    @property
    def left_ns(self) -> int:
        """How long the streams still work on what was launched."""
        return max(max(self._free_ns.values(), default=0) - self.now_ns, 0)

    def follow(self, other: "Job", *, stream: int = 7) -> None:
        """Go on where another device's job is, with a stream that waits for that one's."""
        self.now_ns = other.now_ns
        self._free_ns[stream] = max(self._free_ns.get(stream, 0), other._free_ns[stream])

    def _call(self, name: str, duration_ns: int) -> None:
        self._correlation += 1
        end = self.now_ns + duration_ns
        arguments = {"correlation": self._correlation}
        self._add(Row(name=name, cat="cuda_runtime", start_ns=self.now_ns, end_ns=end, args=arguments))
        self.now_ns = end

    def _queued(self, name: str, cat: str, stream: int, asked: tuple[int, int], after: tuple[int, ...]) -> int:
        issued, duration = asked
        start = issued + self._lag_ns
        for other in {stream, *after} & set(self._free_ns):
            start = max(start, self._free_ns[other] + TURNAROUND_NS)
        end = self._free_ns[stream] = start + duration
        arguments: dict[str, Any] = {"device": self._device, "stream": stream, "correlation": self._correlation}
        if cat == "gpu_memcpy":
            arguments["bytes"] = duration * 10  # 10 GB/s
        row = Row(name=name, cat=cat, start_ns=start, end_ns=end, pid=self._device, tid=stream, args=arguments)
        self.rows.append(row)
        return end

    def _add(self, row: Row) -> None:
        self.rows.append(replace(row, pid=self._pid, tid=self._pid))


def triaged(rows: Iterable[Row], folder: Path, *, layout: str = "kineto", **options: Any) -> Report:
    """Give the report of rows, through a file."""
    path = folder / "trace.json"
    path.write_bytes(to_json(rows, layout=layout))
    return triage([str(path)], **options)
