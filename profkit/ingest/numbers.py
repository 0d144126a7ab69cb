"""The one place where what a file says becomes a number: whole ones and finite ones, each within a range.

A file can say anything: `"rank": 1e30`, 5,000 digits, NaN. What is computed from its numbers is int64 or float64, so
each has a range outside which it is no value of its kind, and counts as missing.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

LONGEST_PLAUSIBLE_NS: Final = 10**15
"""11.5 days: no range of a profile lasts longer; an unsigned difference that wrapped does (TraceLens issue 669)."""
MAX_RANKS: Final = 2**20
"""Ranks of a job, chosen: ten times the largest there has been (100,000 GPUs)."""
LATEST_NS: Final = 2**61
"""73 years: no time is further from the trace's origin, nor that from 1970. Then two ranks' times differ by less than
2^63 ns, whatever their files say."""
MOST_NS: Final = 2**62
"""What the durations of a table may add up to: twice that leaves int64."""
MOST_BYTES: Final = 2**50
"""A petabyte: no buffer is larger, and 8,000 of them add up within int64."""
MOST_STEPS: Final = 2**53
"""Numbers of steps, and counts of tokens: whole in float64 up to here."""
MOST_MEASURED: Final = 1e24
"""Of a kernel profile's metrics, in base units: squares and products of three stay in float64."""
_RANK_IN_NAME: Final = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)
_MOST_CHARACTERS: Final = 40
"""Of a number as text; Python refuses to read more than 4,300 digits, and takes long for each."""
_INT64: Final = np.iinfo(np.int64)


def whole(value: object, low: int = 0, high: int = int(_INT64.max)) -> int | None:
    """A whole number from `low` to `high`, also from text or a float (its whole part); None for anything else."""
    if isinstance(value, str | bytes) and len(value) > _MOST_CHARACTERS:
        return None
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):  # no number, NaN, an infinity
        return None
    return int(number) if low <= number <= high else None


def finite(value: object, low: float, high: float) -> float | None:
    """A number from `low` to `high` as float64; None for anything else, NaN and infinities among it."""
    if isinstance(value, str | bytes) and len(value) > _MOST_CHARACTERS:
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and low <= number <= high else None


_SIZE: Final = (-1, MOST_BYTES, -1)
RANGES: Final[dict[str, tuple[int, int, int]]] = {
    "n_bytes": (-MOST_BYTES, MOST_BYTES, -1),  # a free is negative
    "allocated_bytes": _SIZE,
    "reserved_bytes": _SIZE,
    "in_elements": _SIZE,
    "out_elements": _SIZE,
    "group_size": (-1, MAX_RANKS, -1),
    "peer": (-1, MAX_RANKS, -1),
    "seq": (-1, int(_INT64.max) // 4, -1),
}
"""Columns of which sums, products and differences are made: the least, the most, and what stands for "missing"."""


def within_range(name: str, column: NDArray[Any]) -> tuple[NDArray[Any], int]:
    """A column without what lies outside its range, and how many rows that was."""
    limits = RANGES.get(name)
    if limits is None or column.size == 0:
        return column, 0
    low, high, absent = limits
    if low <= int(column.min()) and int(column.max()) <= high:
        return column, 0
    outside = (column < low) | (column > high)
    return np.where(outside, absent, column).astype(column.dtype), int(outside.sum())


def rank_in_name(name: str) -> int:
    """The rank that a file name tells (`rank3_trace.json`, `x.rank-3.json`), -1 if none."""
    match = _RANK_IN_NAME.search(name)
    rank = whole(match[1], 0, MAX_RANKS - 1) if match else None
    return -1 if rank is None else rank
