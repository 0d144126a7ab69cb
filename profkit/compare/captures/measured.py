"""What a comparison needs of one trace, in KB: its report, its work summed by identity, and a few counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.compare.captures.work_rows import Rows, communication, computation
from profkit.ingest.numbers import MOST_BYTES, rank_in_name, whole
from profkit.model.arrays import rows_by_value
from profkit.model.documents.rank_report import DeviceReport, RankReport
from profkit.model.documents.report import Verdict
from profkit.model.intervals import Intervals
from profkit.model.trace import Kind, SpanKind, Trace, TraceMeta
from profkit.pipeline import analyse, narrowed
from profkit.ranks.reduce.outcome import Outcome, outcome
from profkit.timeline import Facts
from profkit.timeline.steps import steps_in_window

_BACKWARD_NODE: Final = "autograd::engine::evaluate_function"
# Operators of the forward pass that no backward formula calls: inside a backward node they are recomputation.
_FORWARD_ONLY: Final = frozenset(
    "aten::" + name
    for name in (
        "linear",
        "addmm",
        "layer_norm",
        "rms_norm",
        "batch_norm",
        "group_norm",
        "gelu",
        "silu",
        "relu",
        "softmax",
        "conv1d",
        "conv2d",
        "conv3d",
        "scaled_dot_product_attention",
        "embedding",
        "dropout",
    )
)
_TRITON: Final = "triton_"


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How often things happened over the window, and a few sums."""

    launches: int
    graph_launches: int
    operators: int
    """Leaf operators on a CPU, kernels and copies on a device."""
    syncs: int
    recomputed: int
    """Forward operators that ran inside the backward pass."""
    forward: int
    """The same operators outside it."""
    compiled_ns: int
    """Time in kernels that Inductor generated; on a CPU, in calls of compiled graphs."""
    copied_bytes: int
    """Bytes copied to the device."""
    copies: Mapping[str, tuple[int, int, int]]
    """By the name of the copy, as `Memcpy HtoD (Pageable -> Device)`: how many, ns, bytes (0 where none are told)."""
    matrix_ns: Mapping[str, int]
    """Time of matrix kernels by number format."""
    peak_bytes: int | None
    loader: str


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One trace. Sums are over its window, which holds `n_steps` steps (1 where none were found)."""

    meta: TraceMeta
    report: RankReport
    verdict: Verdict
    device: DeviceReport
    n_steps: int
    has_steps: bool
    compute: Rows
    comm: Rows
    counts: Counts
    pid: str
    """Of the process that stepped: traces of one process are not independent runs."""
    rank: int | None
    """By the trace, else by the file's name."""
    span_unix_ns: tuple[int, int]
    """When the window began and ended, by the clock of the host."""
    step_numbers: frozenset[int]
    """The job's own numbers of the steps in the window."""
    op_calls: Mapping[str, int]
    """How often each `aten::` operator began in the window."""
    shapes: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Elements of the inputs of operators (`shapes.recorded_shapes`); empty where none are known."""
    outcome: Outcome | None = None
    """What the verdict on all ranks needs of this one; None where it was not asked for."""

    @property
    def is_cpu(self) -> bool:
        """Whether the CPU is the device."""
        return self.device.kind == "cpu"


def measured(trace: Trace, *, is_one_of_many: bool = False) -> Measured:
    """What is compared of a trace; where steps were found by their period, the window is cut to them.

    Of many it is also summed up for the other ranks.
    """
    if trace.step_source == "period":
        trace = narrowed(trace, (0, len(trace.steps)))
    whole = analyse(trace)
    facts, report = whole.facts, whole.rank
    named = rank_in_name(trace.meta.source.rpartition("/")[2])
    low, high = trace.window_ns
    device = max(report.devices, key=lambda item: item.busy_any_ns)
    return Measured(
        meta=trace.meta,
        report=report,
        verdict=whole.verdict,
        device=device,
        n_steps=facts.n_steps,
        has_steps=report.steps.n > 0,
        compute=computation(facts),
        comm=communication(facts),
        counts=_counts(facts, whole.results),
        pid=_pid(trace),
        rank=named if trace.meta.rank is None and named >= 0 else trace.meta.rank,
        span_unix_ns=(trace.origin_unix_ns + low, trace.origin_unix_ns + high),
        step_numbers=frozenset(step.number for step in steps_in_window(trace)),
        op_calls=_op_calls(trace),
        outcome=outcome(whole) if is_one_of_many else None,
    )


def _op_calls(trace: Trace) -> dict[str, int]:
    low, high = trace.window_ns
    names = trace.ops.name[(trace.ops.start_ns >= low) & (trace.ops.start_ns < high)]
    codes, counts = np.unique(names, return_counts=True)
    called = {trace.name(code): count for code, count in zip(codes.tolist(), counts.tolist(), strict=True)}
    return {name: count for name, count in called.items() if name.startswith("aten::")}


def _pid(trace: Trace) -> str:
    rows = np.flatnonzero(trace.spans.kind == SpanKind.STEP)
    thread = int(trace.spans.thread[rows[0]]) if rows.size else int(trace.ops.thread[0]) if len(trace.ops) else -1
    return trace.threads[thread].pid if thread >= 0 else ""


def _counts(facts: Facts, results: dict[str, Any]) -> Counts:
    trace = facts.trace
    launches, syncs = results["launches"], results.get("syncs")
    memory, loader, precision = results.get("memory"), results.get("input"), results.get("precision")
    recomputed, forward = _forward_operators(trace)
    return Counts(
        launches=launches.n_launch_calls,
        graph_launches=launches.n_graph_launches,
        operators=launches.n_operations,
        syncs=syncs.n_calls if syncs else 0,
        recomputed=recomputed,
        forward=forward,
        compiled_ns=_compiled_ns(facts),
        copied_bytes=_copied_bytes(facts),
        copies=_copies(facts),
        matrix_ns=dict(precision.by_format) if precision else {},
        peak_bytes=_peak_bytes(trace.meta, memory),
        loader=loader.loader if loader else "",
    )


def _forward_operators(trace: Trace) -> tuple[int, int]:
    """How many forward operators of the window ran inside backward nodes, and how many outside."""
    ops = trace.ops
    low, high = trace.window_ns
    starts_with_node = np.array([name.startswith(_BACKWARD_NODE) for name in trace.strings], np.bool_)
    is_forward = np.array([name in _FORWARD_ONLY for name in trace.strings], np.bool_)
    rows = np.flatnonzero(is_forward[ops.name] & (ops.start_ns >= low) & (ops.start_ns < high))
    n_inside = 0
    nodes = np.flatnonzero(starts_with_node[ops.name])
    nodes_of = {thread: nodes[places] for thread, places in rows_by_value(ops.thread[nodes])}
    for thread, places in rows_by_value(ops.thread[rows]):
        if thread in nodes_of:
            backward = Intervals.of(ops.start_ns[nodes_of[thread]], ops.end_ns[nodes_of[thread]])
            n_inside += int(backward.contains(ops.start_ns[rows[places]]).sum())
    return n_inside, int(rows.size) - n_inside


def _compiled_ns(facts: Facts) -> int:
    trace = facts.trace
    main = facts.main_device
    if main is None:
        spans = trace.spans
        rows = spans.kind == SpanKind.COMPILED
        return Intervals.of(spans.start_ns[rows], spans.end_ns[rows]).clip(*trace.window_ns).total_ns
    gpu, rows = trace.gpu, main.activity.rows
    generated = np.array([name.startswith(_TRITON) for name in trace.strings], np.bool_)
    mine = rows[generated[gpu.name[rows]]]
    return int((gpu.end_ns[mine] - gpu.start_ns[mine]).sum())


def _copied_bytes(facts: Facts) -> int:
    """The bytes of copies to the device; a trace without sizes gives 0."""
    if facts.main_device is None:
        return 0
    gpu, rows = facts.trace.gpu, facts.main_device.activity.rows
    to_device = np.array(["HtoD" in name or "HostToDevice" in name for name in facts.trace.strings], np.bool_)
    mine: NDArray[np.intp] = rows[(gpu.kind[rows] == Kind.COPY) & to_device[gpu.name[rows]] & (gpu.n_bytes[rows] > 0)]
    return int(gpu.n_bytes[mine].sum())


def _copies(facts: Facts) -> dict[str, tuple[int, int, int]]:
    """Copies and memsets of the busiest device by name; empty for a CPU."""
    if facts.main_device is None:
        return {}
    gpu, rows = facts.trace.gpu, facts.main_device.activity.rows
    rows = rows[gpu.kind[rows] == Kind.COPY]
    return {
        facts.trace.name(name): (
            int(mine.size),
            int((gpu.end_ns[rows[mine]] - gpu.start_ns[rows[mine]]).sum()),
            int(np.maximum(gpu.n_bytes[rows[mine]], 0).sum()),
        )
        for name, mine in rows_by_value(gpu.name[rows])
    }


def _peak_bytes(meta: TraceMeta, memory: Any) -> int | None:
    """The most memory in use, of the device, or of the host without one: by the capture, else by memory events."""
    told = meta.metadata.get("profkit_memory")
    if isinstance(told, Mapping):
        for key in ("peak_allocated_bytes", "peak_host_bytes"):
            if isinstance(told.get(key), int) and (peak := whole(told[key], 0, MOST_BYTES)) is not None:
                return peak
    peak = memory.peak_allocated_bytes if memory else None
    return peak if peak is not None and peak >= 0 else None  # old traces say -1 for what they do not know
