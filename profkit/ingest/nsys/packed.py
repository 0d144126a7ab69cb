"""Rows that wait for their turn, in few bytes: all processes of an export are read before the first is analysed.

No digit is lost: ends are kept as lengths, starts as steps from the row before, and each column counts from its least
value, in the smallest unsigned integers that reach its greatest.
"""

from __future__ import annotations

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

    @classmethod
    def of(cls, columns: Columns) -> Self:
        """The columns in few bytes; there is a row at least."""
        start = columns[_START]
        narrow = {name: _Narrow.of(column) for name, column in columns.items() if name not in {_START, _END}}
        narrow[_START] = _Narrow.of(np.diff(start))
        if _END in columns:
            narrow[_END] = _Narrow.of(columns[_END] - start)
        _lay_together(list(narrow.values()))
        return cls(int(start[0]), narrow)

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


def _lay_together(columns: list[_Narrow]) -> None:
    """Store columns in one piece of memory: small pieces that are freed one by one leave holes between others."""
    kept = [(column, column.stored) for column in columns if column.stored is not None]
    sizes = [-(-stored.nbytes // _ALIGNED) * _ALIGNED for _, stored in kept]
    room = np.empty(sum(sizes), np.uint8)
    first = 0
    for (column, stored), size in zip(kept, sizes, strict=True):
        column.stored = room[first : first + stored.nbytes].view(stored.dtype).reshape(stored.shape)
        column.stored[...] = stored
        first += size
