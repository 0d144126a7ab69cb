"""What ran on devices, by an nsys export: kernels, whole CUDA graphs, copies, memsets, synchronisation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from profkit.ingest.nsys.rows import TABLES, Rows, small, times_of
from profkit.ingest.nsys.session import process_of
from profkit.ingest.nsys.sqlite import Database
from profkit.model.arrays import constant

_GRID: Final = ("gridX", "gridY", "gridZ")
_BLOCK: Final = ("blockX", "blockY", "blockZ")
_WORK: Final = {"start": None, "end": None, "deviceId": 0, "streamId": 0, "correlationId": 0, "globalPid": 0}
_INT32: Final = np.iinfo(np.int32)
_NO_PROCESS: Final = 0


def read_device_rows(database: Database, rows: Rows) -> None:
    """Read what ran on devices: kernels, whole CUDA graphs, copies, memsets, synchronisation."""
    for table, read in _DEVICE_TABLES:
        for chunk in read(database, table):
            owner = chunk.pop("owner")
            rows.add(chunk.pop("table"), TABLES[table], owner, chunk)


def give_owner(database: Database, rows: Rows) -> None:
    """Assign device rows without a process (the column may be missing) to the only one that calls CUDA."""
    if _NO_PROCESS not in rows.processes:
        return
    callers: set[int] = set()
    for chunk in database.chunks("CUPTI_ACTIVITY_KIND_RUNTIME", {"globalTid": 0}):
        callers.update(np.unique(process_of(chunk["globalTid"])).tolist())
    if len(callers) == 1 and not callers & rows.processes.keys():
        rows.processes[callers.pop()] = rows.processes.pop(_NO_PROCESS)


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
            "name": small(chunk[name], database, table, name),
            "graph_node": node if (node := chunk["graphNodeId"]).any() else constant(0, node.size),
            "n_bytes": constant(-1, columns["start_ns"].size),
            "table": "kernels",
        }


def _graphs(database: Database, table: str) -> Iterator[dict[str, Any]]:
    """Whole CUDA graphs as rows: with --cuda-graph-trace=graph their kernels are not recorded."""
    for chunk in database.chunks(table, {**_WORK, "graphId": 0}):
        columns = _work(chunk, database, table, is_copy=False)
        n = columns["start_ns"].size
        yield columns | {
            "name": -2 - np.abs(small(chunk["graphId"], database, table, "graphId")),
            "graph_node": constant(0, n),
            "n_bytes": constant(-1, n),
            "table": "kernels",
        }


def _copies(database: Database, table: str) -> Iterator[dict[str, Any]]:
    for chunk in database.chunks(table, _WORK | {"bytes": -1, "copyKind": 0, "srcKind": 7, "dstKind": 7}):
        kinds = [np.clip(chunk[name], 0, 15).astype(np.int32) for name in ("copyKind", "srcKind", "dstKind")]
        yield _work(chunk, database, table, is_copy=True) | {
            "name": kinds[0] * 256 + kinds[1] * 16 + kinds[2],
            "graph_node": constant(0, kinds[0].size),
            "n_bytes": chunk["bytes"],
            "table": "copies",
        }


def _memsets(database: Database, table: str) -> Iterator[dict[str, Any]]:
    for chunk in database.chunks(table, _WORK | {"bytes": -1, "memKind": 7}):
        kind = np.clip(chunk["memKind"], 0, 15).astype(np.int32)
        yield _work(chunk, database, table, is_copy=True) | {
            "name": -2 - kind,  # not to be taken for a copy's
            "graph_node": constant(0, kind.size),
            "n_bytes": chunk["bytes"],
            "table": "copies",
        }


def _sync_rows(database: Database, table: str) -> Iterator[dict[str, Any]]:
    for chunk in database.chunks(table, _WORK | {"syncType": 0}):
        yield times_of(chunk, database, table) | {
            "name": np.clip(chunk["syncType"], 0, 15).astype(np.int32),
            "device": small(chunk["deviceId"], database, table, "deviceId"),
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
    return times_of(chunk, database, table) | {
        "device": small(chunk["deviceId"], database, table, "deviceId"),
        "stream": chunk["streamId"],
        "correlation": chunk["correlationId"],
        "grid": np.zeros((n, 3), np.int32),
        "block": np.zeros((n, 3), np.int32),
        "is_copy": np.full(n, is_copy),
        "owner": chunk["globalPid"],
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
