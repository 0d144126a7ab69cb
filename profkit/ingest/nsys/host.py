"""What ran on the hosts, by an nsys export: CUDA calls, NVTX ranges, calls of the operating system."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from profkit.errors import TraceFormatError
from profkit.ingest.assemble.raw import Columns
from profkit.ingest.nsys.nvtx import RANGE_TYPES, THREAD_NAME_TYPE
from profkit.ingest.nsys.rows import NO_END, NO_NAME, OFF_CORE, TABLES, UNNAMED, Rows, small, times_of
from profkit.ingest.nsys.session import process_of, text_of
from profkit.ingest.nsys.sqlite import Database, Text
from profkit.model.arrays import I64
from profkit.model.names import call_kind_of
from profkit.model.table import NO_ROW
from profkit.model.trace import CallKind

_SCHEDULER: Final = "SCHED_EVENTS"
_LAUNCHES: Final = (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH)
_CALL: Final = {"start": None, "end": None, "globalTid": 0, "nameId": None}
_BESIDE: Final = _CALL | {"nameId": NO_NAME}
"""Of tables that add to a trace and do not make it: one without these columns is left out, and that is said."""


def read_host_rows(database: Database, rows: Rows, *, wanted: set[int]) -> None:
    """Read what ran on the hosts of the wanted processes: CUDA calls, ranges, OS calls, the profiler's own work."""
    for table, target, numbers in _HOST_TABLES:
        missing = [name for name in ("start", "end") if database.has(table) and name not in database.columns(table)]
        if missing and numbers is _BESIDE:
            rows.left_out.append(f"{table} has no column {missing[0]}: left out")
            continue
        for chunk in database.chunks(table, numbers):
            kept = _of(wanted, chunk)
            columns = _host_columns(kept, database, table, rows)
            if target == "calls":
                columns["correlation"] = kept["correlationId"]
            rows.add(target, TABLES[table], kept["globalTid"], columns)
    for columns, owner in _ranges(database, rows, wanted):
        rows.add("ranges", TABLES["NVTX_EVENTS"], owner, columns)
    if not any(rows.processes[key].counts.get(TABLES["OSRT_API"]) for key in wanted & set(rows.processes)):
        _read_off_core(database, rows, wanted)


def _read_off_core(database: Database, rows: Rows, wanted: set[int]) -> None:
    """Read when threads had no core, by the scheduler's events: where no calls of the system say what they wait for."""
    if not {"start", "isSchedIn", "globalTid"} <= database.columns(_SCHEDULER):
        return
    chunks = [
        _of(wanted, chunk) for chunk in database.chunks(_SCHEDULER, {"start": None, "isSchedIn": 0, "globalTid": 0})
    ]
    if not any(chunk["start"].size for chunk in chunks):
        return
    start, is_in, owner = (
        np.concatenate([chunk[name] for chunk in chunks]) for name in ("start", "isSchedIn", "globalTid")
    )
    start = times_of({"start": start, "end": start}, database, _SCHEDULER)["start_ns"]
    order = np.lexsort((start, owner))
    start, is_in, owner = start[order], is_in[order] != 0, owner[order]
    left = np.flatnonzero(~is_in[:-1] & is_in[1:] & (owner[1:] == owner[:-1]))
    if left.size:
        columns = {"start_ns": start[left], "end_ns": start[left + 1], "thread": rows.thread_codes(owner[left])}
        name = np.full(left.size, OFF_CORE, np.int32)
        rows.add("waits", TABLES[_SCHEDULER], owner[left], columns | {"name": name})


_HOST_TABLES: Final = (
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "calls", {**_CALL, "correlationId": 0}),
    ("OSRT_API", "waits", _BESIDE),
    ("CUPTI_ACTIVITY_KIND_OVERHEAD", "overhead", _BESIDE),
    ("PROFILER_OVERHEAD", "overhead", _BESIDE),
)


def _host_columns(chunk: dict[str, Any], database: Database, table: str, rows: Rows) -> Columns:
    return times_of(chunk, database, table) | {
        "name": small(chunk["nameId"], database, table, "nameId"),
        "thread": rows.thread_codes(chunk["globalTid"]),
    }


def _of(wanted: set[int], chunk: dict[str, Any]) -> dict[str, Any]:
    """The rows of the wanted processes: data loaders and launchers may make more OS calls than training does."""
    mine = np.isin(process_of(chunk["globalTid"]), list(wanted))
    if mine.all():
        return chunk
    return {
        name: column[mine] if isinstance(column, np.ndarray) else tuple(np.array(column, object)[mine])
        for name, column in chunk.items()
    }


def _ranges(database: Database, rows: Rows, wanted: set[int]) -> Iterator[tuple[Columns, I64]]:
    """The NVTX ranges as (columns, globalTids), an open range with `NO_END`; note the threads' own names."""
    table = "NVTX_EVENTS"
    numbers = {"start": None, "end": NO_END, "eventType": RANGE_TYPES[0], "globalTid": 0, "textId": -1}
    texts: list[Text] = []
    labels = np.empty(0, np.int64)
    for chunk in database.chunks(table, numbers, coded=("text", texts)):
        for row in np.flatnonzero(chunk["eventType"] == THREAD_NAME_TYPE):
            code = int(chunk["text"][row])
            rows.thread_names[int(chunk["globalTid"][row])] = text_of(texts[code] if code >= 0 else None)
        is_range = np.isin(chunk["eventType"], RANGE_TYPES)
        if not is_range.all():
            chunk = {name: column[is_range] for name, column in chunk.items()}  # noqa: PLW2901
        kept = _of(wanted, chunk)
        name = -2 - small(kept["textId"], database, table, "textId")
        own = np.full(name.size, UNNAMED, np.int64)
        has_text = kept["text"] >= 0
        if has_text.any():
            labels = _with_labels(labels, kept["text"][has_text], texts, rows, database.source)
            own[has_text] = labels[kept["text"][has_text]]
        columns = times_of(kept, database, table) | {
            "name": np.where(own == UNNAMED, name, own).astype(np.int32),
            "thread": rows.thread_codes(kept["globalTid"]),
        }
        yield columns, kept["globalTid"]


def launching_processes(database: Database) -> set[int]:
    """The processes that launch kernels or graphs."""
    calls: dict[int, set[int]] = {}
    for chunk in database.chunks("CUPTI_ACTIVITY_KIND_RUNTIME", {"globalTid": 0, "nameId": NO_NAME}):
        pairs = np.unique(np.stack([process_of(chunk["globalTid"]), chunk["nameId"]]), axis=1)
        for key, name in pairs.T.tolist():
            calls.setdefault(name, set()).add(key)
    found: set[int] = set()
    for chunk in database.chunks("StringIds", {"id": None}, ("value",)) if calls else ():
        for row in np.flatnonzero(np.isin(chunk["id"], list(calls))):
            if call_kind_of(text_of(chunk["value"][row])) in _LAUNCHES:
                found |= calls[int(chunk["id"][row])]
    return found


def marked_processes(database: Database) -> set[int]:
    """The processes with NVTX ranges."""
    found: set[int] = set()
    for chunk in database.chunks("NVTX_EVENTS", {"eventType": RANGE_TYPES[0], "globalTid": 0}):
        is_range = np.isin(chunk["eventType"], RANGE_TYPES)
        found.update(np.unique(process_of(chunk["globalTid"][is_range])).tolist())
    return found


def _with_labels(labels: I64, codes: I64, texts: list[Text], rows: Rows, source: str) -> I64:
    """The label of each text, -1 for those that no range had yet; `codes` are the texts of more ranges."""
    grown = np.full(len(texts), NO_ROW, np.int64)
    grown[: labels.size] = labels
    fresh, first = np.unique(codes[grown[codes] < 0], return_index=True)
    fresh = fresh[np.argsort(first)]  # in order of first sight
    given: list[Any] = [texts[code] for code in fresh.tolist()]
    try:
        grown[fresh] = rows.labels.codes(given)
    except AttributeError:
        wrong = next(value for value in given if not isinstance(value, bytes))
        raise TraceFormatError(f"{source}: NVTX_EVENTS.text holds {wrong!r:.40} where text is expected") from None
    return grown


def read_thread_names(database: Database, rows: Rows) -> dict[int, int]:
    """The id in StringIds of each known thread's name, by globalTid."""
    return {
        global_tid: name
        for chunk in database.chunks("ThreadNames", {"nameId": -1, "globalTid": -1})
        for global_tid, name in zip(chunk["globalTid"].tolist(), chunk["nameId"].tolist(), strict=True)
        if global_tid in rows.threads and name >= 0
    }
