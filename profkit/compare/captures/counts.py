"""What a trace did how often, and a few sums: what signs of changes are told by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.ingest.numbers import MOST_BYTES, whole
from profkit.model.arrays import I64, rows_by_value
from profkit.model.grouped import grouped
from profkit.model.intervals import Intervals
from profkit.model.names import COPIES_TO_DEVICE, is_inductors
from profkit.model.trace import Kind, SpanKind, Trace, TraceMeta
from profkit.timeline import Facts
from profkit.timeline.collectives import UNKNOWN, arguments_of, bytes_of
from profkit.timeline.host import BACKWARD_NODE

# Operators of the forward pass that no backward formula calls: inside a backward node they are recomputation.
_FORWARD_ONLY: Final = frozenset(
    "aten::" + name
    for name in (
        "linear", "addmm", "layer_norm", "rms_norm", "batch_norm", "group_norm", "gelu", "silu", "relu", "softmax",
        "conv1d", "conv2d", "conv3d", "scaled_dot_product_attention", "embedding", "dropout",
    )
)  # fmt: skip
_TORCHSCRIPT: Final = re.compile(r"^CudaCodeGen::|^nvfuser")
"""Kernels that nvFuser generates for TorchScript."""
_MADE_BY: Final = (("DALI", re.compile(r"^\[DALI\]|\bdali::")), ("nvJPEG", re.compile(r"nvjpeg", re.IGNORECASE)))
"""Who makes batches on the device, by the names of ranges and kernels."""
_SCALER: Final = re.compile(r"amp_update_scale|amp_foreach_non_finite")
_COLLECTIVES: Final = (
    ("all-reduce", re.compile(r"all_?reduce", re.IGNORECASE)),
    ("reduce-scatter", re.compile(r"reduce_?scatter", re.IGNORECASE)),
    ("all-gather", re.compile(r"all_?gather", re.IGNORECASE)),
    ("all-to-all", re.compile(r"all_?to_?all", re.IGNORECASE)),
    ("broadcast", re.compile(r"broadcast", re.IGNORECASE)),
    ("send and receive", re.compile(r"send|recv", re.IGNORECASE)),
)
MOST_WORKERS: Final = 10_000
"""Chosen: no machine runs as many loaders; a file may claim any number."""


class Called(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one kind."""

    n: int
    total_ns: int
    n_bytes: int
    """What they move, 0 where one of them does not say."""


NO_CALLS: Final = Called(n=0, total_ns=0, n_bytes=0)


class Counts(msgspec.Struct, frozen=True, kw_only=True):
    """How often things happened over the window, and a few sums."""

    launches: int
    graph_launches: int
    operators: int
    """Leaf operators on a CPU, kernels and copies on a device."""
    syncs: int
    allocator_calls: int = 0
    allocator_ns: int = 0
    """Idle time of the device inside the allocator's calls, and what begins there."""
    recomputed: int
    """Forward operators that ran inside the backward pass."""
    forward: int
    """The same operators outside it."""
    compiled_ns: int
    """Time in generated kernels; on a CPU, in calls of compiled graphs."""
    generators: tuple[str, ...] = ()
    """Who generated them: "torch.compile", "TorchScript"."""
    copied_bytes: int
    """Bytes copied to the device."""
    apart_bytes: int = 0
    """Of them, on streams that run no compute."""
    copied_ns: int = 0
    """Time of these copies, whatever stream has them."""
    hidden_copy_ns: int = 0
    """Of it, under compute."""
    copies: Mapping[str, tuple[int, int, int]]
    """By the name of the copy, as `Memcpy HtoD (Pageable -> Device)`: how many, ns, bytes (0 where none are told)."""
    matrix_ns: Mapping[str, int]
    """Time of matrix kernels by number format."""
    peak_bytes: int | None
    loader: str
    n_workers: int = 0
    """Processes that make batches beside this one, 0 where the trace does not tell."""
    made_by: tuple[str, ...] = ()
    """Libraries that make batches on the device."""
    scales_loss: bool = False
    """Whether a gradient scaler runs, as mixed precision in fp16 needs it."""
    optimizer_steps: int = 0
    """Ranges of `Optimizer.step`."""
    collectives: Mapping[str, Called] = msgspec.field(default_factory=dict)
    """By kind, as "all-reduce"."""


def counts_of(facts: Facts, results: dict[str, Any]) -> Counts:
    """What happened in the window, by its facts and what the analyzers measured."""
    trace = facts.trace
    launches, syncs = results["launches"], results.get("syncs")
    memory, loader, precision = results.get("memory"), results.get("input"), results.get("precision")
    recomputed, forward = _forward_operators(trace)
    is_optimizer = trace.spans.kind == SpanKind.OPTIMIZER
    return Counts(
        launches=launches.n_launch_calls,
        graph_launches=launches.n_graph_launches,
        operators=launches.n_operations,
        syncs=syncs.n_calls if syncs else 0,
        allocator_calls=memory.n_calls if memory else 0,
        allocator_ns=memory.cost_ns if memory else 0,
        recomputed=recomputed,
        forward=forward,
        compiled_ns=_compiled_ns(facts),
        **_copied(facts),
        copies=_copies(facts),
        matrix_ns=dict(precision.by_format) if precision else {},
        peak_bytes=_peak_bytes(trace.meta, memory),
        loader=loader.loader if loader else "",
        n_workers=_n_workers(trace.meta),
        made_by=tuple(name for name, pattern in _MADE_BY if any(map(pattern.search, trace.strings))),
        scales_loss=any(map(_SCALER.search, trace.strings)),
        optimizer_steps=int((is_optimizer & _begins_inside(trace, trace.spans.start_ns)).sum()),
        collectives=_collectives(facts),
        generators=tuple(sorted({name for text in trace.strings if (name := generator_of(text))})),
    )


@lru_cache(maxsize=4096)
def generator_of(kernel: str) -> str:
    """What generated a kernel, by its name, "" for nothing known."""
    return "torch.compile" if is_inductors(kernel) else "TorchScript" if _TORCHSCRIPT.search(kernel) else ""


def _begins_inside(trace: Trace, start_ns: I64) -> NDArray[np.bool_]:
    low, high = trace.window_ns
    return (start_ns >= low) & (start_ns < high)


def _n_workers(meta: TraceMeta) -> int:
    """Processes that make batches: of one loader as the capture noted it, or seen at work beside the job by nsys."""
    told = meta.metadata.get("profkit_loaders")
    each = [one.get("n_workers") for one in told if isinstance(one, Mapping)] if isinstance(told, list) else []
    found = each[0] if len(each) == 1 else meta.metadata.get("nsys_workers")
    return found if isinstance(found, int) and whole(found, 0, MOST_WORKERS) is not None else 0


def _collectives(facts: Facts) -> dict[str, Called]:
    """The collectives of the busiest device by kind; of a CPU trace, those that ranges name, without bytes."""
    trace, (work, rows) = facts.trace, facts.communication
    names, moved = work.name[rows].astype(np.int64), np.full(rows.size, UNKNOWN, np.int64)
    if facts.main_device is not None:
        moved, place = bytes_of(trace, rows), arguments_of(trace, rows)
        told = np.append(trace.collectives.collective, -1)[place]  # the last one for those without arguments
        names = np.where(told >= 0, told, names)
    of_kind = grouped(
        (next((kind for kind, pattern in _COLLECTIVES if pattern.search(trace.name(int(code)))), ""), places)
        for code, places in rows_by_value(names)
    )
    of_kind.pop("", None)
    found = {}
    for kind, parts in of_kind.items():
        places = np.concatenate(parts)
        mine, n_bytes = rows[places], moved[places]
        found[kind] = Called(
            n=mine.size,
            total_ns=int((work.end_ns[mine] - work.start_ns[mine]).sum()),
            n_bytes=int(n_bytes.sum()) if n_bytes.min() > UNKNOWN else 0,
        )
    return found


def _forward_operators(trace: Trace) -> tuple[int, int]:
    """How many forward operators of the window ran inside backward nodes, and how many outside."""
    ops = trace.ops
    is_forward = np.array([name in _FORWARD_ONLY for name in trace.strings], np.bool_)
    rows = np.flatnonzero(is_forward[ops.name] & _begins_inside(trace, ops.start_ns))
    n_inside = 0
    nodes = np.flatnonzero(trace.named(ops.name, BACKWARD_NODE))
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
    generated = np.array([bool(generator_of(name)) for name in trace.strings], np.bool_)
    mine = rows[generated[gpu.name[rows]]]
    return int((gpu.end_ns[mine] - gpu.start_ns[mine]).sum())


def _copied(facts: Facts) -> dict[str, int]:
    """What copies to the device move and take; without sizes of theirs 0 bytes."""
    if facts.main_device is None:
        return {"copied_bytes": 0}
    gpu, activity, rows = facts.trace.gpu, facts.main_device.activity, facts.main_device.activity.rows
    to_device = facts.trace.named(gpu.name[rows], COPIES_TO_DEVICE)
    mine = rows[(gpu.kind[rows] == Kind.COPY) & to_device & (gpu.n_bytes[rows] > 0)]
    is_apart = ~np.isin(gpu.stream[mine], gpu.stream[rows[gpu.kind[rows] == Kind.COMPUTE]])
    start, end = gpu.start_ns[mine], gpu.end_ns[mine]
    return {
        "copied_bytes": int(gpu.n_bytes[mine].sum()),
        "apart_bytes": int(gpu.n_bytes[mine][is_apart].sum()),
        "copied_ns": int((end - start).sum()),
        "hidden_copy_ns": int(activity.compute.covered_ns(start, end).sum()),
    }


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


def op_calls(trace: Trace) -> dict[str, int]:
    """How often each `aten::` operator began in the window."""
    names = trace.ops.name[_begins_inside(trace, trace.ops.start_ns)]
    codes, counts = np.unique(names, return_counts=True)
    called = {trace.name(code): count for code, count in zip(codes.tolist(), counts.tolist(), strict=True)}
    return {name: count for name, count in called.items() if name.startswith("aten::")}
