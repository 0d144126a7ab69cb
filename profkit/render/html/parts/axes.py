"""The axes of charts: places with words, and round values to put there."""

from __future__ import annotations

import math

import msgspec


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A place of an axis, as SVG takes it, with its words."""

    at: str
    said: str


def tick(at: float, said: str) -> Tick:
    """The tick at a place."""
    return Tick(at=f"{at:.1f}", said=said)


def round_values(highest: float) -> list[float]:
    """About five round values from 0 up to `highest`, which is above 0."""
    raw = highest / 5
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * factor for factor in (1, 2, 5, 10) if scale * factor >= raw)
    return [step * place for place in range(int(highest / step) + 1)]
