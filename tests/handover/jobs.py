"""One job under two profilers: traced as Kineto writes it, exported as nsys does, each with a cost of its own."""

from dataclasses import dataclass, field, replace
from pathlib import Path

from profkit.ingest.read import read_traces
from profkit.model.trace import Kind, SpanKind, Trace
from profkit.testing import Row, kernel, launch, span, trace_of
from tests.ingest.nsys_files import RANK0, Export, global_pid, global_tid

US = 1000
GEMM = "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nn_align8>(Params)"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array>(int)"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)"
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


@dataclass(frozen=True)
class Launch:
    """One launch of each step: its kernel, how long it runs, and where."""

    name: str
    us: int
    grid: tuple[int, int, int] = (64, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    stream: int = 7


BLOCK = (
    Launch(GEMM, 120, (128, 4, 1), (256, 1, 1)),
    Launch(ADD, 10),
    Launch(NORM, 15, (512, 1, 1)),
    Launch(ADD, 10, (96, 1, 1)),
    Launch(NCCL, 20, (24, 1, 1), (512, 1, 1), stream=20),
)


@dataclass(frozen=True)
class Job:
    """Steps of launches. The host takes `host_us` between launches, `call_us` in each call; streams run side by side.

    `wait_us` is a stall of the host at the head of a step; `jitter_us` lengthens it step by step, 0, 1, 2, 0, 1, 2...
    """

    launches: tuple[Launch, ...] = BLOCK * 4
    n_steps: int = 6
    host_us: int = 5
    call_us: int = 4
    wait_us: int = 0
    wait: str = ""
    jitter_us: int = 2
    stretch: float = 1.0
    device: str = "NVIDIA H100"
    device_index: int = 0
    metadata: dict = field(default_factory=dict)

    def rows(self) -> list[Row]:
        now, free = 10**9, {}
        rows = []
        correlation = 0
        for step in range(self.n_steps):
            begin = now
            idle = (self.wait_us + self.jitter_us * (step % 3)) * US
            if self.wait and idle:
                rows.append(span(self.wait, now, now + idle))
            now += idle
            for one in self.launches:
                correlation += 1
                now += self.host_us * US
                call_end = now + self.call_us * US
                rows.append(launch(now, call_end, correlation=correlation))
                rows.append(span("aten::op", now - US, call_end, cat="cpu_op"))
                start = max(now + 6 * US, free.get(one.stream, 0))
                end = start + round(one.us * US * self.stretch)
                free[one.stream] = end
                shape = {"grid": list(one.grid), "block": list(one.block)}
                shape["device"] = self.device_index
                rows.append(kernel(one.name, start, end, correlation=correlation, stream=one.stream, **shape))
                now = call_end
            last = max(free.values())
            rows.append(launch(now, max(now, last) + 2 * US, correlation=0, name="cudaStreamSynchronize"))
            now = max(now, last) + 2 * US
            rows.append(span(f"ProfilerStep#{step + 3}", begin, now))
        return rows

    def trace(self) -> Trace:
        """The job as torch.profiler sees it."""
        properties = [{"id": self.device_index, "name": self.device}]
        return trace_of(self.rows(), **{"deviceProperties": properties} | self.metadata)

    def nsys(self, path: Path, **more) -> Trace:
        """The job as nsys sees it, by way of a real export in a file."""
        export = exported(self.trace(), **more)
        (trace,) = read_traces(str(export.write(path)))
        return trace

    def but(self, **changes):
        return replace(self, **changes)


def exported(trace: Trace, *, pid: int = RANK0, export: Export | None = None) -> Export:
    """Give a trace as the rows of an nsys export, a process `pid`; the window begins at 1 s."""
    export = export or Export()
    names = {device.index: device.name for device in trace.meta.devices}
    for device in trace.device_indices:
        export.add("TARGET_INFO_GPU", id=device, name=names.get(device, ""), smCount=132, cuDevice=device)
    calls, gpu = trace.calls, trace.gpu
    base = trace.window_ns[0] - 10**9
    for row in range(len(calls)):
        export.call(
            int(calls.start_ns[row]) - base,
            int(calls.end_ns[row]) - base,
            trace.name(calls.name[row]),
            pid=pid,
            correlation=row + 1,
        )
    for row in range(len(gpu)):
        times = {
            "start": int(gpu.start_ns[row]) - base,
            "end": int(gpu.end_ns[row]) - base,
            "deviceId": int(gpu.device[row]),
            "contextId": 1,
            "streamId": int(gpu.stream[row]),
            "correlationId": int(gpu.launch_row[row]) + 1 or 10**6 + row,
            "globalPid": global_pid(pid),
        }
        if gpu.kind[row] == Kind.COPY:
            export.add("CUPTI_ACTIVITY_KIND_MEMCPY", **times, bytes=int(gpu.n_bytes[row]), copyKind=1)
            continue
        name = export.string(trace.name(gpu.name[row]).replace("(anonymous namespace)", "<unnamed>"))
        shapes = zip(("gridX", "gridY", "gridZ"), gpu.grid[row].tolist(), strict=True)
        blocks = zip(("blockX", "blockY", "blockZ"), gpu.block[row].tolist(), strict=True)
        export.add(
            "CUPTI_ACTIVITY_KIND_KERNEL", **times, demangledName=name, shortName=name, **dict(shapes), **dict(blocks)
        )
    spans = trace.spans
    for row in range(len(spans)):
        if spans.kind[row] in (SpanKind.STEP, SpanKind.LOADER, SpanKind.OTHER):
            start, end = int(spans.start_ns[row]) - base, int(spans.end_ns[row]) - base
            export.range(start, end, trace.name(spans.name[row]), pid=pid)
    for row in range(len(trace.ops)):
        text = f"{trace.name(trace.ops.name[row])}, seq = {row}, op_id = {row}"
        export.range(int(trace.ops.start_ns[row]) - base, int(trace.ops.end_ns[row]) - base, text, pid=pid)
    return export


def os_wait(export: Export, start: int, end: int, name: str, *, pid: int = RANK0) -> None:
    export.add("OSRT_API", start=start, end=end, globalTid=global_tid(pid), nameId=export.string(name))


NCU_HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


@dataclass(frozen=True)
class Profile:
    """One launch as ncu prints it on its details page; `name` as ncu shortens names."""

    name: str
    compute: float
    memory: float
    us: float = 100.0
    waves: float = 4.0
    grid: tuple[int, int, int] = (64, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)


def ncu_csv(path: Path, *profiles: Profile, noise: str = "step 1 loss 7.03\n==PROF== Connected to process 7\n") -> Path:
    """Write a details page with the program's own output before it."""
    lines = [NCU_HEADER]
    section = '"GPU Speed Of Light Throughput"'
    for number, one in enumerate(profiles):
        grid, block = ("(" + ", ".join(map(str, size)) + ")" for size in (one.grid, one.block))
        head = f'"{number}","7","python3","host","{one.name}","1","7","{block}","{grid}","0","9.0"'
        lines += [
            f'{head},{section},"Duration","us","{one.us}"',
            f'{head},{section},"Compute (SM) Throughput","%","{one.compute}"',
            f'{head},{section},"Memory Throughput","%","{one.memory}"',
            f'{head},"Launch Statistics","Waves Per SM","","{one.waves}"',
        ]
    path.write_text(noise + "\n".join(lines) + "\n")
    return path
