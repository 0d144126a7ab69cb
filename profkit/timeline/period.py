"""The period of a sequence of kernels: a step, or a layer that repeats."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import distinct, rows_by_value

MIN_PERIODS: Final = 3
MIN_MATCH: Final = 0.9
"""Markers and period agreed on five public traces at a match of 1.0."""
MOST_ROWS: Final = 200_000
"""Enough for any period that repeats three times in a profile."""
_AS_GOOD: Final = 0.002
"""By how much a shorter period may match less than the best one. Chosen: of a model of 48 layers the layer matches in
all but a hundredth, which is where one pass ends and the next begins."""
_MAX_CANDIDATES: Final = 64


def repeats(codes: NDArray[np.int32]) -> bool:
    """Whether a sequence is one value again and again, or has a period."""
    first = codes[:MOST_ROWS]
    return first.size >= MIN_PERIODS and (bool((first == first[0]).all()) or best_period(first) > 0)


def best_period(codes: NDArray[np.int32]) -> int:
    """The smallest period with which the sequence repeats at least three times, 0 if there is none."""
    distances: dict[int, int] = {}
    for _, places in rows_by_value(codes):
        if MIN_PERIODS <= places.size <= 4096:
            for distance in distinct(np.diff(places)):
                distances[int(distance)] = distances.get(int(distance), 0) + 1
        if len(distances) > 50_000:
            break
    limit = codes.size // MIN_PERIODS
    likely = sorted((d for d in distances if 1 < d <= limit), key=lambda d: -distances[d])[:_MAX_CANDIDATES]
    matches = {period: float((codes[period:] == codes[:-period]).mean()) for period in likely}
    if not matches or max(matches.values()) < MIN_MATCH:
        return 0
    best = max(matches.values())
    return min(period for period, match in matches.items() if match >= best - _AS_GOOD)
