"""Jobs of known structure for the tests of comparisons: the same step again and again, times in us."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from profkit.compare.captures.measured import measured
from profkit.compare.captures.sides import Run, Side
from profkit.compare.comparison import compare
from profkit.findings.comparison import EXPLAINED
from profkit.model.documents.comparison import Comparison
from profkit.model.finding import Finding
from profkit.model.trace import Trace
from profkit.testing import Row, kernel, launch, span, trace_of

US = 1000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@dataclass(frozen=True, kw_only=True)
class K:
    """A kernel of each step."""

    at: int
    us: int
    name: str = "gemm_kernel"
    stream: int = 7
    op: str = ""
    blocks: int = 64
    args: dict[str, Any] = field(default_factory=dict)


def N(at: int, us: int) -> K:  # noqa: N802 - a collective, as in testing.draw
    return K(at=at, us=us, name=NCCL, stream=20)


def collective(name: str, at: int, us: int = 60, *, elements: int = 1000, dtype: str = "Float") -> K:
    """One whose arguments were recorded."""
    sizes = {"In msg nelems": elements, "Out msg nelems": elements}
    return replace(N(at, us), args={"Collective name": name, "dtype": dtype, **sizes})


def copy(at: int, us: int, n_bytes: int, *, memory: str = "Pageable") -> K:
    """A copy to the device of each step."""
    return K(at=at, us=us, name=f"Memcpy HtoD ({memory} -> Device)", args={"bytes": n_bytes})


def host(name: str, at: int, us: int, cat: str = "cpu_op") -> tuple[str, int, int, str]:
    """A host range of each step."""
    return name, at, us, cat


def job(
    kernels: Sequence[K],
    *,
    step_us: int = 1000,
    n_steps: int = 5,
    ranges: Sequence[tuple[str, int, int, str]] = (),
    once: Sequence[tuple[str, int, int, str]] = (),
    slow: Mapping[int, int] | None = None,
    **metadata: Any,
) -> Trace:
    """The trace of a job whose every step runs these kernels and holds these host ranges.

    Ranges that happen `once` are at us from the first step. `slow` steps take so many us more.
    """
    rows = [span(name, 10**9 + at * US, 10**9 + (at + us) * US, cat=cat) for name, at, us, cat in once]
    correlation = late = 0
    for number in range(n_steps):
        begin = 10**9 + number * step_us * US + late
        more = (slow or {}).get(number, 0) * US
        late += more
        rows.append(span(f"ProfilerStep#{number}", begin, begin + step_us * US + more))
        for name, at, us, cat in ranges:
            rows.append(span(name, begin + at * US, begin + (at + us) * US, cat=cat))
        for item in sorted(kernels, key=lambda item: item.at):
            correlation += 1
            start = begin + item.at * US
            called = start - 5 * US
            if item.op:
                rows.append(span(item.op, called - US, called + 2 * US, cat="cpu_op"))
            rows.append(launch(called, called + US, correlation=correlation))
            args = {"grid": [item.blocks, 1, 1], "block": [128, 1, 1], **item.args}
            end = start + item.us * US
            if "bytes" in item.args:
                rows.append(
                    Row(
                        name=item.name,
                        cat="gpu_memcpy",
                        start_ns=start,
                        end_ns=end,
                        pid=0,
                        tid=item.stream,
                        args={"device": 0, "stream": item.stream, "correlation": correlation, **item.args},
                    )
                )
                continue
            rows.append(kernel(item.name, start, end, correlation=correlation, stream=item.stream, **args))
    return trace_of(rows, **metadata)


def side(name: str, *traces: Trace) -> Side:
    """A side of one run per trace."""
    return Side(
        name=name, runs=tuple(Run(name=name, traces=(measured(trace),), unprofiled_ns=((),)) for trace in traces)
    )


def compared(baseline: Trace, candidate: Trace) -> Comparison:
    return compare(side("baseline", baseline), side("candidate", candidate))


def read(baseline: Trace, candidate: Trace) -> dict[str, Finding]:
    """The readings by the word after `compare.`."""
    return {item.id.removeprefix("compare."): item for item in compared(baseline, candidate).readings}


def values(finding: Finding) -> dict[str, float]:
    """The evidence beside what the reading explains, by the word after `compare.`."""
    return {item.metric.removeprefix("compare."): item.value for item in finding.evidence if item.metric != EXPLAINED}


def explained(finding: Finding) -> float:
    """What a reading explains of the step's change, ns."""
    return finding.seen(EXPLAINED).value
