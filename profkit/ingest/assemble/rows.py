"""The rows of a table from all batches: joined, without what cannot be true, in time order, one column at a time.

Of a large trace a column is tens of MB, and to touch so much fresh memory costs as much as to copy a column into it: no
mask and no copy is as long as the table that need not be, and columns that are to be sorted are joined in one place.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise
from math import prod
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.ingest.assemble.raw import Columns
from profkit.ingest.numbers import LONGEST_PLAUSIBLE_NS, RANGES
from profkit.model.arrays import I64, Whole, is_constant, joined, narrowed, picked
from profkit.model.table import NO_ROW
from profkit.model.trace import TraceWarning

_BLOCK: Final = 2**15
"""Rows looked at together: what is worked out of them stays in cache. Chosen."""
_LEAST_STRETCH: Final = 1024
"""Rows that stretches must have to be copied in one piece each, as a mean. Chosen: a file has some of thousands."""
_LATE_NS: Final = 10**9
_NUMBERS: Final = frozenset(
    {"stream", "correlation", "external_id", "sequence", "forward_thread", "graph_node", "device_type", "device"}
)
"""Columns that count or name and are not added up: 32 bits do for most traces (`narrowed`)."""
_TRIM_BYTES: Final = 16 * 2**20
"""So much of parts freed is worth handing back. Chosen: it takes some milliseconds."""

Places = NDArray[np.intp]
Stretches = list[tuple[int, int]]
"""Rows from the first to the last, not included, of each."""
InRange = Callable[[str, NDArray[Any]], NDArray[Any]]
"""Name and values of a column -> the same values, or others where some are impossible."""
Minor = Callable[[Places], Sequence[NDArray[Any]]]
"""Rows that are equal otherwise -> what decides between them, the least first, as `np.lexsort` has it."""


class _Segment(msgspec.Struct):
    """The rows of one table among the joined ones."""

    what: str
    first: int
    last: int


class Rows:
    """The rows of tables one behind the other, in parts; what gives the columns forgets the parts on the way."""

    def __init__(self, in_range: InRange, trim: Callable[[], object]) -> None:
        """`trim` is called after much was freed."""
        self._in_range = in_range
        self._trim = trim
        self._parts: list[tuple[int, Columns]] = []  # with how many rows each has
        self._segments: list[_Segment] = []
        self._whole: Columns = {}  # columns that are joined by now: their parts are gone
        self._kept: Places | None = None
        self._n_rows = 0
        self.places: Places | None = None
        """The place of each row of `in_time_order` among all that were added; None where each has kept its own.

        Of several tables: of one nobody asks, and where it comes in stretches they are not made."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def __len__(self) -> int:
        return self._n_rows

    def begin(self, what: str) -> None:
        """What is added from here on is another table, whose values are judged for themselves."""
        self._segments.append(_Segment(what, self._n_rows, self._n_rows))

    def add(self, columns: Columns) -> None:
        """Add a part, whose columns are taken out of it. After `leave_out_untrue` its rows are not judged."""
        n = len(next(iter(columns.values())))
        if self._kept is not None:
            self._kept = np.concatenate((self._kept, np.arange(self._n_rows, self._n_rows + n)))
        for name, column in self._whole.items():
            self._whole[name] = np.concatenate((column, columns.pop(name)))
        self._parts.append((n, columns))
        self._n_rows += n
        self._segments[-1].last = self._n_rows

    def has(self, name: str) -> bool:
        """Whether any row has a column."""
        return name in self._whole or any(name in part for _, part in self._parts)

    def column(self, name: str) -> NDArray[Any]:
        """A column of all rows as they were added."""
        if name not in self._whole:
            self._whole[name] = self._joined(name)
        return self._whole[name]

    def as_added(self) -> Columns:
        """All columns of all rows as they were added."""
        columns = {name: self.column(name) for name in self._names()}
        self._forget()
        return columns

    def leave_out_untrue(self, warnings: list[TraceWarning]) -> None:
        """Leave out rows whose times cannot be true: a zero timestamp among real ones, a duration that wrapped."""
        start, end = self.column("start_ns"), self._end()
        out = [np.empty(0, np.intp)]
        for one in self._segments:
            rows = slice(one.first, one.last)
            if _may_be_untrue(start[rows], end[rows]):
                out.append(np.flatnonzero(_untrue(start[rows], end[rows], warnings, one.what)) + one.first)
        left_out = np.concatenate(out)
        if left_out.size:
            self._kept = np.delete(np.arange(self._n_rows), left_out)

    def in_time_order(self, minor: Minor | None = None) -> Columns:
        """The columns by start, and where that is the same by `minor`: without it the longer row comes first."""
        names = self._names()
        order, start = self._ordered(minor or (lambda rows: (-self._end()[rows],)))
        self.places = order if isinstance(order, np.ndarray) else None
        in_order = self._in_order(order)
        columns: Columns = {}
        n_freed = 0
        for name in names:
            column = start if name == "start_ns" else in_order(name)
            self._whole.pop(name, None)
            n_freed += column.nbytes
            columns[name] = narrowed(column) if name in _NUMBERS else column
            del column
            if n_freed > _TRIM_BYTES:
                self._trim()
                n_freed = 0
        self._forget()
        return columns

    def _ordered(self, minor: Minor) -> tuple[Stretches | Places | None, Whole]:
        """The rows in order, None where they stand in it, and their starts."""
        start, kept = self.column("start_ns"), self._kept
        if kept is not None:
            order, start = sort_order(start[kept], lambda rows: minor(kept[rows]))
            return kept if order is None else kept[order], start
        stretches = _stretches(start) if len(self._segments) == 1 else None
        if stretches is not None and len(stretches) > 1:
            ordered = joined([start[first:last] for first, last in stretches])
            if _moved(ordered, partial(_rows_at, stretches), minor) is None:
                return stretches, ordered
        return sort_order(start, minor)

    def _in_order(self, order: Stretches | Places | None) -> Callable[[str], NDArray[Any]]:
        """What gives a column in order: in stretches of the parts, or row by row."""
        if order is None:
            return self.column
        if isinstance(order, list):
            return partial(self._stretched, order, list(_cut(order, [n for n, _ in self._parts])))
        return partial(self._picked, order, _Scratch())

    def _picked(self, places: Places, scratch: _Scratch, name: str) -> NDArray[Any]:
        return picked(self._whole[name] if name in self._whole else self._joined(name, scratch), places)

    def _stretched(self, stretches: Stretches, cuts: list[tuple[int, int, int]], name: str) -> NDArray[Any]:
        """A column of one table in stretches of its rows, or of its parts."""
        if name in self._whole:
            return joined([self._whole[name][first:last] for first, last in stretches])
        told = self._told(name)
        return self._judged(name, joined([told[part][first:last] for part, first, last in cuts]))

    def _end(self) -> I64:
        return self.column("end_ns" if self.has("end_ns") else "start_ns")

    def _names(self) -> list[str]:
        return list(dict.fromkeys((*self._whole, *(name for _, part in self._parts for name in part))))

    def _forget(self) -> None:
        self._parts.clear()
        self._whole.clear()

    def _joined(self, name: str, scratch: _Scratch | None = None) -> NDArray[Any]:
        """A column of all parts, -1 for the rows of one that lacks it; in `scratch` if its rows will be picked."""
        columns = self._told(name)
        if len(columns) == 1 and columns[0].base is None:
            whole = columns[0]
        else:
            whole = joined(columns) if scratch is None else scratch.joined(columns)
        return self._judged(name, whole)

    def _told(self, name: str) -> list[NDArray[Any]]:
        """A column of each part, which is taken out of it."""
        told = [(n, part.pop(name, None)) for n, part in self._parts]
        kind = next(column.dtype for _, column in told if column is not None)
        return [untold(n, kind) if column is None else column for n, column in told]

    def _judged(self, name: str, whole: NDArray[Any]) -> NDArray[Any]:
        """A column without what is impossible, each table's for itself."""
        for one in self._segments if name in RANGES else ():
            part = whole[one.first : one.last]
            possible = self._in_range(name, part)
            if possible is not part:
                whole = whole if whole.flags.writeable and whole.base is None else whole.copy()
                whole[one.first : one.last] = possible
        return whole


class _Scratch:
    """Memory for one joined column after the other."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def joined(self, columns: list[NDArray[Any]]) -> NDArray[Any]:
        """The columns one behind the other, until the next call."""
        first = columns[0]
        if is_constant(first) or any(
            each.dtype != first.dtype or each.shape[1:] != first.shape[1:] for each in columns
        ):
            return joined(columns)
        shape = (sum(map(len, columns)), *first.shape[1:])
        n_bytes = prod(shape) * first.itemsize
        if self._memory.size < n_bytes:
            self._memory = np.empty(0, np.uint8)  # before there is more of it
            self._memory = np.empty(n_bytes, np.uint8)
        whole: NDArray[Any] = self._memory[:n_bytes].view(first.dtype).reshape(shape)
        return np.concatenate(columns, out=whole)


def _cut(stretches: Stretches, sizes: list[int]) -> Iterator[tuple[int, int, int]]:
    """Stretches of rows as stretches of the parts, one behind the other, that these rows are in: part, first, last."""
    begins = [0, *accumulate(sizes)]
    for first, last in stretches:
        for part in range(bisect_right(begins, first) - 1, bisect_left(begins, last)):
            low, high = max(first, begins[part]), min(last, begins[part + 1])
            if low < high:
                yield part, low - begins[part], high - begins[part]


def untold(n: int, kind: Any) -> NDArray[Any]:
    """A column that a file does not tell, shape (n,): -1, in the room of one value."""
    return np.broadcast_to(np.array(NO_ROW, kind), (n,))


def sort_order(values: Whole, minor: Minor) -> tuple[Places | None, Whole]:
    """The order of values (None where they stand in it), the same ones by `minor`, stable; and the values in order."""
    stretches = _stretches(values)
    order: Places | None = None
    if stretches is None:
        order = np.argsort(values, kind="stable")
    elif len(stretches) > 1:
        order = np.concatenate([np.arange(*each) for each in stretches])
    ordered = values if order is None else values[order]
    moved = _moved(ordered, (lambda at: at) if order is None else order.__getitem__, minor)
    if moved is not None:
        order = np.arange(ordered.size) if order is None else order
        order[moved[0]] = moved[1]
    return order, ordered


def _stretches(values: Whole) -> Stretches | None:
    """The stretches of rows that follow each other in a stable order of values; None for too many of them.

    As a file has them, each thread's rows in order, a few long ones: they are merged, and nothing is sorted.
    """
    descents = np.flatnonzero(values[1:] < values[:-1]) + 1
    most = values.size // _LEAST_STRETCH + 1
    if descents.size >= most:
        return None
    edges = [0, *descents.tolist(), values.size]
    ahead = [(int(values[first]), first, last) for first, last in pairwise(edges) if first < last]
    heapify(ahead)
    found: Stretches = []
    while ahead and len(found) <= most:
        _, first, last = heappop(ahead)
        stop = last
        if ahead:  # until the next stretch begins; of equal values those that stand first
            value, other, _ = ahead[0]
            stop = first + int(np.searchsorted(values[first:last], value, "right" if first < other else "left"))
        found.append((first, stop))
        if stop < last:
            heappush(ahead, (int(values[stop]), stop, last))
    return found if not ahead else None


def _rows_at(stretches: Stretches, at: Places) -> Places:
    """The rows at these places of the order that stretches make."""
    first, last = np.array(stretches).T
    ends = np.cumsum(last - first)
    which = np.searchsorted(ends, at, "right")
    rows: Places = last[which] - (ends[which] - at)
    return rows


def _moved(ordered: Whole, rows_at: Callable[[Places], Places], minor: Minor) -> tuple[Places, Places] | None:
    """The places of equal values, and the rows that belong there by `minor`; None where they stand there."""
    same = ordered[1:] == ordered[:-1]
    if not same.any():
        return None
    is_tied = np.zeros(ordered.size, np.bool_)
    is_tied[1:] = same
    is_tied[:-1] |= same
    tied = np.flatnonzero(is_tied)
    rows = rows_at(tied)
    by = np.lexsort((*minor(rows), ordered[tied]))
    return None if bool((by[1:] >= by[:-1]).all()) else (tied, rows[by])


def longest_ns(start: I64, end: I64) -> int:
    """The longest duration, block by block: of a large trace a column of durations is megabytes; at least one row."""
    return max(
        int((end[first : first + _BLOCK] - start[first : first + _BLOCK]).max())
        for first in range(0, start.size, _BLOCK)
    )


def _may_be_untrue(start: I64, end: I64) -> bool:
    return start.size > 0 and (longest_ns(start, end) > LONGEST_PLAUSIBLE_NS or not start.all())


def _untrue(start: I64, end: I64, warnings: list[TraceWarning], what: str) -> NDArray[np.bool_]:
    too_long = end - start > LONGEST_PLAUSIBLE_NS
    later = start[start > 0]  # in a trace that begins at zero the next row follows soon
    at_zero = (start == 0) & bool(later.size and int(later.min()) > _LATE_NS)
    _warn(warnings, too_long, "dur.overflow", f"{what} with a duration of more than 11 days (an overflow) left out")
    _warn(warnings, at_zero, "ts.zero", f"{what} with a zero timestamp left out")
    bad: NDArray[np.bool_] = too_long | at_zero
    return bad


def _warn(warnings: list[TraceWarning], rows: NDArray[np.bool_], warning_id: str, message: str) -> None:
    if count := int(rows.sum()):
        warnings.append(TraceWarning(id=warning_id, message=f"{count:,} {message}", count=count))
