"""Batches to `Trace`: intern strings, sort, link launches, take out what cannot be true, and say so."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.allocator import return_free_memory
from profkit.errors import TraceFormatError, UnsupportedTraceError
from profkit.ingest.assemble.devices import device_work, linked
from profkit.ingest.assemble.merge import WHAT, Merged, code_table
from profkit.ingest.assemble.rows import Rows, longest_ns, untold
from profkit.ingest.assemble.signatures import decoded
from profkit.ingest.assemble.steps import find_steps, find_window, without_empty_steps
from profkit.ingest.numbers import LATEST_NS, LONGEST_PLAUSIBLE_NS, MAX_RANKS, MOST_BYTES, MOST_NS, whole
from profkit.ingest.texts import LONGEST_TEXT, label, trimmed, without_long_texts
from profkit.model import names
from profkit.model.arrays import picked
from profkit.model.table import Table
from profkit.model.trace import (
    RANGED_STEPS,
    Connection,
    CountedWork,
    CpuOps,
    CpuSamples,
    Device,
    DeviceSpans,
    Flows,
    GpuWork,
    Kind,
    MemoryEvents,
    PythonFrames,
    RuntimeCalls,
    SpanKind,
    Spans,
    Thread,
    Trace,
    TraceMeta,
    TraceWarning,
)
from profkit.redact import redacted, redacted_line, redacted_names, redacted_text
from profkit.timeline.collectives import asked_by_name

if TYPE_CHECKING:
    from profkit.ingest.assemble.raw import Columns, RawTrace

T = TypeVar("T", bound=Table)
_MOST_ID: Final = 2**31 - 1
_MOST_SMS: Final = 2**20
_SCHEDULING: Final = frozenset(
    ("span_ns", "run_ns", "wait_ns", "all_run_ns", "all_wait_ns", "throttled_ns", "cores", "threads", "ranks")
) | {
    "quota_millicores",
    "idle_ns",
    "physical",
    "children",
    "children_run_ns",
    *(f"{whose}{kind}_switches" for whose in ("", "all_") for kind in ("voluntary", "involuntary")),
}
_CLOCKS: Final = frozenset(
    ("n", "n_power", "n_thermal", "n_hardware", "mhz", "lowest_mhz", "highest_mhz", "held_mhz", "temperature_c")
) | {"power_mw", "limit_mw", "default_limit_mw", "throttled_ms", "sampled_ms"}
_WITH_DURATIONS: Final = frozenset(
    {"gpu", "ops", "calls", "spans", "python", "overhead", "waits", "device_spans", "sync_rows"}
)
_DTYPES: Final[dict[str, Any]] = {
    "name": np.int32,
    "thread": np.int32,
    "device": np.int32,
    "kind": np.int8,
    "is_start": np.int8,
    "is_copy": np.bool_,
    "module": np.int32,
    "caller": np.int32,
    "value": np.float64,
    "grid": np.int32,
    "block": np.int32,
    "signature": np.int32,
}


def build_trace(raw: RawTrace) -> Trace:
    """The `Trace` of one file's batches; raises UnsupportedTraceError for one without any event."""
    warnings = list(raw.warnings)
    merged = Merged(raw.batches)
    raw.batches.clear()  # their columns are copied by now; the peak of memory is here
    if merged.n_events == 0:
        raise UnsupportedTraceError(
            f"{raw.source} holds no events",
            hint="the profiler recorded nothing: was prof.step() called, and was `active` reached?",
        )
    strings = redacted_names(merged.strings)  # before anything is told by them
    gpu, collectives = device_work(merged, strings, raw.source, warnings)
    calls = _table(RuntimeCalls, merged.rows("calls"), warnings, _kinds(names.call_kind_of, strings))
    gpu = linked(gpu, calls, [pid for pid, _ in merged.threads], warnings)
    ops, spans = _host_ranges(merged, strings, warnings)
    python, has_lines = _frames(merged, warnings)
    meta = _meta(raw, merged, warnings, has_lines=has_lines)
    gpu = _with_communication(gpu, asked_by_name(gpu, calls, ops, strings, world_size=meta.world_size))
    mapped: dict[str, Any] = {
        "meta": meta,
        "origin_unix_ns": _number(raw.metadata, "baseTimeNanoseconds", (0, LATEST_NS), warnings) or 0,
        "strings": strings,
        "threads": _threads(merged),
        "gpu": gpu,
        "collectives": collectives,
        "ops": ops,
        "calls": calls,
        "spans": spans,
        "python": python,
        "overhead": _table(Spans, merged.rows("overhead"), warnings, _plain),
        "waits": _table(Spans, merged.rows("waits"), warnings, _plain),
        "device_spans": _table(DeviceSpans, merged.rows("device_spans"), warnings),
        "sync_rows": _table(DeviceSpans, merged.rows("sync_rows"), warnings),
        "memory": _table(MemoryEvents, merged.rows("memory"), warnings),
        "flows": _flows(merged, warnings),
        "samples": _table(CpuSamples, merged.rows("samples"), warnings),
        "work": _table(CountedWork, merged.rows("work"), warnings),
        "signatures": decoded(merged.signatures),
    }
    if meta.metadata.get("profkit_is_cut"):
        spans = mapped["spans"] = _without_cut_step(spans, warnings)
    spans = mapped["spans"] = without_empty_steps(spans, gpu=gpu, calls=calls, ops=ops, warnings=warnings)
    warnings += merged.warnings
    return_free_memory(merged.n_events)  # what was read is copied by now
    _refuse_endless(mapped, raw.source)
    steps, source = find_steps(gpu=gpu, spans=spans, calls=calls, strings=strings, markers=raw.traits.step_source)
    ranged = steps if source == RANGED_STEPS else ()
    window = find_window(gpu=gpu, spans=spans, ops=ops, calls=calls, python=python, steps=ranged, source=raw.source)
    return Trace(**mapped, steps=steps, step_source=source, window_ns=window, warnings=_told(warnings))


def _with_communication(gpu: GpuWork, rows: NDArray[np.intp]) -> GpuWork:
    if rows.size == 0:
        return gpu
    kind = gpu.kind.copy()
    kind[rows] = Kind.COMM
    return replace(gpu, kind=kind)


def _threads(merged: Merged) -> tuple[Thread, ...]:
    return tuple(
        Thread(pid=redacted_text(one.pid), tid=redacted_text(one.tid), name=redacted_text(one.name))
        for one in merged.thread_table()
    )


def _told(warnings: list[TraceWarning]) -> tuple[TraceWarning, ...]:
    """The warnings without secrets: some quote the file."""
    return tuple(replace(warning, message=redacted_text(warning.message)) for warning in warnings)


def _refuse_endless(tables: Mapping[str, Any], source: str) -> None:
    """Raise TraceFormatError where the durations of a table add up to more than int64 holds."""
    for name, table in tables.items():
        if name not in _WITH_DURATIONS or len(table) == 0:
            continue
        if longest_ns(table.start_ns, table.end_ns) * len(table) <= MOST_NS:
            continue
        duration = table.end_ns - table.start_ns
        longest = int(duration.argmax())
        if float(duration.sum(dtype=np.float64)) <= MOST_NS:
            continue
        event = tables["strings"][table.name[longest]][:60]
        raise TraceFormatError(
            f"{source}: the durations of {duration.size:,} {WHAT.get(name, 'device rows')} add up to more than 146"
            f" years: event {event!r} lasts {int(duration[longest]):,} ns",
            hint="times in these files are microseconds; perhaps they were written as nanoseconds",
        )


def _ordered(rows: Rows, warnings: list[TraceWarning]) -> Columns:
    rows.leave_out_untrue(warnings)
    return rows.in_time_order()


def _table(
    kind: type[T], rows: Rows, warnings: list[TraceWarning], more: Callable[[Columns], Columns] = lambda _: {}
) -> T:
    """The rows of a table, with the columns that follow from theirs."""
    if not rows:
        return kind.none(**_DTYPES)
    columns = _ordered(rows, warnings)
    return kind(**columns, **more(columns))


def _flows(merged: Merged, warnings: list[TraceWarning]) -> Flows:
    """Arrows in the order of time; at one time starts come first, then in the order of threads and ids.

    The order of the file will not do: of each piece that was decoded, starts come before ends.
    """
    rows = merged.rows("flows")
    if not rows:
        return Flows.none(**_DTYPES)
    rows.leave_out_untrue(warnings)

    def minor(tied: NDArray[np.intp]) -> list[NDArray[Any]]:
        flow_id, thread, is_start = (rows.column(name)[tied] for name in ("flow_id", "thread", "is_start"))
        return [flow_id, thread, ~is_start.astype(np.bool_)]

    return Flows(**rows.in_time_order(minor))


def _plain(columns: Columns) -> Columns:
    return {"kind": np.zeros(columns["name"].size, np.int8)}


def _frames(merged: Merged, warnings: list[TraceWarning]) -> tuple[PythonFrames, bool]:
    """The Python frames, and whether they are from stacks of operators, which have the lines that run."""
    rows, of_stacks = merged.rows("python"), merged.rows("stacks")
    has_lines = bool(of_stacks) and not rows
    ids = ("frame_id", "parent_id", "module_id")
    frames = _table(PythonFrames, rows or of_stacks, warnings, lambda columns: _plain(columns) | _untold(columns, ids))
    return frames, has_lines


def _untold(columns: Columns, optional: tuple[str, ...]) -> Columns:
    """The columns that the file does not tell."""
    n = columns["name"].size
    return {name: untold(n, _DTYPES.get(name, np.int64)) for name in optional if name not in columns}


def _kinds(kind_of: Callable[[str], int], strings: tuple[str, ...]) -> Callable[[Columns], Columns]:
    """Gives what rows are by their names, where they do not say it."""
    return lambda columns: (
        {} if "kind" in columns else {"kind": code_table(columns["name"], strings, kind_of)[columns["name"]]}
    )


def _host_ranges(merged: Merged, strings: tuple[str, ...], warnings: list[TraceWarning]) -> tuple[CpuOps, Spans]:
    """Operators and annotations; before torch 1.12 steps and loader ranges are written as operators."""
    rows, span_rows = merged.rows("ops"), merged.rows("spans")
    ops: Columns = {}
    if rows:
        ops = _ordered(rows, warnings)
        ops |= _untold(ops, ("sequence", "forward_thread", "signature"))
        kind = code_table(ops["name"], strings, names.span_kind_of)[ops["name"]]
        moved = kind != SpanKind.OTHER
        if moved.any():
            extra = {name: ops[name][moved] for name in ("start_ns", "end_ns", "name", "thread")}
            span_rows.add(extra | {"kind": kind[moved]} if span_rows.has("kind") else extra)
            ops = {name: picked(column, ~moved) for name, column in ops.items()}
    spans = _table(Spans, span_rows, warnings, _kinds(names.span_kind_of, strings))
    return CpuOps(**ops) if ops else CpuOps.none(**_DTYPES), spans


def _without_cut_step(spans: Spans, warnings: list[TraceWarning]) -> Spans:
    """The ranges with the last step's marker as a plain range: the recording ended inside that step."""
    rows = np.flatnonzero(spans.kind == SpanKind.STEP)
    if rows.size < 2:
        return spans
    kind = spans.kind.copy()
    kind[rows[np.argmax(spans.start_ns[rows])]] = SpanKind.OTHER
    warnings.append(
        TraceWarning(
            id="steps.cut", message="the recording ended inside the last marked step, which is left out", count=1
        )
    )
    return replace(spans, kind=kind)


def _meta(raw: RawTrace, merged: Merged, warnings: list[TraceWarning], *, has_lines: bool) -> TraceMeta:
    given, n_trimmed = without_long_texts(raw.metadata)
    if n_trimmed:
        said = f"{n_trimmed:,} texts of the metadata are longer than {LONGEST_TEXT:,} characters and were cut"
        warnings.append(TraceWarning(id="metadata.cut", message=said, count=n_trimmed))
    metadata, n_redacted = redacted(given)
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
        traits=raw.traits,
        n_in_source=raw.n_in_source,
        n_events=merged.n_events,
        n_bytes=raw.n_bytes,
        rank=_number(distributed, "rank", (0, MAX_RANKS - 1), warnings),
        world_size=_number(distributed, "world_size", (1, MAX_RANKS), warnings),
        backend=label(distributed.get("backend")),
        torch_version=label(metadata.get("torch_version") or metadata.get("pytorch_version")) or None,
        has_stacks=bool(metadata.get("with_stack")) or "python_function" in merged.categories or has_lines,
        frames_have_lines=has_lines,
        has_shapes=bool(metadata.get("record_shapes")),
        has_memory=bool(metadata.get("profile_memory")),
        unprofiled_step_ns=whole(
            metadata.get("profkit_unprofiled_usual_ns")
            or metadata.get("profkit_unprofiled_step_mean_ns")
            or metadata.get("profkit_unprofiled_step_ns"),
            1,
            LONGEST_PLAUSIBLE_NS,
        ),
        profiled_step_ns=whole(
            metadata.get("profkit_profiled_usual_ns") or metadata.get("profkit_profiled_step_mean_ns"),
            1,
            LONGEST_PLAUSIBLE_NS,
        ),
        scheduling=_counted(metadata.get("profkit_scheduling"), _SCHEDULING),
        clocks=_counted(metadata.get("profkit_clocks"), _CLOCKS),
        connections=connections_of(raw.metadata.get("profkit_connections")),
        devices=_devices(metadata.get("deviceProperties") or metadata.get("computeProperties")),  # until torch 1.8
        categories=dict(sorted((redacted_text(name), count) for name, count in merged.categories.items())),
        metadata=metadata,
        command=_own_command(raw.metadata),
    )


def _counted(told: object, names: frozenset[str]) -> dict[str, int]:
    """The whole numbers of these names among what a capture read beside the recording."""
    if not isinstance(told, dict):
        return {}
    numbers = {str(key): whole(value, 0, LONGEST_PLAUSIBLE_NS) for key, value in told.items() if key in names}
    return {key: number for key, number in numbers.items() if number is not None}


def _own_command(metadata: Mapping[str, Any]) -> str:
    """The recorded command if this user's own capture wrote it: anybody else could have put any command there.

    The capture took the secrets out as its version knew them; here they are looked for once more.
    """
    command, mark = metadata.get("profkit_command"), metadata.get("profkit_command_mark")
    if not isinstance(command, str) or not mark:
        return ""
    from profkit import signing

    is_own = signing.holds(signing.COMMAND, command.encode(errors="surrogatepass"), mark)
    return redacted_line(command) if is_own else ""


def _number(given: Mapping[str, Any], key: str, limits: tuple[int, int], warnings: list[TraceWarning]) -> int | None:
    """What the metadata says under a key, None for nothing; what lies outside its range is said, and is none."""
    value = given.get(key)
    number = whole(value, *limits)
    if number is None and value is not None:
        low, high = limits
        said = f"{key} of the metadata is {trimmed(repr(value), 40)}, not a whole number from {low:,} to {high:,}"
        warnings.append(TraceWarning(id="metadata.range", message=f"{said}: it counts as missing"))
    return number


def _devices(properties: object) -> tuple[Device, ...]:
    if not isinstance(properties, list):
        return ()
    return tuple(
        Device(
            index=whole(item.get("id"), 0, _MOST_ID) or 0,
            name=label(item.get("name")),
            n_sms=whole(item.get("numSms") or item.get("multiProcessorCount"), 0, _MOST_SMS) or 0,
            memory_bytes=whole(item.get("totalGlobalMem"), 0, MOST_BYTES) or 0,
        )
        for item in properties
        if isinstance(item, dict)
    )


_ID: Final = re.compile(r"[0-9a-f]{12}")
_MOST_CONNECTIONS: Final = 64
"""What a capture keeps at most."""
_TIMES: Final = ("busy_ns", "peer_limited_ns", "buffer_limited_ns")


def connections_of(told: object) -> tuple[Connection, ...]:
    """The connections that metadata lists. Left out are those that cannot be, and those of a process with itself."""
    rows = told[:_MOST_CONNECTIONS] if isinstance(told, list) else []
    found = [one for one in map(_connection, rows) if one is not None]
    ends = Counter(one.id for one in found)
    return tuple(one for one in found if ends[one.id] == 1)


def _connection(row: object) -> Connection | None:
    if not isinstance(row, Mapping):
        return None
    name, end = row.get("id"), whole(row.get("end"), 0, 1)
    known = _numbers_of(row)
    if not isinstance(name, str) or not _ID.fullmatch(name) or end is None or known is None:
        return None
    return Connection(
        id=name,
        end=end,
        acked_bytes=known["acked_bytes"],
        busy_ns=max(known["busy_ns"] - known["peer_limited_ns"] - known["buffer_limited_ns"], 0),
        resent_bytes=known["resent_bytes"],
    )


def _numbers_of(row: Mapping[str, Any]) -> dict[str, int] | None:
    """The numbers of a connection; None where one is missing or cannot be."""
    known = {name: whole(row.get(name), 0, LONGEST_PLAUSIBLE_NS) for name in _TIMES}
    known |= {name: whole(row.get(name), 0, MOST_BYTES) for name in ("acked_bytes", "resent_bytes")}
    sure = {name: number for name, number in known.items() if number is not None}
    return sure if len(sure) == len(known) else None
