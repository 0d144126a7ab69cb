"""The event tables of an nsys export as columns, one set for each process that the file holds.

Every table is read once, in chunks, in whatever order it lies (rows are unordered since 2025.6). Columns and codes: the
schema reference of nsys, checked on exports of 2020 to 2026; what a version does not have gets its "absent" value.
"""

from __future__ import annotations

from io import FileIO
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.errors import TraceFormatError
from profkit.ingest.assemble.raw import Columns
from profkit.ingest.nsys.nvtx import Labels
from profkit.ingest.nsys.packed import Packed
from profkit.ingest.nsys.session import process_of
from profkit.ingest.nsys.sqlite import Database
from profkit.model.arrays import I64, joined, picked, rows_by_value

NO_END: Final = -1
NO_NAME: Final = -1
OFF_CORE: Final = -2
"""Of a wait that the scheduler tells, and no call of the system."""
UNNAMED: Final = -1
"""Of a range without text; ids of StringIds stand as -(id + 2), so that they and label codes share a column."""

PART_ROWS: Final = 2**18
"""Rows packed together."""
_LATEST_NS: Final = 2**60  # 36 years; a difference of two such times fits 64 bits
_INT32: Final = np.iinfo(np.int32)

TABLES: Final = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "graph",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "gpu_memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "gpu_memset",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "cuda_sync",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "cuda_runtime",
    "NVTX_EVENTS": "nvtx",
    "OSRT_API": "osrt",
    "SCHED_EVENTS": "scheduler",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "overhead",
    "PROFILER_OVERHEAD": "overhead",
    "COMPOSITE_EVENTS": "cpu_sample",
}
"""The tables that are read, with the category their rows are counted under."""


Tables = dict[str, list[Columns]]
"""The tables of a process in parts, which are the holder's to change."""


class Process(msgspec.Struct):
    """The columns of one process as parts, by table of a `Trace`; names are codes yet to resolve."""

    counts: dict[str, int] = msgspec.field(default_factory=dict)
    _parts: dict[str, list[Packed]] = msgspec.field(default_factory=dict)
    _tails: dict[str, list[Columns]] = msgspec.field(default_factory=dict)

    def add(self, table: str, columns: Columns) -> None:
        """Add rows to a table; there is one at least."""
        tail = self._tails.setdefault(table, [])
        tail.append(columns)
        if sum(part["start_ns"].size for part in tail) >= PART_ROWS:
            self._pack(table)

    def column(self, table: str, name: str) -> list[NDArray[Any]]:
        """A column that is no time, in parts."""
        self._pack(table)
        return [part.column(name) for part in self._parts.get(table, ())]

    @property
    def n_bytes(self) -> int:
        """What the packed rows take; the last ones of a table may not be packed yet."""
        return sum(part.room.nbytes for parts in self._parts.values() for part in parts)

    def put_aside(self, file: FileIO) -> None:
        """Keep the rows in a file until they are taken; raises OSError where it has no room for all of them."""
        self._pack_all()
        for parts in self._parts.values():
            for part in parts:
                part.put_aside(file)

    def take(self) -> Tables:
        """All tables in parts, which the process forgets."""
        self._pack_all()
        taken: Tables = {}
        for table in list(self._parts):
            parts = self._parts.pop(table)
            taken[table] = [parts.pop(0).columns() for _ in range(len(parts))]
        return taken

    def _pack_all(self) -> None:
        for table in list(self._tails):
            self._pack(table)

    def _pack(self, table: str) -> None:
        if tail := self._tails.pop(table, []):
            whole = {name: joined([part[name] for part in tail]) for name in tail[0]}
            self._parts.setdefault(table, []).append(Packed.of(whole))


class Rows(msgspec.Struct):
    """What the event tables hold, by process; `threads` are the globalTids by code."""

    processes: dict[int, Process] = msgspec.field(default_factory=dict)
    threads: dict[int, int] = msgspec.field(default_factory=dict)
    thread_names: dict[int, str] = msgspec.field(default_factory=dict)
    labels: Labels = msgspec.field(default_factory=Labels)
    n_reversed: int = 0
    left_out: list[str] = msgspec.field(default_factory=list)
    """Tables that were not read, and why."""

    def add(self, table: str, category: str, owner: I64, columns: Columns) -> None:
        """Add rows to the processes they belong to, `owner` being their globalTid or globalPid.

        Rows without an end are moments.
        """
        backward = columns.get("end_ns", columns["start_ns"]) < columns["start_ns"]
        if backward.any():  # never seen in an export; what lasts less than nothing is no row
            backward &= columns["end_ns"] != NO_END
            self.n_reversed += int(backward.sum())
            owner, columns = owner[~backward], {name: picked(column, ~backward) for name, column in columns.items()}
        keys = process_of(owner)
        for key, rows in rows_by_value(keys):
            process = self.processes.setdefault(int(key), Process())
            process.counts[category] = process.counts.get(category, 0) + rows.size
            mine = (
                columns if rows.size == keys.size else {name: picked(column, rows) for name, column in columns.items()}
            )
            process.add(table, mine)

    def thread_codes(self, global_tids: I64) -> NDArray[np.int32]:
        """The codes of threads."""
        distinct, place = np.unique(global_tids, return_inverse=True)
        codes = [self.threads.setdefault(int(tid), len(self.threads)) for tid in distinct]
        return np.array(codes, np.int32)[place.reshape(-1)]

    def keep(self, processes: set[int]) -> None:
        """Forget all other processes."""
        self.processes = {key: process for key, process in self.processes.items() if key in processes}


def times_of(chunk: dict[str, Any], database: Database, table: str) -> Columns:
    """The start and end of rows; raises TraceFormatError for what is no time."""
    start, end = chunk["start"], chunk["end"]
    for column, name in ((start, "start"), (end, "end")):
        if column.size and (int(column.min()) < -_LATEST_NS or int(column.max()) > _LATEST_NS):
            raise TraceFormatError(f"{database.source}: {table}.{name} holds times that cannot be nanoseconds")
    return {"start_ns": start, "end_ns": end}


def small(values: I64, database: Database, table: str, name: str) -> NDArray[np.int32]:
    """Ids as int32; raises TraceFormatError for what is none."""
    if values.size and not (_INT32.min < int(values.min()) and int(values.max()) < _INT32.max - 2):
        raise TraceFormatError(
            f"{database.source}: {table}.{name} holds {int(np.abs(values).max())}, which is not an id"
        )
    return values.astype(np.int32)
