"""Array algebra on intervals: numpy in, numpy out, int64 nanoseconds, half-open `[start, end)`.

The bottom of the house: no domain words, no tables, no loops over rows. A *set* below is a pair of arrays
`(start, end)` that is sorted, disjoint, non-touching and without empty intervals; `union` makes one of anything.
Every function is tested against a boolean-mask oracle. Of columns from `algebra.LEAST` rows on the
compiled library does some of it, to the same bits; numpy's way stands below, and is all there is without a compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.native import algebra

I64 = NDArray[np.int64]
Whole = NDArray[np.integer[Any]]
"""Numbers that are compared, sorted and looked up, and never added or multiplied: their width says nothing."""
Bool = NDArray[np.bool_]
IntervalArrays = tuple[I64, I64]

MANY: Final = 32
"""Groups (threads, streams) beyond which they are worked on together, not one after the other. Chosen."""
_FEW: Final = 2**16
"""Values this close together are counted whatever their number. Chosen: counters of half a megabyte."""
_NARROW: Final = np.iinfo(np.int32)
_EMPTY = np.empty(0, np.int64)
_EMPTY.flags.writeable = False


def empty() -> IntervalArrays:
    """The empty set."""
    return _EMPTY, _EMPTY


def constant(value: int, n: int) -> I64:
    """A read-only column of one value, which takes the room of that value."""
    column: I64 = np.broadcast_to(np.int64(value), (n,))
    return column


def is_constant(column: NDArray[Any]) -> bool:
    """Whether `constant` made this column, or `picked` from one; a column that merely holds one value is none."""
    return column.ndim == 1 and column.strides == (0,)


def picked(column: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """The chosen rows (positions or a mask) of a column; of a constant one a constant one."""
    if not is_constant(column) or column.size == 0:
        # of positions `take` moves rows of several values in one piece
        chosen: NDArray[Any] = column[rows] if rows.dtype == np.bool_ else column.take(rows, axis=0)
        return chosen
    n = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else rows.size
    return np.broadcast_to(column[:1].reshape(()), (n,))


def narrowed(column: Whole) -> Whole:
    """The same numbers in 32 bits where all of them fit, else the column itself."""
    if column.itemsize <= _NARROW.bits // 8 or is_constant(column) or column.size == 0:
        return column
    fits = int(column.min()) >= _NARROW.min and int(column.max()) <= _NARROW.max
    return column.astype(np.int32) if fits else column


def of_rows(column: NDArray[Any], rows: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """The rows of a column at positions in order, each once: the column itself where these are all of it."""
    return column if rows.size == len(column) else picked(column, rows)


def looked_up(column: NDArray[Any], rows: NDArray[np.integer[Any]], none: int = -1) -> NDArray[Any]:
    """The rows of a column, `none` for row -1."""
    if column.size == 0:
        return np.full(rows.shape, none, column.dtype)
    values: NDArray[Any] = np.where(rows >= 0, column[np.maximum(rows, 0)], column.dtype.type(none))
    return values


def joined(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Columns one after the other; where all are constant with one value, a constant one."""
    first = columns[0]
    if all(is_constant(column) and column.size and column[0] == first[0] for column in columns):
        return np.broadcast_to(first[:1].reshape(()), (sum(column.size for column in columns),))
    return np.concatenate(columns)


def union(start: I64, end: I64) -> IntervalArrays:
    """The set covered by any of the intervals, in any order; touching ones merge, empty ones vanish."""
    if start.size >= algebra.LEAST and (made := algebra.union(start, end)) is not None:
        return made
    keep = end > start
    if not keep.all():
        start, end = start[keep], end[keep]
    if start.size == 0:
        return empty()
    if not is_sorted(start):
        order = order_of(start)
        return union(start[order], end[order])
    reach = np.maximum.accumulate(end)
    is_new = np.empty(start.size, np.bool_)
    is_new[0] = True
    np.greater(start[1:], reach[:-1], out=is_new[1:])
    is_last = np.append(is_new[1:], True)
    return start[is_new], reach[is_last]


def is_sorted(values: NDArray[np.generic]) -> bool:
    """Whether values never decrease."""
    return bool(values.size < 2 or (values[1:] >= values[:-1]).all())  # type: ignore[operator]


def order_of(values: Whole) -> NDArray[np.intp]:
    """The rows in the order of their values, equal ones as they stand: a stable `np.argsort`."""
    if values.size >= algebra.LEAST and (rows := algebra.ordered(values)) is not None:
        return rows
    return np.argsort(values, kind="stable")


def next_equal(values: NDArray[np.integer[Any]]) -> I64:
    """Per value the place of the next one behind it that is equal, n for none."""
    wide, n = values.astype(np.int64, copy=False), values.size
    if n >= algebra.LEAST and (places := algebra.next_equal(wide)) is not None:
        return places
    order = order_of(wide)
    following = np.full(n, n, np.int64)
    again = wide[order[1:]] == wide[order[:-1]]
    following[order[:-1][again]] = order[1:][again]
    return following


def is_member(values: Whole, ordered: Whole) -> Bool:
    """Tell, for each value, whether it occurs in `ordered` (sorted); unlike `np.isin`, without a hash table of it."""
    if ordered.size == 0:
        return np.zeros(values.size, np.bool_)
    found: Bool = ordered[np.minimum(place_among(ordered, values), ordered.size - 1)] == values
    return found


def is_one_of(values: NDArray[np.integer[Any]], wanted: Iterable[int]) -> Bool:
    """Tell, for each value, whether it is one of a few."""
    wanted = tuple(wanted)
    if len(wanted) > MANY:
        return np.isin(values, wanted)
    found = np.zeros(values.shape, np.bool_)
    for value in wanted:
        found |= values == value
    return found


def distinct_codes(codes: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
    """The codes that occur, in order; codes are small integers from 0 on, negative ones stand for none."""
    if codes.size == 0:
        return np.empty(0, np.intp)
    if codes.size >= algebra.LEAST and (seen := algebra.seen(codes, int(codes.max()) + 1)) is not None:
        return np.flatnonzero(seen)
    return np.flatnonzero(np.bincount(codes[codes >= 0] if int(codes.min()) < 0 else codes))


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The values that occur, in order, [k]; as `np.unique`, which loads numpy.ma for it."""
    if values.size >= _FEW and values.dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        if low == high:
            return values.reshape(-1)[:1].copy()
        if high - low < _FEW:  # counted: ten times as fast as sorted
            return (np.flatnonzero(np.bincount(values.reshape(-1) - low)) + low).astype(values.dtype)
    ordered = np.sort(values, axis=None)
    is_first = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def coded(values: Whole) -> tuple[Whole, NDArray[np.intp]]:
    """The values that occur, in order, [k], and the place of each value among them, [n]: as `np.unique` with inverse.

    Where they lie close together, as numbers of streams do, they are counted and not sorted.
    """
    low = int(values.min(initial=0))
    width = int(values.max(initial=0)) - low + 1
    if width > max(values.size, _FEW):
        found, place = np.unique(values, return_inverse=True)
        return found, place.reshape(-1)
    from_low = values - low
    found = np.flatnonzero(np.bincount(from_low, minlength=width))
    place_of = np.zeros(width, np.intp)
    place_of[found] = np.arange(found.size)
    return found + low, place_of[from_low]


def median(values: NDArray[np.integer[Any]]) -> int:
    """The middle value (of an even number the mean of two, rounded down); `np.median` loads numpy.ma, 9 ms."""
    middle = values.size // 2
    if values.size % 2:
        return int(np.partition(values, middle)[middle])
    low, high = np.partition(values, (middle - 1, middle))[middle - 1 : middle + 1]
    return (int(low) + int(high)) // 2


def middle(values: NDArray[Any]) -> float:
    """The middle value (of an even number the mean of two) of at least one: as `np.median`, without numpy.ma."""
    ordered = np.sort(values)
    return (float(ordered[(values.size - 1) // 2]) + float(ordered[values.size // 2])) / 2


def quantile(values: NDArray[np.integer[Any]], fraction: float) -> float:
    """The value below which `fraction` of at least one value lies, linear between two: as `np.quantile`."""
    place = (values.size - 1) * fraction
    below = int(place)
    above = min(below + 1, values.size - 1)
    ordered = np.partition(values, (below, above))
    low, high = float(ordered[below]), float(ordered[above])
    part = place - below
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


def rows_by_value(values: NDArray[Any]) -> Iterator[tuple[Any, NDArray[np.intp]]]:
    """Each value that occurs, in order, with its rows, in theirs: one sort, however many values there are."""
    if values.size == 0:
        return
    order = order_of(values)
    ordered = values[order]
    edges = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), ordered.size]
    for first, last in pairwise(edges):
        yield ordered[first], order[first:last]


_MOST: Final = 2**62


def laid_out(groups: Sequence[NDArray[Any]], times: Sequence[I64]) -> list[I64] | None:
    """Times of many groups on one line: each group's own stretch, in the order of groups, with room between.

    `groups[i]` are small integers from 0 on, the groups of `times[i]`; all times keep their distance within a group.
    None where the line would leave int64.
    """
    present = [each for each in times if each.size]
    low = min((int(each.min()) for each in present), default=0)
    stride = max((int(each.max()) for each in present), default=0) - low + 2
    n_groups = max((int(group.max(initial=0)) for group in groups), default=0) + 1
    if stride * n_groups > _MOST:
        return None
    return [group.astype(np.int64) * stride + (each - low) for group, each in zip(groups, times, strict=True)]


def last_begun(begun: Mapping[int, tuple[I64, I64]], group: NDArray[np.integer[Any]], at: I64) -> I64:
    """For each (group, time): what goes with the last of its group's times up to then, -1 for none.

    `begun` are the times of each group, in order, and what goes with each.
    """
    out = np.full(at.size, -1, np.int64)
    for code in distinct_codes(group).tolist():
        if code in begun:
            times, values = begun[code]
            mine = np.flatnonzero(group == code)
            out[mine] = looked_up(values, place_among(times, at[mine], after=True) - 1)
    return out


def measure(start: I64, end: I64) -> int:
    """The sum of lengths (the measure, if the intervals are a set)."""
    return int((end - start).sum())


def clip(start: I64, end: I64, low: int, high: int) -> IntervalArrays:
    """The intervals cut to `[low, high)`, without those that fall outside; order is kept."""
    if start.size >= algebra.LEAST and (made := algebra.clipped(start, end, low, high)) is not None:
        return made
    start, end = np.maximum(start, low), np.minimum(end, high)
    keep = end > start
    return start[keep], end[keep]


def complement(a: IntervalArrays, low: int, high: int) -> IntervalArrays:
    """`[low, high)` without the set `a`."""
    if a[0].size >= algebra.LEAST:
        whole = np.array([low], np.int64), np.array([high], np.int64)
        if (made := algebra.without(whole, a)) is not None:
            return made
    start, end = clip(*a, low, high)
    gap_start = np.concatenate(([low], end))
    gap_end = np.concatenate((start, [high]))
    keep = gap_end > gap_start
    return gap_start[keep].astype(np.int64, copy=False), gap_end[keep].astype(np.int64, copy=False)


def is_large(a: IntervalArrays, b: IntervalArrays) -> bool:
    """Whether two sets are worth a call of the compiled library."""
    return a[0].size + b[0].size >= algebra.LEAST


def either(a: IntervalArrays, b: IntervalArrays) -> IntervalArrays:
    """The set in one of two sets, or in both."""
    if is_large(a, b) and (made := algebra.either(a, b)) is not None:
        return made
    return union(np.concatenate((a[0], b[0])), np.concatenate((a[1], b[1])))


def intersect(a: IntervalArrays, b: IntervalArrays) -> IntervalArrays:
    """The set in both sets."""
    if a[0].size == 0 or b[0].size == 0:
        return empty()
    if is_large(a, b) and (made := algebra.both(a, b)) is not None:
        return made
    row_a, row_b = overlapping_pairs(a, b)
    start = np.maximum(a[0][row_a], b[0][row_b])
    end = np.minimum(a[1][row_a], b[1][row_b])
    return start, end


def subtract(a: IntervalArrays, b: IntervalArrays) -> IntervalArrays:
    """The part of set `a` outside set `b`."""
    if a[0].size == 0 or b[0].size == 0:
        return a
    if is_large(a, b) and (made := algebra.without(a, b)) is not None:
        return made
    low, high = int(a[0][0]), int(a[1][-1])
    return intersect(a, complement(b, low, high))


def overlapping_pairs(a: IntervalArrays, b: IntervalArrays) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """All pairs of rows (of set `a`, of set `b`) that share time, ordered by `a`, then `b`."""
    first = place_among(b[1], a[0], after=True)  # first of b that ends after a starts
    stop = place_among(b[0], a[1])  # first of b that starts at or after a's end
    counts = np.subtract(stop, first, out=stop)
    if counts.size == 0 or int(counts.max()) <= 1:  # as a rule; of a large trace each array is 10 MB
        row_a = np.flatnonzero(counts > 0)
        return row_a, first[row_a]
    counts = np.maximum(counts, 0)
    row_a = np.repeat(np.arange(a[0].size), counts)
    offset = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    return row_a, np.repeat(first, counts) + offset


def place_among(ordered: Whole, values: Whole, *, after: bool = False) -> NDArray[np.intp]:
    """Where values belong among ordered ones, before or `after` equal ones: `np.searchsorted`, quicker in order."""
    if values.size >= algebra.LEAST and (found := algebra.place_among(ordered, values, after=after)) is not None:
        return found
    return np.searchsorted(ordered, values, "right" if after else "left")


def coverage(a: IntervalArrays, at: I64) -> I64:
    """For each time: how much of set `a` lies before it (ns)."""
    start, end = a
    if start.size == 0:
        return np.zeros(np.shape(at), np.int64)
    if at.size >= algebra.LEAST and (found := algebra.covered(a, None, at)) is not None:
        return found
    total = np.concatenate(([0], np.cumsum(end - start)))
    row = np.searchsorted(start, at, "right")
    beyond = np.maximum(end[np.maximum(row - 1, 0)] - at, 0)
    beyond[row == 0] = 0
    covered: I64 = total[row] - beyond
    return covered


def covered_ns(a: IntervalArrays, start: I64, end: I64) -> I64:
    """For each interval (they may overlap): how much of it set `a` covers (ns)."""
    start, end = np.asarray(start), np.asarray(end)
    if a[0].size and end.size == start.size >= algebra.LEAST:
        found = algebra.covered(a, start, end)
        if found is not None:
            return found
    return coverage(a, end) - coverage(a, start)


def contains(a: IntervalArrays, at: I64) -> Bool:
    """Tell, for each time, whether it lies inside set `a`."""
    if a[0].size == 0:
        return np.zeros(np.shape(at), np.bool_)
    if at.size >= algebra.LEAST and (found := algebra.contained(a, at)) is not None:
        return found
    row = place_among(a[0], at, after=True)
    inside: Bool = (row > 0) & (at < a[1][np.maximum(row - 1, 0)])
    return inside
