"""Shares with their intervals, and the middle of a list."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

_Z: Final = 1.959963984540054
"""The normal distribution's quantile of 97.5 %."""


class Share(msgspec.Struct, frozen=True):
    """`k` of `n`; the interval is Wilson's, of 95 %."""

    k: int
    n: int

    @property
    def value(self) -> float | None:
        """The share, 0-1; None of none."""
        return self.k / self.n if self.n else None

    @property
    def interval(self) -> tuple[float, float]:
        """Ends of the interval, 0-1: all of it where nothing was counted."""
        return wilson(self.k, self.n)


def share_of(flags: Sequence[bool]) -> Share:
    """The share of flags that are set."""
    return Share(sum(flags), len(flags))


def wilson(k: int, n: int) -> tuple[float, float]:
    """Wilson's interval of 95 % for a share of `k` in `n`."""
    if n == 0:
        return 0.0, 1.0
    share, square = k / n, _Z * _Z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = _Z * math.sqrt(share * (1 - share) / n + square / (4 * n * n)) / (1 + square / n)
    return (0.0 if k == 0 else middle - half), (1.0 if k == n else middle + half)


def quantile(values: Sequence[float], share: float) -> float | None:
    """The quantile of values, between neighbours by interpolation; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
