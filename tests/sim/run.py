"""Runs a job: a host that launches, a device with two streams, and the rows that a profiler writes of it."""

from collections import deque

from profkit.testing import Row, launch, span
from tests.sim.job import COMM, COMPUTE, COPIES, Item, Job

ORIGIN_NS = 10**9
_H2D = "Memcpy HtoD (Pinned -> Device)"


class Machine:
    """Host and device while a job runs; `rows` is what was recorded."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.host_ns = ORIGIN_NS
        self.done_ns = dict.fromkeys((COMPUTE, COPIES, COMM), ORIGIN_NS)
        self.ended: list[int] = []
        self.pending: deque[int] = deque()
        self.rows: list[Row] = []
        self.is_recording = False
        self.n = 0
        self.at_ns: dict[int, tuple[int, int]] = {}
        """From when to when each operation ran on the device, by the number of its launch."""
        self.began_ns = ORIGIN_NS

    def run(self) -> None:
        """Run the job to its end."""
        for item in self.job.backlog:
            self.do(item)
        self.is_recording, self.began_ns = True, self.host_ns
        step: tuple[str, int] | None = None
        for item in self.job.items:
            if item.what == "step":
                self.mark(step)
                step = item.name, self.host_ns
            else:
                self.do(item)
        self.mark(step)

    @property
    def end_ns(self) -> int:
        """When both are done."""
        return max(self.host_ns, *self.done_ns.values())

    def mark(self, step: tuple[str, int] | None) -> None:
        if step is not None:
            self.rows.append(span(step[0], step[1], self.host_ns))

    def write(self, row: Row) -> None:
        if self.is_recording:
            self.rows.append(row)

    def do(self, item: Item) -> None:
        """Let the host do one item."""
        begin = self.host_ns
        if item.what in ("op", "item", "copy"):
            self.launched(item)
        elif item.what in ("sync", "free"):
            streams = (COMPUTE,) if item.what == "sync" else tuple(self.done_ns)
            self.host_ns = max(self.host_ns, *(self.done_ns[stream] for stream in streams)) + item.host_ns
            name = "cudaStreamSynchronize" if item.what == "sync" else "cudaFree"
            self.write(launch(begin, self.host_ns, correlation=0, name=name))
        elif item.what == "event":
            recorded = self.ended[-1 - item.back] if len(self.ended) > item.back else begin
            self.host_ns = max(self.host_ns, recorded) + item.host_ns
            self.write(launch(begin, self.host_ns, correlation=0, name="cudaEventSynchronize"))
        else:
            self.host_ns += item.host_ns
            if item.what == "malloc":
                self.write(launch(begin, self.host_ns, correlation=0, name="cudaMalloc"))
            if item.what == "data":
                name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
                self.write(span(name, begin, self.host_ns))

    def launched(self, item: Item) -> None:
        """Launch an operation; wait for it where the item does."""
        begin = self.host_ns
        self.host_ns += item.host_ns
        while self.pending and self.pending[0] <= self.host_ns:
            self.pending.popleft()
        at = self.host_ns
        if len(self.pending) >= self.job.queue:
            self.host_ns = self.pending.popleft()
        start = max(at + item.latency_ns, self.host_ns)
        start = max(start, self.done_ns[item.stream] + self.job.turnaround_ns)
        if item.after is not None:
            start = max(start, self.done_ns[item.after] + self.job.turnaround_ns)
        start += item.extra_ns
        end = start + item.device_ns
        self.ended.append(end)
        self.done_ns[item.stream] = end
        self.pending.append(end)
        self.host_ns += item.call_ns
        if item.what == "copy":
            self.host_ns = max(self.host_ns, end + 2_000)
        self.n += 1
        self.at_ns[self.n] = start, end
        is_copy = item.what == "copy" or item.name == "aten::copy_"
        call = "cudaMemcpyAsync" if is_copy or item.what == "item" else "cudaLaunchKernel"
        self.write(launch(at, self.host_ns, correlation=self.n, name=call))
        if item.what == "item":
            waited = self.host_ns
            self.host_ns = max(self.host_ns, end) + 3_000
            self.write(launch(waited, self.host_ns, correlation=0, name="cudaStreamSynchronize"))
        if item.name:
            self.write(span(item.name, begin, self.host_ns, cat="cpu_op"))
        if self.is_recording or end > self.began_ns:
            self.on_device(item, start, end, is_copy=is_copy)

    def on_device(self, item: Item, start: int, end: int, *, is_copy: bool) -> None:
        name = "kernel" if item.name or item.what != "op" else "written_by_hand"
        if item.stream == COMM:
            name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        self.rows.append(
            Row(
                name=_H2D if is_copy else ("Memcpy DtoH (Device -> Pageable)" if item.what == "item" else name),
                cat="gpu_memcpy" if is_copy or item.what == "item" else "kernel",
                start_ns=start,
                end_ns=end,
                pid=0,
                tid=item.stream,
                args={"device": 0, "stream": item.stream, "correlation": self.n, **({"bytes": 8} if is_copy else {})},
            )
        )


def ran(job: Job) -> Machine:
    """The machine after a job."""
    machine = Machine(job)
    machine.run()
    # what had ended when the capture began is not in it
    began = machine.began_ns
    machine.rows = [row for row in machine.rows if row.end_ns > began]
    return machine
