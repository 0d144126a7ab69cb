"""Slopes as a picture: a row for each place, its slope as a point, its interval as a line, from hidden to critical."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from profkit.model.documents.probe import Reading, Slope
from profkit.render.words import probe as words

_WIDTH: Final = 640
_LEFT: Final = 110
_RIGHT: Final = 20
_ROW: Final = 34
_TOP: Final = 34
_LEAST, _MOST = -0.5, 1.5
"""What is always in the picture; an interval that goes beyond widens it."""
_WIDEST: Final = 3.0
"""Chosen: an interval beyond -3 or 4 tells no more than one that ends there."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One place: positions in the picture, and what it says."""

    label: str
    said: str
    kind: Reading
    y: int
    x: str
    low: str
    high: str


class Slopes(msgspec.Struct, frozen=True, kw_only=True):
    """The picture; `ticks` are positions with their labels."""

    width: int
    height: int
    top: int
    bottom: int
    left: int
    marks: tuple[Mark, ...]
    ticks: tuple[tuple[str, str], ...]


def slopes(given: Sequence[Slope]) -> Slopes | None:
    """The picture of these places; None without any."""
    if not given:
        return None
    low = max(min(_LEAST, *(one.interval[0] for one in given)), -_WIDEST)
    high = min(max(_MOST, *(one.interval[1] for one in given)), 1 + _WIDEST)

    def at(value: float) -> str:
        inside = min(max(value, low), high)
        return f"{_LEFT + (_WIDTH - _LEFT - _RIGHT) * (inside - low) / (high - low):.1f}"

    bottom = _TOP + _ROW * len(given)
    marks = tuple(
        Mark(
            label=one.place,
            said=f"{one.place}: {words.number(one.slope)} ({words.interval(one.interval)})",
            kind=one.reading,
            y=_TOP + _ROW * place + _ROW // 2,
            x=at(one.slope),
            low=at(one.interval[0]),
            high=at(one.interval[1]),
        )
        for place, one in enumerate(given)
    )
    ticks = tuple((at(value), f"{value:g}") for value in (0.0, 0.5, 1.0))
    return Slopes(width=_WIDTH, height=bottom + 34, top=_TOP, bottom=bottom, left=_LEFT, marks=marks, ticks=ticks)
