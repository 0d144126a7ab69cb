"""The event tables of an nsys export as columns, one set for each process that the file holds.

Every table is read once, in chunks, in whatever order it lies (rows are unordered since 2025.6). Columns and codes: the
schema reference of nsys, checked on exports of 2020 to 2026; what a version does not have gets its "absent" value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.errors import TraceFormatError
from profkit.ingest.columns import Columns
from profkit.ingest.nsys_nvtx import RANGE_TYPES, THREAD_NAME_TYPE, Labels
from profkit.ingest.nsys_session import process_of, text_of
from profkit.ingest.sqlite import Database
from profkit.model.arrays import I64

NO_END: Final = -1
UNNAMED: Final = -1
"""Of a range without text; ids of StringIds stand as -(id + 2), so that they and label codes share a column."""

PART_ROWS: Final = 2**18
"""Rows kept together: arrays of a megabyte and more, which the system gets back when they are freed."""
_LATEST_NS: Final = 2**60  # 36 years; a difference of two such times fits 64 bits
_INT32: Final = np.iinfo(np.int32)
_GRID: Final = ("gridX", "gridY", "gridZ")
_BLOCK: Final = ("blockX", "blockY", "blockZ")
_WORK: Final = {"start": None, "end": None, "deviceId": 0, "streamId": 0, "correlationId": 0, "globalPid": 0}
_CALL: Final = {"start": None, "end": None, "globalTid": 0, "nameId": None}

TABLES: Final = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "gpu_memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "gpu_memset",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "cuda_sync",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "cuda_runtime",
    "NVTX_EVENTS": "nvtx",
    "OSRT_API": "osrt",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "overhead",
    "PROFILER_OVERHEAD": "overhead",
}
"""The tables that are read, with the category their rows are counted under."""


@dataclass(slots=True)
class Process:
    """The columns of one process as parts, by table of a `Trace`; names are codes yet to resolve."""

    counts: dict[str, int] = field(default_factory=dict)
    _parts: dict[str, list[Columns]] = field(default_factory=dict)
    _tails: dict[str, list[Columns]] = field(default_factory=dict)

    def add(self, table: str, columns: Columns) -> None:
        """Add rows to a table."""
        tail = self._tails.setdefault(table, [])
        tail.append(columns)
        if sum(part["start_ns"].size for part in tail) >= PART_ROWS:
            self._pack(table)

    def parts(self, table: str) -> list[Columns]:
        """Give the parts of a table; they may be changed, and belong to the process until it is forgotten."""
        self._pack(table)
        return self._parts.get(table, [])

    def _pack(self, table: str) -> None:
        if tail := self._tails.pop(table, []):
            joined = {name: np.concatenate([part[name] for part in tail]) for name in tail[0]}
            self._parts.setdefault(table, []).append(joined)


@dataclass(slots=True)
class Rows:
    """What the event tables hold, by process; `threads` are the globalTids by code."""

    processes: dict[int, Process] = field(default_factory=dict)
    threads: dict[int, int] = field(default_factory=dict)
    thread_names: dict[int, str] = field(default_factory=dict)
    labels: Labels = field(default_factory=Labels)
    n_reversed: int = 0

    def add(self, table: str, category: str, owner: I64, columns: Columns) -> None:
        """Add rows to the processes they belong to, `owner` being their globalTid or globalPid."""
        backward = columns["end_ns"] < columns["start_ns"]
        if backward.any():  # never seen in an export; what lasts less than nothing is no row
            backward &= columns["end_ns"] != NO_END
            self.n_reversed += int(backward.sum())
            owner, columns = owner[~backward], {name: column[~backward] for name, column in columns.items()}
        keys = process_of(owner)
        for key in np.unique(keys):
            rows = keys == key
            process = self.processes.setdefault(int(key), Process())
            process.counts[category] = process.counts.get(category, 0) + int(rows.sum())
            mine = columns if rows.all() else {name: column[rows] for name, column in columns.items()}
            process.add(table, mine)

    def thread_codes(self, global_tids: I64) -> NDArray[np.int32]:
        """Give the codes of threads."""
        distinct, place = np.unique(global_tids, return_inverse=True)
        codes = [self.threads.setdefault(int(tid), len(self.threads)) for tid in distinct]
        return np.array(codes, np.int32)[place.reshape(-1)]

    def keep(self, processes: set[int]) -> None:
        """Forget all other processes."""
        self.processes = {key: process for key, process in self.processes.items() if key in processes}


def read_device_rows(database: Database, rows: Rows) -> None:
    """Read what ran on devices: kernels, whole CUDA graphs, copies, memsets, synchronisation."""
    for table, read in _DEVICE_TABLES:
        for chunk in read(database, table):
            owner = chunk.pop("owner")
            rows.add(chunk.pop("table"), TABLES[table], owner, chunk)


def read_host_rows(database: Database, rows: Rows, *, wanted: set[int]) -> None:
    """Read what ran on the hosts of the wanted processes: CUDA calls, ranges, OS calls, the profiler's own work."""
    for table, target, numbers in _HOST_TABLES:
        for chunk in database.chunks(table, numbers):
            kept = _of(wanted, chunk)
            columns = _host_columns(kept, database, table, rows)
            if target == "calls":
                columns["correlation"] = kept["correlationId"]
            rows.add(target, TABLES[table], kept["globalTid"], columns)
    for columns, owner in _ranges(database, rows, wanted):
        rows.add("ranges", TABLES["NVTX_EVENTS"], owner, columns)


_HOST_TABLES: Final = (
    ("CUPTI_ACTIVITY_KIND_RUNTIME", "calls", {**_CALL, "correlationId": 0}),
    ("OSRT_API", "waits", _CALL),
    ("CUPTI_ACTIVITY_KIND_OVERHEAD", "overhead", _CALL),
    ("PROFILER_OVERHEAD", "overhead", _CALL),
)


def _host_columns(chunk: dict[str, Any], database: Database, table: str, rows: Rows) -> Columns:
    return _times(chunk, database, table) | {
        "name": _small(chunk["nameId"], database, table, "nameId"),
        "thread": rows.thread_codes(chunk["globalTid"]),
    }


def _of(wanted: set[int], chunk: dict[str, Any]) -> dict[str, Any]:
    """Give the rows of the wanted processes: data loaders and launchers may make more OS calls than training does."""
    mine = np.isin(process_of(chunk["globalTid"]), list(wanted))
    if mine.all():
        return chunk
    return {
        name: column[mine] if isinstance(column, np.ndarray) else tuple(np.array(column, object)[mine])
        for name, column in chunk.items()
    }


def _kernels(database: Database, table: str) -> Iterator[dict[str, Any]]:
    is_full = database.has(table) and "demangledName" in database.columns(table)
    name = "demangledName" if is_full else "shortName"
    numbers = _WORK | {name: None, "graphNodeId": 0} | dict.fromkeys((*_GRID, *_BLOCK), 0)
    for chunk in database.chunks(table, numbers):
        columns = _work(chunk, database, table, is_copy=False)
        for shape, names in (("grid", _GRID), ("block", _BLOCK)):
            sizes = np.stack([chunk[size] for size in names], axis=1)
            columns[shape] = np.clip(sizes, 0, _INT32.max).astype(np.int32)
        yield columns | {
            "name": _small(chunk[name], database, table, name),
            "graph_node": chunk["graphNodeId"],
            "n_bytes": np.full(columns["start_ns"].size, -1, np.int64),
            "table": "kernels",
        }


def _graphs(database: Database, table: str) -> Iterator[dict[str, Any]]:
    """Give whole CUDA graphs as rows: with --cuda-graph-trace=graph their kernels are not recorded."""
    for chunk in database.chunks(table, {**_WORK, "graphId": 0}):
        columns = _work(chunk, database, table, is_copy=False)
        n = columns["start_ns"].size
        yield columns | {
            "name": -2 - np.abs(_small(chunk["graphId"], database, table, "graphId")),
            "graph_node": np.zeros(n, np.int64),
            "n_bytes": np.full(n, -1, np.int64),
            "table": "kernels",
        }


def _copies(database: Database, table: str) -> Iterator[dict[str, Any]]:
    for chunk in database.chunks(table, _WORK | {"bytes": -1, "copyKind": 0, "srcKind": 7, "dstKind": 7}):
        kinds = [np.clip(chunk[name], 0, 15).astype(np.int32) for name in ("copyKind", "srcKind", "dstKind")]
        yield _work(chunk, database, table, is_copy=True) | {
            "name": kinds[0] * 256 + kinds[1] * 16 + kinds[2],
            "graph_node": np.zeros(kinds[0].size, np.int64),
            "n_bytes": chunk["bytes"],
            "table": "copies",
        }


def _memsets(database: Database, table: str) -> Iterator[dict[str, Any]]:
    for chunk in database.chunks(table, _WORK | {"bytes": -1, "memKind": 7}):
        kind = np.clip(chunk["memKind"], 0, 15).astype(np.int32)
        yield _work(chunk, database, table, is_copy=True) | {
            "name": -2 - kind,  # not to be taken for a copy's
            "graph_node": np.zeros(kind.size, np.int64),
            "n_bytes": chunk["bytes"],
            "table": "copies",
        }


def _sync_rows(database: Database, table: str) -> Iterator[dict[str, Any]]:
    for chunk in database.chunks(table, _WORK | {"syncType": 0}):
        yield _times(chunk, database, table) | {
            "name": np.clip(chunk["syncType"], 0, 15).astype(np.int32),
            "device": _small(chunk["deviceId"], database, table, "deviceId"),
            "stream": chunk["streamId"],
            "owner": chunk["globalPid"],
            "table": "sync_rows",
        }


_Reader = Callable[[Database, str], Iterator[dict[str, Any]]]
_DEVICE_TABLES: Final[tuple[tuple[str, _Reader], ...]] = (
    ("CUPTI_ACTIVITY_KIND_KERNEL", _kernels),
    ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", _graphs),
    ("CUPTI_ACTIVITY_KIND_MEMCPY", _copies),
    ("CUPTI_ACTIVITY_KIND_MEMSET", _memsets),
    ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", _sync_rows),
)


def _work(chunk: dict[str, Any], database: Database, table: str, *, is_copy: bool) -> dict[str, Any]:
    n = chunk["start"].size
    return _times(chunk, database, table) | {
        "device": _small(chunk["deviceId"], database, table, "deviceId"),
        "stream": chunk["streamId"],
        "correlation": chunk["correlationId"],
        "grid": np.zeros((n, 3), np.int32),
        "block": np.zeros((n, 3), np.int32),
        "is_copy": np.full(n, is_copy),
        "owner": chunk["globalPid"],
    }


def _ranges(database: Database, rows: Rows, wanted: set[int]) -> Iterator[tuple[Columns, I64]]:
    """Give the NVTX ranges as (columns, globalTids), an open range with `NO_END`; note the threads' own names."""
    table = "NVTX_EVENTS"
    numbers = {"start": None, "end": NO_END, "eventType": RANGE_TYPES[0], "globalTid": 0, "textId": -1}
    for chunk in database.chunks(table, numbers, ("text",)):
        for row in np.flatnonzero(chunk["eventType"] == THREAD_NAME_TYPE):
            rows.thread_names[int(chunk["globalTid"][row])] = text_of(chunk["text"][row])
        is_range = np.isin(chunk["eventType"], RANGE_TYPES)
        text = chunk.pop("text")
        if not is_range.all():
            text = tuple(np.array(text, object)[is_range])
        kept = _of(wanted, {name: column[is_range] for name, column in chunk.items()} | {"text": text})
        name = -2 - _small(kept["textId"], database, table, "textId")
        code = rows.labels.code
        given = [UNNAMED if value is None else code(_text(value, database.source)) for value in kept["text"]]
        own = np.array(given, np.int64)
        columns = _times(kept, database, table) | {
            "name": np.where(own == UNNAMED, name, own).astype(np.int32),
            "thread": rows.thread_codes(kept["globalTid"]),
        }
        yield columns, kept["globalTid"]


def _text(value: Any, source: str) -> bytes:
    if not isinstance(value, bytes):
        raise TraceFormatError(f"{source}: NVTX_EVENTS.text holds {value!r:.40} where text is expected")
    return value


def read_thread_names(database: Database, rows: Rows) -> dict[int, int]:
    """Give the id in StringIds of each known thread's name, by globalTid."""
    return {
        global_tid: name
        for chunk in database.chunks("ThreadNames", {"nameId": None, "globalTid": None})
        for global_tid, name in zip(chunk["globalTid"].tolist(), chunk["nameId"].tolist(), strict=True)
        if global_tid in rows.threads
    }


def _times(chunk: dict[str, Any], database: Database, table: str) -> Columns:
    start, end = chunk["start"], chunk["end"]
    for column, name in ((start, "start"), (end, "end")):
        if column.size and (int(column.min()) < -_LATEST_NS or int(column.max()) > _LATEST_NS):
            raise TraceFormatError(f"{database.source}: {table}.{name} holds times that cannot be nanoseconds")
    return {"start_ns": start, "end_ns": end}


def _small(values: I64, database: Database, table: str, name: str) -> NDArray[np.int32]:
    if values.size and not (_INT32.min < int(values.min()) and int(values.max()) < _INT32.max - 2):
        raise TraceFormatError(f"{database.source}: {table}.{name} holds {int(np.abs(values).max())}, which is no id")
    return values.astype(np.int32)


def busy_processes(rows: Rows) -> dict[int, int]:
    """Give the processes with kernels (or whole graphs), and the device on which each ran most of them."""
    devices: dict[int, int] = {}
    for key, process in rows.processes.items():
        counts: dict[int, int] = {}
        for part in process.parts("kernels"):
            for device, count in zip(*np.unique(part["device"], return_counts=True), strict=True):
                counts[int(device)] = counts.get(int(device), 0) + int(count)
        if counts:
            devices[key] = max(counts, key=lambda device: counts[device])
    return devices
