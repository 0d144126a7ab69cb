"""Rows that wait for their turn, in few bytes: all processes of an export are read before the first is analysed.

No digit is lost: ends are kept as lengths, starts as steps from the row before, and each column counts from its least
value, in the smallest unsigned integers that reach its greatest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from io import SEEK_END, FileIO
from typing import Any, Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.ingest.assemble.raw import Columns
from profkit.model.arrays import is_constant

_KINDS: Final = ((np.dtype(np.uint8), 2**8), (np.dtype(np.uint16), 2**16), (np.dtype(np.uint32), 2**32))
"""Unsigned integers, and how many values each has."""
_START, _END = "start_ns", "end_ns"
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
        start = columns[_START]
        narrow = {name: _Narrow.of(column) for name, column in columns.items() if name not in {_START, _END}}
        narrow[_START] = _Narrow.of(np.diff(start))
        if _END in columns:
            narrow[_END] = _Narrow.of(columns[_END] - start)
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
        start = np.empty(wide[_START].size + 1, np.int64)
        start[0] = self.first_ns
        start[1:] = wide[_START]
        wide[_START] = np.cumsum(start, out=start)
        if _END in wide:
            wide[_END] += start
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
