"""Probes on which other tools go wrong, as the files a profiler would write.

    probe("B") -> {0: bytes}        probe("E") -> {0: bytes, 1: bytes}

Two `ProfilerStep#` of 10 ms, host pid and tid 1, device 0, and a launch call per device row, unless a probe says
otherwise. `TRUTHS` says what is right for each; times in the functions are microseconds.
"""

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from profkit.testing import Row, kernel, launch, span, to_json

US = 1000
BASE_NS = 10**9
STEP_US = 10_000
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
COMMUNICATION = (
    "void vllm::cross_device_reduce_1stage<__half, 2>(vllm::RankData*, vllm::RankSignals, __half*, int)",
    "nvshmemi_transfer_quiet",
    "multimem_all_reduce_kernel",
    "mscclpp::allreduce",
    "deep_ep::internode::dispatch",
    "rcclGenericKernel",
)
NO_COMMUNICATION = ("batch_norm_SyncBN_kernel", "fused_dma_gemm", "hipblaslt_gemm_x", "Memcpy PtoP")

TRUTHS = {
    "A": "per name sum 30 us, mean 10, n 3; compute 360",
    "B": "compute 1,200.000 us, window 20,000",
    "C": "compute 200 us; sync rows are not activity",
    "D": "ranks 0 and 1 kept apart, 100 us each",
    "E": "rank 1 is the straggler; rank 0 waits 3,000 us per step",
    "F": "each has its launch; 3 of 3 linked",
    "G": "two devices, 100 us each, never merged",
    "H": "no communication: overlap is null, nothing crashes",
    "I": "compute 200 us on stream 0",
    "J": "communication 60 us; the rest is not",
    "L": "as E: still rank 1, although rank 0's clock is 5 ms ahead",
    "R": "idle 99 %, not 0 %",
    "U": "a CPU report, no crash",
}


def probe(name: str) -> dict[int, bytes]:
    """Give the files of a probe by rank."""
    return _PROBES[name]()


def at_ns(time_us: float) -> int:
    """Give a probe's time in ns since the trace's origin; its decimals (100.37 us) are exact ns."""
    return BASE_NS + round(time_us * US)


def steps(count: int = 2) -> list[Row]:
    """Give the step markers."""
    return [_on_host(span(f"ProfilerStep#{n}", at_ns(STEP_US * n), at_ns(STEP_US * (n + 1)))) for n in range(count)]


def launched(
    work: Iterable[tuple[str, float, float]], *, first: int = 1, device: int = 0, stream: int = 7, **arguments: Any
) -> list[Row]:
    """Give kernels (name, start us, end us), each with a launch call 5 us before it."""
    rows = []
    for number, (name, start, end) in enumerate(work, first):
        places = {"device": device, "stream": stream, **arguments}
        rows.append(kernel(name, at_ns(start), at_ns(end), correlation=number, **places))
        rows.append(_on_host(launch(at_ns(start - 5), at_ns(start - 4), correlation=number)))
    return rows


def _on_host(row: Row) -> Row:
    return replace(row, pid=1, tid=1)


def _alone(rows: list[Row]) -> dict[int, bytes]:
    return {0: to_json([*steps(), *rows])}


def _a() -> dict[int, bytes]:
    starts = [(f"kernel_{name:02}", 20 * (3 * name + call)) for name in range(12) for call in range(3)]
    return _alone(launched((name, start, start + 10) for name, start in starts))


def _b() -> dict[int, bytes]:
    return _alone(launched(("short", 100.37 + 19.5 * n, 101.57 + 19.5 * n) for n in range(1000)))


def _c() -> dict[int, bytes]:
    lane = {"device": 0, "stream": 7}
    wait = Row(name="Stream Sync", cat="cuda_sync", start_ns=at_ns(200), end_ns=at_ns(1000), pid=0, tid=7, args=lane)
    return _alone([*launched([("k", 100, 200), ("k", 1000, 1100)]), wait])


def _d() -> dict[int, bytes]:
    rows = [*steps(), *launched([("k", 100, 200)])]
    return {rank: to_json(rows, layout="minified", rank=rank) for rank in (0, 1)}


def _straggler(ahead_us: float = 0) -> dict[int, bytes]:
    """Rank 1 arrives 3,000 us late at each step's all-reduce, which ends everywhere at once."""
    files = {}
    for rank, (lateness, clock) in enumerate(((0, ahead_us), (3000, 0))):
        work = [(ALL_REDUCE, STEP_US * n + 4000 + lateness, STEP_US * n + 8000) for n in (0, 1)]
        seq = {"Collective name": "allreduce", "Process Group Name": "default_pg", "Group size": 2}
        rows = [*steps(), *launched(work, stream=20, **seq)]
        ahead_ns = round(clock * US)
        moved = [replace(row, start_ns=row.start_ns + ahead_ns, end_ns=row.end_ns + ahead_ns) for row in rows]
        files[rank] = to_json(moved, metadata={"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}})
    return files


def _f() -> dict[int, bytes]:
    rows = launched([("gemm", 200, 210)], first=2)
    for number, name, at, call in ((1, "triton_poi", 100, "cuLaunchKernel"), (3, "nvjet", 300, "cuLaunchKernelEx")):
        asked = launch(at_ns(at - 10), at_ns(at - 9), correlation=number, name=call, cat="cuda_driver")
        rows += [kernel(name, at_ns(at), at_ns(at + 10), correlation=number), _on_host(asked)]
    return _alone(rows)


def _g() -> dict[int, bytes]:
    return _alone([*launched([("k", 100, 200)]), *launched([("k", 300, 400)], first=2, device=1)])


def _h() -> dict[int, bytes]:
    return _alone(launched([("k", 100, 200)]))


def _i() -> dict[int, bytes]:
    return _alone(launched([("k", 100, 200), ("k", 300, 400)], stream=0))


def _j() -> dict[int, bytes]:
    names = (*COMMUNICATION, *NO_COMMUNICATION)
    return _alone(launched((name, 100 + 20 * n, 110 + 20 * n) for n, name in enumerate(names)))


def _r() -> dict[int, bytes]:
    return {0: to_json([*steps(1), *launched([("k", 100, 200)])])}


def _u() -> dict[int, bytes]:
    ops = [span("aten::mm", at_ns(10 + 100 * n), at_ns(90 + 100 * n), cat="cpu_op") for n in range(200)]
    return _alone([_on_host(op) for op in ops])


_PROBES: dict[str, Callable[[], dict[int, bytes]]] = {
    **dict(zip("ABCDEFGHIJRU", (_a, _b, _c, _d, _straggler, _f, _g, _h, _i, _j, _r, _u), strict=True)),
    "L": lambda: _straggler(ahead_us=5000),
}
