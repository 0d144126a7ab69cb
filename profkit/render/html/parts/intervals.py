"""Values with their intervals as a picture: a row each, the value as a point, its interval as a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

_WIDTH: Final = 640
_RIGHT: Final = 20
_ROW: Final = 34
_TOP: Final = 34


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What one row is of, and what it says; `predicted` is drawn as a band."""

    label: str
    said: str
    kind: str
    value: float
    interval: tuple[float, float]
    predicted: tuple[float, float] | None = None


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A row as it is drawn: positions in the picture; `band` is x and width of what was predicted."""

    label: str
    said: str
    kind: str
    y: int
    x: str
    low: str
    high: str
    band: tuple[str, str] | None


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The picture; `ticks` are positions with their labels."""

    width: int
    height: int
    top: int
    bottom: int
    left: int
    marks: tuple[Mark, ...]
    ticks: tuple[tuple[str, str], ...]


def picture(
    rows: Sequence[Measured], span: tuple[float, float], ticks: Mapping[float, str], *, left: int
) -> Picture | None:
    """The picture over `span`, beyond which nothing is drawn, with room for labels to the `left`; None of no rows."""
    if not rows:
        return None
    low, high = span

    def at(value: float) -> float:
        return left + (_WIDTH - left - _RIGHT) * (min(max(value, low), high) - low) / (high - low)

    def mark(place: int, one: Measured) -> Mark:
        begin, end = map(at, one.predicted or (low, low))
        return Mark(
            label=one.label,
            said=one.said,
            kind=one.kind,
            y=_TOP + _ROW * place + _ROW // 2,
            x=f"{at(one.value):.1f}",
            low=f"{at(one.interval[0]):.1f}",
            high=f"{at(one.interval[1]):.1f}",
            band=None if one.predicted is None else (f"{begin:.1f}", f"{max(end - begin, 2):.1f}"),
        )

    bottom = _TOP + _ROW * len(rows)
    return Picture(
        width=_WIDTH,
        height=bottom + 34,
        top=_TOP,
        bottom=bottom,
        left=left,
        marks=tuple(mark(place, one) for place, one in enumerate(rows)),
        ticks=tuple((f"{at(value):.1f}", said) for value, said in ticks.items() if low <= value <= high),
    )
