"""Batches to `Trace`: intern strings, sort, link launches, take out what cannot be true, and say so."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.errors import UnsupportedTraceError
from profkit.ingest.events import Batch, Columns
from profkit.ingest.redact import redacted
from profkit.ingest.steps import find_steps, find_window
from profkit.model import names
from profkit.model.arrays import I64, distinct_codes, median
from profkit.model.table import NO_ROW
from profkit.model.trace import (
    CallKind,
    Collectives,
    CpuOps,
    Device,
    DeviceSpans,
    Flows,
    GpuWork,
    Kind,
    MemoryEvents,
    RuntimeCalls,
    SpanKind,
    Spans,
    Thread,
    Trace,
    TraceMeta,
    TraceWarning,
)

if TYPE_CHECKING:
    from profkit.ingest.kineto import RawTrace

LONGEST_PLAUSIBLE_NS: Final = 10**15
"""11.5 days: no range of a profile lasts longer; an unsigned difference that wrapped does (TraceLens issue 669)."""

_DTYPES: Final[dict[str, Any]] = {
    "name": np.int32,
    "thread": np.int32,
    "device": np.int32,
    "kind": np.int8,
    "is_start": np.int8,
    "is_copy": np.bool_,
    "grid": np.int32,
    "block": np.int32,
}
_WIDE: Final = {"grid": 3, "block": 3}
_MANY_EVENTS: Final = 500_000

_MTIA_COPY: Final = "dma"
_MTIA_COMPUTE: Final = ("pe_exe", "cpum_exe", "job_exe", "runfunction")


def build_trace(raw: RawTrace) -> Trace:
    """Give the `Trace` of one file's batches; raises UnsupportedTraceError for one without any event."""
    warnings = list(raw.warnings)
    merged = _Merged(raw.batches)
    raw.batches.clear()  # their columns are copied by now; the peak of memory is here
    if merged.n_events == 0:
        raise UnsupportedTraceError(
            f"{raw.source} holds no events",
            hint="the profiler recorded nothing: was prof.step() called, and was `active` reached?",
        )
    strings = tuple(merged.strings)
    gpu, collectives = _device_work(merged, strings, warnings)
    calls = _calls(merged, strings, warnings)
    gpu = _linked(gpu, calls)
    ops, spans = _host_ranges(merged, strings, warnings)
    meta = _meta(raw, merged, warnings)
    mapped: dict[str, Any] = {
        "meta": meta,
        "origin_unix_ns": _whole_number(raw.metadata.get("baseTimeNanoseconds")) or 0,
        "strings": strings,
        "threads": merged.thread_table(),
        "gpu": gpu,
        "collectives": collectives,
        "ops": ops,
        "calls": calls,
        "spans": spans,
        "python": _spans(merged, "python", warnings),
        "overhead": _spans(merged, "overhead", warnings),
        "device_spans": _table(DeviceSpans, merged, "device_spans", warnings),
        "sync_rows": _table(DeviceSpans, merged, "sync_rows", warnings),
        "memory": _table(MemoryEvents, merged, "memory", warnings),
        "flows": _table(Flows, merged, "flows", warnings),
    }
    steps, source = find_steps(gpu=gpu, spans=spans, strings=strings)
    window = find_window(gpu=gpu, spans=spans, ops=ops, calls=calls, python=mapped["python"])
    return Trace(**mapped, steps=steps, step_source=source, window_ns=window, warnings=tuple(warnings))


class _Merged:
    """All batches under one string table and one thread table; columns are joined on demand, one table at a time."""

    def __init__(self, batches: list[Batch]) -> None:
        codes: dict[str, int] = {}
        threads: dict[tuple[str, str], int] = {}
        self.thread_names: dict[tuple[str, str], str] = {}
        self.categories: dict[str, int] = {}
        self.n_events = 0
        self._n_kernels = 0
        self._parts: dict[str, list[Columns]] = {}
        for batch in batches:
            self.n_events += batch.n_events
            self.thread_names.update(batch.thread_names)
            for category, count in batch.categories.items():
                self.categories[category] = self.categories.get(category, 0) + count
            string_of = _mapping(batch.strings, codes)
            thread_of = _mapping(batch.threads, threads)
            n_kernels_before = self._n_kernels
            for table, columns in batch.tables.items():
                if table == "kernels":
                    self._n_kernels += columns["start_ns"].size
                if table == "collectives":
                    columns["kernel"] = columns["kernel"] + n_kernels_before
                self._parts.setdefault(table, []).append(_recoded(columns, string_of, thread_of))
        self.strings = [str(name) for name in codes]
        self.threads = list(threads)

    def code(self, text: str) -> int:
        """Give the code of a string, -1 if no event has it."""
        try:
            return self.strings.index(text)
        except ValueError:
            return NO_ROW

    def take(self, table: str) -> Columns:
        """Give the joined columns of a table and forget its parts; {} if the trace has no such rows."""
        parts = self._parts.pop(table, [])
        joined: Columns = {}
        for name in list(parts[0]) if parts else ():
            joined[name] = np.concatenate([part.pop(name) for part in parts])
        if self.n_events > _MANY_EVENTS:
            _return_free_memory()
        return joined

    def thread_table(self) -> tuple[Thread, ...]:
        """Give the threads by code."""
        return tuple(Thread(pid=pid, tid=tid, name=self.thread_names.get((pid, tid), "")) for pid, tid in self.threads)


def _return_free_memory() -> None:
    """Hand the freed columns of a thousand batches back to the system; glibc keeps such small blocks otherwise."""
    if sys.platform == "linux":
        import ctypes  # 5 ms that a small trace need not pay

        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)


def _mapping(values: list[Any], codes: dict[Any, int]) -> NDArray[np.int32]:
    return np.array([codes.setdefault(value, len(codes)) for value in values], np.int32)


_STRING_COLUMNS: Final = {"name", "collective", "dtype", "group_name", "group_ranks"}


def _recoded(columns: Columns, string_of: NDArray[np.int32], thread_of: NDArray[np.int32]) -> Columns:
    out: Columns = {}
    for name, column in columns.items():
        if name == "thread":
            out[name] = thread_of[column]
        elif name in _STRING_COLUMNS and column.size:
            out[name] = (
                np.where(column < 0, NO_ROW, string_of[column]).astype(column.dtype) if string_of.size else column
            )
        else:
            out[name] = column
    return out


def sort_order(start_ns: I64, end_ns: I64) -> NDArray[np.intp]:
    """Give the order by start, the longer first among equals, so that a range precedes what it encloses."""
    order = np.argsort(start_ns, kind="stable")
    start = start_ns[order]
    is_tied = np.zeros(order.size, np.bool_)
    if order.size > 1:
        same = start[1:] == start[:-1]
        is_tied[1:] |= same
        is_tied[:-1] |= same
    tied = order[is_tied]
    if tied.size:
        order[is_tied] = tied[np.lexsort((-end_ns[tied], start_ns[tied]))]
    return order


def _cleaned(columns: Columns, warnings: list[TraceWarning], what: str) -> Columns:
    """Take out rows whose times cannot be true: a zero timestamp among real ones, a duration that wrapped."""
    start = columns["start_ns"]
    if start.size == 0:
        return columns
    too_long = columns["end_ns"] - start > LONGEST_PLAUSIBLE_NS if "end_ns" in columns else np.zeros(start.size, bool)
    at_zero = (start == 0) & (median(start) > 10**9)
    _warn(warnings, too_long, "dur.overflow", f"{what} with a duration of more than 11 days (an overflow) left out")
    _warn(warnings, at_zero, "ts.zero", f"{what} with a zero timestamp left out")
    bad = too_long | at_zero
    return {name: column[~bad] for name, column in columns.items()} if bad.any() else columns


def _warn(warnings: list[TraceWarning], rows: NDArray[np.bool_], warning_id: str, message: str) -> None:
    if count := int(rows.sum()):
        warnings.append(TraceWarning(id=warning_id, message=f"{count:,} {message}", count=count))


def _sorted(columns: Columns) -> Columns:
    """Give the columns in time order, emptying `columns` one by one: two copies of a large table are too many."""
    start, end = columns["start_ns"], columns.get("end_ns", columns["start_ns"])
    later = start[1:] > start[:-1]
    if bool((later | ((start[1:] == start[:-1]) & (end[1:] <= end[:-1]))).all()):
        return columns
    order = sort_order(start, end)
    return {name: columns.pop(name)[order] for name in list(columns)}


_WHAT: Final = {
    "kernels": "kernels",
    "copies": "copies",
    "mtia": "device rows",
    "ops": "operators",
    "calls": "runtime calls",
    "spans": "annotations",
    "python": "Python frames",
    "overhead": "overhead rows",
    "device_spans": "device annotations",
    "sync_rows": "synchronisation rows",
    "memory": "memory events",
    "flows": "arrows",
}


def _table(kind: Callable[..., Any], merged: _Merged, table: str, warnings: list[TraceWarning]) -> Any:
    columns = merged.take(table)
    if not columns:
        return kind.none(**_DTYPES)  # type: ignore[attr-defined]
    return kind(**_sorted(_cleaned(columns, warnings, _WHAT[table])))


def _spans(merged: _Merged, table: str, warnings: list[TraceWarning]) -> Spans:
    columns = merged.take(table)
    if not columns:
        return Spans.none(**_DTYPES)
    columns["kind"] = np.zeros(columns["name"].size, np.int8)
    return Spans(**_sorted(_cleaned(columns, warnings, _WHAT[table])))


def code_table(codes: NDArray[Any], strings: tuple[str, ...], kind_of: Callable[[str], int]) -> NDArray[np.int8]:
    """Give `kind_of` per string code, computed once for each code that occurs."""
    table = np.zeros(len(strings) + 1, np.int8)  # the last is for "no string"
    for code in distinct_codes(codes):
        table[code] = kind_of(strings[code])
    return table


def _calls(merged: _Merged, strings: tuple[str, ...], warnings: list[TraceWarning]) -> RuntimeCalls:
    columns = merged.take("calls")
    if not columns:
        return RuntimeCalls.none(**_DTYPES)
    columns["kind"] = code_table(columns["name"], strings, names.call_kind_of)[columns["name"]]
    return RuntimeCalls(**_sorted(_cleaned(columns, warnings, _WHAT["calls"])))


def _host_ranges(merged: _Merged, strings: tuple[str, ...], warnings: list[TraceWarning]) -> tuple[CpuOps, Spans]:
    """Give operators and annotations; before torch 1.12 steps and loader ranges are written as operators."""
    ops, spans = merged.take("ops"), merged.take("spans")
    if spans:
        spans["kind"] = code_table(spans["name"], strings, names.span_kind_of)[spans["name"]]
    if ops:
        ops = _cleaned(ops, warnings, _WHAT["ops"])
        kind = code_table(ops["name"], strings, names.span_kind_of)[ops["name"]]
        moved = kind != SpanKind.OTHER
        if moved.any():
            extra = {name: ops[name][moved] for name in ("start_ns", "end_ns", "name", "thread")}
            extra["kind"] = kind[moved]
            spans = {name: np.concatenate((spans[name], extra[name])) for name in extra} if spans else extra
            ops = {name: column[~moved] for name, column in ops.items()}
    return (
        CpuOps(**_sorted(ops)) if ops else CpuOps.none(**_DTYPES),
        Spans(**_sorted(_cleaned(spans, warnings, _WHAT["spans"]))) if spans else Spans.none(**_DTYPES),
    )


def _device_work(
    merged: _Merged, strings: tuple[str, ...], warnings: list[TraceWarning]
) -> tuple[GpuWork, Collectives]:
    parts = [merged.take(table) for table in ("kernels", "copies")]
    for part, is_kernel in zip(parts, (True, False), strict=True):
        if part:
            n = part["start_ns"].size
            part["source_row"] = np.arange(n) if is_kernel else np.full(n, NO_ROW, np.int64)
    parts = [_cleaned(part, warnings, what) for part, what in zip(parts, ("kernels", "copies"), strict=True) if part]
    if mtia := _mtia(merged, strings, warnings):
        parts.append(mtia)
    if not parts:
        return _no_gpu(), _no_collectives()
    columns = _sorted({name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])})
    is_copy = columns.pop("is_copy")
    from_kernels = _kernel_collectives(merged, columns.pop("source_row"))
    kind = code_table(columns["name"], strings, lambda name: names.kind_of(name, is_copy=False))[columns["name"]]
    kind[is_copy] = Kind.COPY
    kind[from_kernels.gpu_row] = Kind.COMM
    bare = np.setdiff1d(np.flatnonzero(kind == Kind.COMM), from_kernels.gpu_row)
    from_ops = _operator_collectives(merged, bare, columns["external_id"])
    gpu = GpuWork(**columns, kind=kind, launch_row=np.full(kind.size, NO_ROW, np.int64))
    return gpu, _joined(from_kernels, from_ops)


def _operator_collectives(merged: _Merged, rows: NDArray[np.intp], external_id: I64) -> Collectives:
    """Give the arguments that `record_param_comms` operators carry for their kernels (before torch 2.3 only there)."""
    columns = merged.take("comm_ops")
    if not columns or rows.size == 0:
        return _no_collectives()
    ids = columns.pop("external_id")
    order = np.argsort(ids, kind="stable")
    place = np.minimum(np.searchsorted(ids[order], external_id[rows]), ids.size - 1)
    found = (ids[order[place]] == external_id[rows]) & (external_id[rows] > 0)
    source = order[place[found]]
    return Collectives(gpu_row=rows[found], **{name: column[source] for name, column in columns.items()})


def _joined(first: Collectives, second: Collectives) -> Collectives:
    other = second.columns()
    columns = {name: np.concatenate((column, other[name])) for name, column in first.columns().items()}
    return Collectives(**columns).take(np.argsort(columns["gpu_row"], kind="stable"))


def _kernel_collectives(merged: _Merged, source_row: NDArray[np.int64]) -> Collectives:
    """Give the collective arguments; `source_row` is, per device row, its place among the kernels as read."""
    columns = merged.take("collectives")
    if not columns:
        return _no_collectives()
    kernel = columns.pop("kernel")
    gpu_row = np.full(int(max(kernel.max(), source_row.max())) + 1, NO_ROW, np.int64)
    kernels = np.flatnonzero(source_row >= 0)
    gpu_row[source_row[kernels]] = kernels
    rows = gpu_row[kernel]
    kept = np.flatnonzero(rows >= 0)[np.argsort(rows[rows >= 0], kind="stable")]
    return Collectives(gpu_row=rows[kept], **{name: column[kept] for name, column in columns.items()})


def _no_collectives() -> Collectives:
    return Collectives.none(**dict.fromkeys(("dtype", "collective", "group_name", "group_ranks"), np.int32))


def _no_gpu() -> GpuWork:
    columns: dict[str, Any] = {}
    for name in GpuWork.__dataclass_fields__:
        shape = (0, _WIDE[name]) if name in _WIDE else 0
        columns[name] = np.empty(shape, _DTYPES.get(name, np.int64))
    return GpuWork(**columns)


def _mtia(merged: _Merged, strings: tuple[str, ...], warnings: list[TraceWarning]) -> Columns:
    """MTIA's queue events: execution counts as compute, dma as copies, waits and packets as nothing."""
    columns = merged.take("mtia")
    if not columns:
        return {}
    kinds = code_table(columns["name"], strings, _mtia_kind)[columns["name"]]
    warnings.append(
        TraceWarning(
            id="device.mtia",
            message=f"{int((kinds > 0).sum()):,} of {kinds.size:,} MTIA rows taken as activity, by name",
        )
    )
    columns = {name: column[kinds > 0] for name, column in columns.items()}
    n = columns["name"].size
    absent = np.full(n, NO_ROW, np.int64)
    return columns | {
        "correlation": absent,
        "external_id": absent,
        "n_bytes": absent,
        "graph_node": np.zeros(n, np.int64),
        "grid": np.zeros((n, 3), np.int32),
        "block": np.zeros((n, 3), np.int32),
        "is_copy": kinds[kinds > 0] == 2,
        "source_row": absent,
    }


def _mtia_kind(name: str) -> int:
    lowered = name.lower()
    if _MTIA_COPY in lowered:
        return 2
    return int(lowered.startswith(_MTIA_COMPUTE))


def _linked(gpu: GpuWork, calls: RuntimeCalls) -> GpuWork:
    """Fill `launch_row` by correlation, whatever the call's name; among several the launching one, then the first."""
    if len(gpu) == 0 or len(calls) == 0:
        return gpu
    launches = np.isin(calls.kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH, CallKind.COPY))
    usable = np.flatnonzero(calls.correlation > 0)
    order = usable[np.lexsort((~launches[usable], calls.correlation[usable]))]
    sorted_ids = calls.correlation[order]
    position = np.searchsorted(sorted_ids, gpu.correlation)
    position[position == sorted_ids.size] = 0
    found = (sorted_ids[position] == gpu.correlation) if sorted_ids.size else np.zeros(len(gpu), np.bool_)
    row = np.where(found, order[position] if order.size else 0, NO_ROW)
    return GpuWork(**{**gpu.columns(), "launch_row": row.astype(np.int64)})


def _meta(raw: RawTrace, merged: _Merged, warnings: list[TraceWarning]) -> TraceMeta:
    metadata, n_redacted = redacted(raw.metadata)
    if n_redacted:
        warnings.append(
            TraceWarning(
                id="metadata.redacted",
                message=f"{n_redacted} metadata entries that look like secrets or an environment were not kept",
                count=n_redacted,
            )
        )
    distributed = metadata.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    return TraceMeta(
        source=raw.source,
        n_events=merged.n_events,
        n_bytes=raw.n_bytes,
        rank=_whole_number(distributed.get("rank")),
        world_size=_whole_number(distributed.get("world_size")),
        backend=str(distributed.get("backend") or ""),
        torch_version=_torch_version(metadata),
        has_stacks=bool(metadata.get("with_stack")) or "python_function" in merged.categories,
        has_shapes=bool(metadata.get("record_shapes")),
        has_memory=bool(metadata.get("profile_memory")),
        unprofiled_step_ns=_whole_number(
            metadata.get("profkit_unprofiled_step_mean_ns") or metadata.get("profkit_unprofiled_step_ns")
        ),
        devices=_devices(metadata.get("deviceProperties")),
        categories=dict(sorted(merged.categories.items())),
        metadata=metadata,
    )


def _whole_number(value: object) -> int | None:
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError, OverflowError):
        return None


def _torch_version(metadata: Mapping[str, Any]) -> str | None:
    value = metadata.get("torch_version") or metadata.get("pytorch_version")
    return str(value) if value else None


def _devices(properties: object) -> tuple[Device, ...]:
    if not isinstance(properties, list):
        return ()
    return tuple(
        Device(
            index=_whole_number(item.get("id")) or 0,
            name=str(item.get("name") or ""),
            n_sms=_whole_number(item.get("numSms")) or 0,
            memory_bytes=_whole_number(item.get("totalGlobalMem")) or 0,
        )
        for item in properties
        if isinstance(item, dict)
    )
