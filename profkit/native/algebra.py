"""Times of large traces, compiled: sets, places, nesting and clocks, numpy in, numpy out.

Each function gives what its caller's numpy gives, to the bit, or None: where the library is not in use, where the
columns are not what it takes (int64, int32 codes), or are not in the order that it asks for. Columns of fewer than
`LEAST` rows are the caller's: numpy is as fast there. Python's lock is free meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import CDLL, c_void_p
from functools import cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.native.library import NotUsedError, library

I64 = NDArray[np.int64]
Pair = tuple[I64, I64]

LEAST: Final = 2**14
"""Rows from which on a call is worth it. Chosen: below, a pass of numpy takes some 10 us, as a call does."""
_MOST_CODES: Final = 2**24


@cache
def _used() -> CDLL | None:
    try:
        return library()
    except NotUsedError:
        return None


def is_in_use() -> bool:
    """Whether there is a library to ask."""
    return _used() is not None


def _given(dtype: Any, *columns: NDArray[Any]) -> tuple[NDArray[Any], ...] | None:
    """The columns as C reads them; None where one is of another kind."""
    if any(column.dtype != dtype or column.ndim != 1 for column in columns):
        return None
    return tuple(np.ascontiguousarray(column) for column in columns)


def _wide(column: NDArray[Any]) -> NDArray[Any]:
    """A column of int32 as int64, any other as it is."""
    return column.astype(np.int64) if column.dtype == np.int32 else column


def _at(column: NDArray[Any]) -> int:
    address: int = column.ctypes.data
    return address


def _pair(most: int, fill: Callable[[int, int], int]) -> Pair | None:
    """Two columns of at most so many rows, filled from where they begin; None where the library refuses."""
    to, until = np.empty(most, np.int64), np.empty(most, np.int64)
    n = fill(_at(to), _at(until))
    if n < 0:
        return None
    for column in (to, until):
        column.resize(n, refcheck=False)
    return to, until


def union(start: I64, end: I64) -> Pair | None:
    """`arrays.union` of intervals in order of their starts."""
    used, given = _used(), _given(np.int64, start, end)
    if used is None or given is None:
        return None
    return _pair(start.size, partial(used.profkit_union, *map(_at, given), start.size))


def clipped(start: I64, end: I64, low: int, high: int) -> Pair | None:
    """`arrays.clip`."""
    used, given = _used(), _given(np.int64, start, end)
    if used is None or given is None:
        return None
    return _pair(start.size, partial(used.profkit_clipped, *map(_at, given), start.size, low, high))


def either(a: Pair, b: Pair) -> Pair | None:
    """The union of two sets."""
    return _of_two("profkit_either", a, b)


def both(a: Pair, b: Pair) -> Pair | None:
    """`arrays.intersect`."""
    return _of_two("profkit_both", a, b)


def without(a: Pair, b: Pair) -> Pair | None:
    """`arrays.subtract`."""
    return _of_two("profkit_without", a, b)


def _of_two(name: str, a: Pair, b: Pair) -> Pair | None:
    used, given = _used(), _given(np.int64, *a, *b)
    if used is None or given is None:
        return None
    n_a, n_b = a[0].size, b[0].size
    from_a, until_a, from_b, until_b = map(_at, given)
    return _pair(n_a + n_b, partial(getattr(used, name), from_a, until_a, n_a, from_b, until_b, n_b))


def place_among(ordered: NDArray[Any], values: NDArray[Any], *, after: bool) -> I64 | None:
    """`np.searchsorted` of times, or of narrower whole numbers, among ordered ones, "right" or "left"."""
    used, given = _used(), _given(np.int64, *map(_wide, (ordered, values)))
    if used is None or given is None:
        return None
    found = np.empty(values.size, np.int64)
    used.profkit_places(_at(given[0]), ordered.size, _at(given[1]), values.size, after, _at(found))
    return found


def ordered(values: NDArray[Any]) -> I64 | None:
    """`np.argsort`, stable, of what does not nearly stand in order."""
    used, given = _used(), _given(np.int64, _wide(values))
    if used is None or given is None:
        return None
    row = np.empty(values.size, np.int64)
    return row if used.profkit_ordered(_at(given[0]), values.size, _at(row)) >= 0 else None


def next_equal(values: I64) -> I64 | None:
    """`arrays.next_equal`."""
    used, given = _used(), _given(np.int64, values)
    if used is None or given is None:
        return None
    place = np.empty(values.size, np.int64)
    return place if used.profkit_next_equal(_at(given[0]), values.size, _at(place)) >= 0 else None


def contained(a: Pair, at: I64) -> NDArray[np.bool_] | None:
    """`arrays.contains`."""
    used, given = _used(), _given(np.int64, *a, at)
    if used is None or given is None:
        return None
    inside = np.empty(at.size, np.bool_)
    start, end, when = map(_at, given)
    used.profkit_contained(start, end, a[0].size, when, at.size, _at(inside))
    return inside


def covered(a: Pair, start: I64 | None, end: I64) -> I64 | None:
    """How much of a set lies between two times, or before one."""
    used = _used()
    given = _given(np.int64, *a, end, *(() if start is None else (start,)))
    if used is None or given is None:
        return None
    length = np.empty(end.size, np.int64)
    from_a, until_a, until, *begin = map(_at, given)
    n = used.profkit_covered(from_a, until_a, a[0].size, begin[0] if begin else None, until, end.size, _at(length))
    return length if n >= 0 else None


def parent_rows(start: I64, end: I64, thread: NDArray[np.int32]) -> I64 | None:
    """`host.parent_rows` of ranges in order of start, the longer first."""
    return _of_ranges("profkit_parent_rows", (start, end), thread, np.int64)


def _of_ranges(name: str, ranges: Pair, thread: NDArray[np.int32], kind: Any) -> NDArray[Any] | None:
    """What a function tells of each range on its thread, in a column of this kind."""
    used, times, threads = _used(), _given(np.int64, *ranges), _given(np.int32, thread)
    if used is None or times is None or threads is None:
        return None
    told = np.empty(thread.size, kind)
    n = getattr(used, name)(*map(_at, times), _at(threads[0]), thread.size, _at(told))
    return told if n >= 0 else None


def enclosing(ranges: Pair, thread: NDArray[np.int32], at_thread: NDArray[np.int32], at: I64) -> I64 | None:
    """`host.enclosing_op` for ranges in order of start, the longer first."""
    used, times, threads = _used(), _given(np.int64, *ranges, at), _given(np.int32, thread, at_thread)
    if used is None or times is None or threads is None:
        return None
    row = np.empty(at.size, np.int64)
    start, end, when = map(_at, times)
    own, asked = map(_at, threads)
    n = used.profkit_enclosing(start, end, own, thread.size, asked, when, at.size, _at(row))
    return row if n >= 0 else None


def nested(
    start: I64, end: I64, thread: NDArray[np.int32]
) -> tuple[NDArray[np.int32], NDArray[np.bool_], NDArray[np.bool_]] | None:
    """`host.nesting`: rows by thread, and which of these are leaves and tops."""
    used, times, threads = _used(), _given(np.int64, start, end), _given(np.int32, thread)
    if used is None or times is None or threads is None:
        return None
    order = np.empty(start.size, np.int32)
    is_leaf, is_top = np.empty(start.size, np.bool_), np.empty(start.size, np.bool_)
    n = used.profkit_nested(*map(_at, times), _at(threads[0]), start.size, _at(order), _at(is_leaf), _at(is_top))
    return (order, is_leaf, is_top) if n >= 0 else None


def outermost(start: I64, end: I64, thread: NDArray[np.int32]) -> NDArray[np.bool_] | None:
    """`host.outermost` of ranges in order of start, the longer first: which of them are tops."""
    return _of_ranges("profkit_outermost", (start, end), thread, np.bool_)


def clocks(
    spent: I64,
    is_gone: NDArray[np.bool_],
    lane: NDArray[np.int8],
    times: tuple[NDArray[np.float64], Sequence[NDArray[np.float64]]],
    begun: Sequence[int],
) -> list[float] | None:
    """`replay.clocks.run`: `times` are `reach` and `behind` of each stream, the clocks begin at `begun`."""
    used, (reach, behind) = _used(), times
    whole, gone, lanes = _given(np.int64, spent), _given(np.bool_, is_gone), _given(np.int8, lane)
    real = _given(np.float64, reach, *behind)
    if used is None or whole is None or gone is None or lanes is None or real is None:
        return None
    pointers = (c_void_p * len(behind))(*map(_at, real[1:]))
    clock = np.array((0.0, *begun))
    columns = [_at(one[0]) for one in (whole, gone, lanes, real)]
    is_run = used.profkit_clocks(spent.size, len(behind), *columns, pointers, _at(clock))
    found: list[float] = clock.tolist()
    return found if is_run else None


def seen(codes: NDArray[np.integer[Any]], n_codes: int) -> NDArray[np.bool_] | None:
    """Which of the codes from 0 on occur, one at least of `n_codes`."""
    used, given = _used(), _given(np.int32, codes)
    if used is None or given is None or not 0 < n_codes <= _MOST_CODES:
        return None
    found = np.zeros(n_codes, np.bool_)
    return found if used.profkit_seen(_at(given[0]), codes.size, n_codes, _at(found)) else None
