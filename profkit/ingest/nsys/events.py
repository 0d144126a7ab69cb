"""What ran on devices and hosts, by an nsys export: its event tables as rows of processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.errors import TraceFormatError
from profkit.ingest.assemble.raw import Columns
from profkit.ingest.nsys.nvtx import RANGE_TYPES, THREAD_NAME_TYPE
from profkit.ingest.nsys.rows import NO_END, NO_NAME, OFF_CORE, TABLES, UNNAMED, Rows
from profkit.ingest.nsys.session import process_of, text_of
from profkit.ingest.nsys.sqlite import Chunk, Database, Text
from profkit.model.arrays import I64, constant
from profkit.model.names import call_kind_of
from profkit.model.table import NO_ROW
from profkit.model.trace import CallKind

_GRID: Final = ("gridX", "gridY", "gridZ")
_BLOCK: Final = ("blockX", "blockY", "blockZ")
_WORK: Final = {"start": None, "end": None, "deviceId": 0, "streamId": 0, "correlationId": 0, "globalPid": 0}
_KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
_INT32: Final = np.iinfo(np.int32)
_NO_PROCESS: Final = 0


def read_device_rows(database: Database, rows: Rows) -> None:
    """Read what ran on devices: kernels, whole CUDA graphs, copies, memsets, synchronisation."""
    is_full = database.has(_KERNELS) and "demangledName" in database.columns(_KERNELS)
    name = "demangledName" if is_full else "shortName"
    of_kernels = {name: None, "graphNodeId": 0} | dict.fromkeys((*_GRID, *_BLOCK), 0)
    tables: tuple[tuple[str, str, dict[str, int | None], Callable[[Chunk], Columns]], ...] = (
        (_KERNELS, "kernels", of_kernels, partial(_kernels, name)),
        ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "kernels", {"graphId": 0}, _graphs),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "copies", {"bytes": -1, "copyKind": 0, "srcKind": 7, "dstKind": 7}, _copies),
        ("CUPTI_ACTIVITY_KIND_MEMSET", "copies", {"bytes": -1, "memKind": 7}, _memsets),
        ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "sync_rows", {"syncType": 0}, _sync_rows),
    )
    for table, target, numbers, columns_of in tables:
        for chunk in database.chunks(table, _WORK | numbers):
            rows.add(target, TABLES[table], chunk["globalPid"], columns_of(chunk))


def give_owner(database: Database, rows: Rows) -> None:
    """Assign device rows without a process (the column may be missing) to the only one that calls CUDA."""
    if _NO_PROCESS not in rows.processes:
        return
    callers: set[int] = set()
    for chunk in database.chunks("CUPTI_ACTIVITY_KIND_RUNTIME", {"globalTid": 0}):
        callers.update(np.unique(process_of(chunk["globalTid"])).tolist())
    if len(callers) == 1 and not callers & rows.processes.keys():
        rows.processes[callers.pop()] = rows.processes.pop(_NO_PROCESS)


def _kernels(name: str, chunk: Chunk) -> Columns:
    columns = _work(chunk, chunk.ids(name))
    for shape, names in (("grid", _GRID), ("block", _BLOCK)):
        sizes = np.stack([chunk[size] for size in names], axis=1)
        columns[shape] = np.clip(sizes, 0, _INT32.max).astype(np.int32)
    if chunk["graphNodeId"].any():
        columns["graph_node"] = chunk["graphNodeId"]
    return columns


def _graphs(chunk: Chunk) -> Columns:
    """Whole CUDA graphs as rows: with --cuda-graph-trace=graph their kernels are not recorded."""
    return _work(chunk, -2 - np.abs(chunk.ids("graphId")))


def _copies(chunk: Chunk) -> Columns:
    of, source, target = (_kind(chunk, name) for name in ("copyKind", "srcKind", "dstKind"))
    return _work(chunk, of * 256 + source * 16 + target, chunk["bytes"])


def _memsets(chunk: Chunk) -> Columns:
    return _work(chunk, -2 - _kind(chunk, "memKind"), chunk["bytes"])  # not to be taken for a copy's


def _sync_rows(chunk: Chunk) -> Columns:
    return _on_device(chunk, _kind(chunk, "syncType"))


def _kind(chunk: Chunk, name: str) -> NDArray[np.int32]:
    kinds: I64 = chunk[name]
    return np.clip(kinds, 0, 15).astype(np.int32)


def _on_device(chunk: Chunk, name: NDArray[np.int32]) -> Columns:
    return chunk.times() | {"name": name, "device": chunk.ids("deviceId"), "stream": chunk["streamId"]}


def _work(chunk: Chunk, name: NDArray[np.int32], n_bytes: I64 | None = None) -> Columns:
    """The columns of kernels, or of copies, which have bytes."""
    n = name.size
    return _on_device(chunk, name) | {
        "correlation": chunk["correlationId"],
        "graph_node": constant(0, n),
        "n_bytes": constant(-1, n) if n_bytes is None else n_bytes,
        "grid": np.zeros((n, 3), np.int32),
        "block": np.zeros((n, 3), np.int32),
        "is_copy": np.full(n, n_bytes is not None),
    }


def busy_processes(rows: Rows) -> dict[int, int]:
    """The processes with kernels (or whole graphs), and the device on which each ran most of them."""
    devices: dict[int, int] = {}
    for key, process in rows.processes.items():
        counts: dict[int, int] = {}
        for part in process.column("kernels", "device"):
            for device, count in zip(*np.unique(part, return_counts=True), strict=True):
                counts[int(device)] = counts.get(int(device), 0) + int(count)
        if counts:
            devices[key] = max(counts, key=lambda device: counts[device])
    return devices


_SCHEDULER: Final = "SCHED_EVENTS"
_RANGES: Final = "NVTX_EVENTS"
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
            columns = kept.times() | {"name": kept.ids("nameId"), "thread": rows.thread_codes(kept["globalTid"])}
            if target == "calls":
                columns["correlation"] = kept["correlationId"]
            rows.add(target, TABLES[table], kept["globalTid"], columns)
    for columns, owner in _ranges(database, rows, wanted):
        rows.add("ranges", TABLES[_RANGES], owner, columns)
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
    start = np.concatenate([chunk.ns() for chunk in chunks])
    is_in, owner = (np.concatenate([chunk[name] for chunk in chunks]) for name in ("isSchedIn", "globalTid"))
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


def _of(wanted: set[int], chunk: Chunk) -> Chunk:
    """The rows of the wanted processes: data loaders and launchers may make more OS calls than training does."""
    return chunk.kept(np.isin(process_of(chunk["globalTid"]), list(wanted)))


def _ranges(database: Database, rows: Rows, wanted: set[int]) -> Iterator[tuple[Columns, I64]]:
    """The NVTX ranges as (columns, globalTids), an open range with `NO_END`; note the threads' own names."""
    numbers = {"start": None, "end": NO_END, "eventType": RANGE_TYPES[0], "globalTid": 0, "textId": -1}
    texts: list[Text] = []
    labels = np.empty(0, np.int64)
    for chunk in database.chunks(_RANGES, numbers, coded=("text", texts)):
        for row in np.flatnonzero(chunk["eventType"] == THREAD_NAME_TYPE):
            code = int(chunk["text"][row])
            rows.thread_names[int(chunk["globalTid"][row])] = text_of(texts[code] if code >= 0 else None)
        kept = _of(wanted, chunk.kept(np.isin(chunk["eventType"], RANGE_TYPES)))
        name = -2 - kept.ids("textId")
        own = np.full(name.size, UNNAMED, np.int64)
        has_text = kept["text"] >= 0
        if has_text.any():
            labels = _with_labels(labels, kept["text"][has_text], texts, rows, database.source)
            own[has_text] = labels[kept["text"][has_text]]
        columns = kept.times() | {
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
    for chunk in database.chunks(_RANGES, {"eventType": RANGE_TYPES[0], "globalTid": 0}):
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
