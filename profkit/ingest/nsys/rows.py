"""The event tables of an nsys export as columns, one set for each process that the file holds.

Every table is read once, in chunks, in whatever order it lies (rows are unordered since 2025.6). Columns and codes: the
schema reference of nsys, checked on exports of 2020 to 2026; what a version does not have gets its "absent" value.
Rows wait for their turn in few bytes, since all processes of an export are read before the first is analysed. No digit
is lost: ends are kept as lengths, starts as steps from the row before, and each column counts from its least value, in
the smallest unsigned integers that reach its greatest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import SEEK_END, FileIO
from typing import Any, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.ingest.assemble.raw import Columns
from profkit.ingest.nsys.nvtx import Labels
from profkit.ingest.nsys.session import process_of
from profkit.model.arrays import I64, is_constant, joined, picked, rows_by_value

_KINDS: Final = ((np.dtype(np.uint8), 2**8), (np.dtype(np.uint16), 2**16), (np.dtype(np.uint32), 2**32))
"""Unsigned integers, and how many values each has."""
_START_NS, _END_NS = "start_ns", "end_ns"
_ALIGNED: Final = 8

Bytes = NDArray[np.uint8]


class _Narrow(msgspec.Struct):
    """Values as their distances from `low`; of a column of one value none are stored."""

    low: int
    kind: np.dtype[Any]
    """Of the values as they were."""
    shape: tuple[int, ...]
    stored: NDArray[Any] | None
    is_constant: bool
    """Whether the column took the room of one value."""

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
        kind = next((kind for kind, n in _KINDS if high - low < n), values.dtype)
        if low == high:
            return cls(low, values.dtype, values.shape, None, is_constant(values))
        if kind.itemsize >= values.dtype.itemsize:
            return cls(0, values.dtype, values.shape, values, is_constant=False)
        return cls(low, values.dtype, values.shape, (values - low).astype(kind), is_constant=False)

    def wide(self) -> NDArray[Any]:
        if self.stored is None:
            value = np.array(self.low, self.kind)
            return np.broadcast_to(value, self.shape) if self.is_constant else np.full(self.shape, value)
        values: NDArray[Any] = self.stored.astype(self.kind)
        if self.low:
            values += self.low
        return values


class Packed(msgspec.Struct):
    """The columns of some rows of a table, which have starts. Times lie so near 0 that differences fit 64 bits."""

    first_ns: int
    narrow: dict[str, _Narrow]
    room: Bytes
    """What is stored of all columns."""

    @classmethod
    def of(cls, columns: Columns) -> Self:
        """The columns in few bytes; there is a row at least."""
        start = columns[_START_NS]
        narrow = {name: _Narrow.of(column) for name, column in columns.items() if name not in {_START_NS, _END_NS}}
        narrow[_START_NS] = _Narrow.of(np.diff(start))
        if _END_NS in columns:
            narrow[_END_NS] = _Narrow.of(columns[_END_NS] - start)
        return cls(int(start[0]), narrow, _together(narrow.values()))

    def put_aside(self, file: FileIO) -> None:
        """Keep the rows at the end of a file, which is read when they are asked for; raises OSError without room."""
        first, room = file.seek(0, SEEK_END), self.room.data
        while room:
            room = room[file.write(room) :]
        if self.room.size:
            self.room = np.asarray(np.memmap(file, np.uint8, "r", first, self.room.shape))
            for column, stored in _laid_out(self.narrow.values(), self.room):
                column.stored = stored

    def column(self, name: str) -> NDArray[Any]:
        """A column that is no time."""
        return self.narrow[name].wide()

    def columns(self) -> Columns:
        """All columns as they were."""
        wide = {name: narrow.wide() for name, narrow in self.narrow.items()}
        start = np.empty(wide[_START_NS].size + 1, np.int64)
        start[0] = self.first_ns
        start[1:] = wide[_START_NS]
        wide[_START_NS] = np.cumsum(start, out=start)
        if _END_NS in wide:
            wide[_END_NS] += start
        return wide


def _together(columns: Iterable[_Narrow]) -> Bytes:
    """Store columns in one piece of memory: small pieces that are freed one by one leave holes between others."""
    columns = list(columns)
    room = np.zeros(sum(_size(column.stored) for column in columns if column.stored is not None), np.uint8)
    for column, stored in _laid_out(columns, room):
        stored[...] = column.stored
        column.stored = stored
    return room


def _laid_out(columns: Iterable[_Narrow], room: Bytes) -> Iterator[tuple[_Narrow, NDArray[Any]]]:
    """The columns of which anything is stored, each with its place in a piece of memory."""
    first = 0
    for column in columns:
        if (stored := column.stored) is not None:
            yield column, room[first : first + stored.nbytes].view(stored.dtype).reshape(stored.shape)
            first += _size(stored)


def _size(stored: NDArray[Any]) -> int:
    return -(-stored.nbytes // _ALIGNED) * _ALIGNED


NO_END: Final = -1
NO_NAME: Final = -1
OFF_CORE: Final = -2
"""Of a wait that the scheduler tells, and no call of the system."""
UNNAMED: Final = -1
"""Of a range without text; ids of StringIds stand as -(id + 2), so that they and label codes share a column."""

PART_ROWS: Final = 2**18
"""Rows packed together."""

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
