"""Tables of a trace and of a report: columns with names in full, times in ns, one row for each thing that happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.budget import label
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.tracks import Tracks, WorkRow
from profkit.model.finding import Finding
from profkit.model.table import NO_ROW
from profkit.model.trace import CallKind, Kind, SpanKind, Trace

Columns = dict[str, list[Any]]
"""Columns of one length by name; None is what the trace does not say."""

OF_TRACES: Final = ("gpu", "ops", "calls", "spans", "steps")
OF_REPORTS: Final = ("budget", "findings", "work")


def together(tables: Iterable[Columns]) -> Columns:
    """Tables of the same columns, one below the other."""
    out: Columns = {}
    for table in tables:
        for name, column in table.items():
            out.setdefault(name, []).extend(column)
    return out


def of_trace(
    trace: Trace, name: str, *, rank: int | None, shift_ns: int = 0, window_ns: tuple[int, int] | None = None
) -> Columns:
    """One of `OF_TRACES`: the rows that touch the window, ns; times since the trace's origin, shifted."""
    if name == "steps":
        return _steps(trace, rank, shift_ns, window_ns)
    rows: Any = getattr(trace, name)
    at = _touching(rows.start_ns, rows.end_ns, window_ns)
    start, end = rows.start_ns[at] + shift_ns, rows.end_ns[at] + shift_ns
    return {
        "rank": [rank] * at.size,
        "start_ns": start.tolist(),
        "end_ns": end.tolist(),
        "duration_ns": (end - start).tolist(),
        "name": _texts(trace, rows.name[at]),
        **_FURTHER[name](trace, rows, at),
    }


def _touching(start_ns: NDArray[Any], end_ns: NDArray[Any], window_ns: tuple[int, int] | None) -> NDArray[np.intp]:
    if window_ns is None:
        return np.arange(start_ns.size)
    low, high = window_ns
    return np.flatnonzero((start_ns < high) & ((end_ns > low) | (start_ns >= low)))


def _texts(trace: Trace, codes: NDArray[Any]) -> list[str]:
    return [trace.strings[code] if code >= 0 else "" for code in codes.tolist()]


def _told(values: NDArray[Any], absent: int = -1) -> list[int | None]:
    return [None if value == absent else value for value in values.tolist()]


def _threads(trace: Trace, codes: NDArray[Any]) -> Columns:
    threads = [trace.threads[code] for code in codes.tolist()]
    return {
        "pid": [thread.pid for thread in threads],
        "tid": [thread.tid for thread in threads],
        "thread": [thread.name for thread in threads],
    }


def _gpu(trace: Trace, gpu: Any, at: NDArray[np.intp]) -> Columns:
    launch = gpu.launch_row[at]
    known = launch != NO_ROW
    launched = np.full(at.size, -1, np.int64)
    lag = np.full(at.size, -1, np.int64)
    if len(trace.calls):
        launched[known] = trace.calls.start_ns[launch[known]]
        lag[known] = gpu.start_ns[at[known]] - launched[known]
    grid, block = gpu.grid[at], gpu.block[at]
    return {
        "kind": [Kind(kind).name.lower() for kind in gpu.kind[at].tolist()],
        "device": gpu.device[at].tolist(),
        "stream": gpu.stream[at].tolist(),
        "operator": _operators(trace, gpu.external_id[at]),
        "correlation": _told(gpu.correlation[at]),
        "launch_to_start_ns": [
            value if is_known else None for value, is_known in zip(lag.tolist(), known, strict=True)
        ],
        "bytes": _told(gpu.n_bytes[at]),
        **{f"grid_{axis}": _told(grid[:, place], 0) for place, axis in enumerate("xyz")},
        **{f"block_{axis}": _told(block[:, place], 0) for place, axis in enumerate("xyz")},
        "graph_node": _told(gpu.graph_node[at], 0),
    }


def _operators(trace: Trace, external_ids: NDArray[Any]) -> list[str]:
    """The operators that launched device rows, by the number that both carry; "" where the trace does not say."""
    ids = trace.ops.external_id
    order = np.argsort(ids, kind="stable")
    if order.size == 0:
        return [""] * external_ids.size
    place = np.minimum(np.searchsorted(ids[order], external_ids), order.size - 1)
    row = order[place]
    codes = np.where((ids[row] == external_ids) & (external_ids > 0), trace.ops.name[row], -1)
    return _texts(trace, codes)


def _ops(trace: Trace, ops: Any, at: NDArray[np.intp]) -> Columns:
    known = [trace.signatures[code] if code >= 0 else None for code in ops.signature[at].tolist()]
    return {
        **_threads(trace, ops.thread[at]),
        "input_dims": ["" if one is None else str([list(dims) for dims in one.dims]) for one in known],
        "input_types": ["" if one is None else str(list(one.types)) for one in known],
        "external_id": _told(ops.external_id[at]),
        "sequence": _told(ops.sequence[at]),
    }


def _calls(trace: Trace, calls: Any, at: NDArray[np.intp]) -> Columns:
    return {
        "kind": [CallKind(kind).name.lower() for kind in calls.kind[at].tolist()],
        **_threads(trace, calls.thread[at]),
        "correlation": _told(calls.correlation[at]),
        "external_id": _told(calls.external_id[at]),
    }


def _spans(trace: Trace, spans: Any, at: NDArray[np.intp]) -> Columns:
    return {
        "kind": [SpanKind(kind).name.lower() for kind in spans.kind[at].tolist()],
        **_threads(trace, spans.thread[at]),
    }


_FURTHER: Final[dict[str, Callable[[Trace, Any, NDArray[np.intp]], Columns]]] = {
    "gpu": _gpu,
    "ops": _ops,
    "calls": _calls,
    "spans": _spans,
}
"""The columns that one table has and others do not."""


def _steps(trace: Trace, rank: int | None, shift_ns: int, window_ns: tuple[int, int] | None) -> Columns:
    low, high = window_ns or (-(2**63), 2**63)
    steps = [step for step in trace.steps if step.start_ns < high and step.end_ns > low]
    return {
        "rank": [rank] * len(steps),
        "index": [step.index for step in steps],
        "number": [step.number for step in steps],
        "start_ns": [step.start_ns + shift_ns for step in steps],
        "end_ns": [step.end_ns + shift_ns for step in steps],
        "duration_ns": [step.duration_ns for step in steps],
    }


def budget(reports: Sequence[RankReport]) -> Columns:
    """The parts of each device's window: ns, which add up to it, and shares."""
    rows = [
        (rank.rank, device.device, device.kind, name, label(name, is_cpu=device.kind == "cpu"), ns, device.budget)
        for rank in reports
        for device in rank.devices
        for name, ns in device.budget.parts.items()
    ]
    return {
        "rank": [row[0] for row in rows],
        "device": [row[1] for row in rows],
        "device_kind": [row[2] for row in rows],
        "part": [row[3] for row in rows],
        "label": [row[4] for row in rows],
        "ns": [row[5] for row in rows],
        "share": [row[6].fraction(row[3]) for row in rows],
        "window_ns": [row[6].window_ns for row in rows],
    }


def findings(found: Sequence[Finding]) -> Columns:
    """What the report found, in its order; `saves_ns` is per step, and an upper bound."""
    return {
        "rank": [one.rank for one in found],
        "id": [one.id for one in found],
        "title": [one.title for one in found],
        "severity": [one.severity.value for one in found],
        "confidence": [one.confidence for one in found],
        "share": [one.fraction for one in found],
        "saves_ns": [one.recoverable_ns for one in found],
        "metric": [one.measure.metric for one in found],
        "value": [one.measure.value for one in found],
        "unit": [one.measure.unit for one in found],
        "fix": [one.fix for one in found],
        "where": [one.places[0].words if one.places else "" for one in found],
    }


def work(drawn: Sequence[Tracks]) -> Columns:
    """Kernels and operators by name, shape and place in the code, the most time-consuming of each rank first."""
    rows = [(tracks, row) for tracks in drawn for row in tracks.work]
    return {
        "rank": [tracks.rank for tracks, _ in rows],
        "kind": [row.kind for _, row in rows],
        **{
            name: [_name(tracks, row, name) for tracks, row in rows]
            for name in ("name", "op", "shape", "module", "line")
        },
        "n": [row.n for _, row in rows],
        "total_ns": [row.total_ns for _, row in rows],
        "self_ns": [row.self_ns for _, row in rows],
        "max_ns": [row.max_ns for _, row in rows],
        "flops": [row.flops for _, row in rows],
        "bytes": [row.n_bytes for _, row in rows],
    }


def _name(tracks: Tracks, row: WorkRow, field: str) -> str:
    code: int = getattr(row, field)
    return tracks.names[code] if code >= 0 else ""
