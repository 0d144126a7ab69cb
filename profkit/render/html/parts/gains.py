"""Gains as a picture: a row for each change, what was predicted as a band, what was measured as an interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from profkit.model.documents.trial import Outcome, Trial
from profkit.render.words import trial as words

_WIDTH: Final = 640
_LEFT: Final = 120
_RIGHT: Final = 20
_ROW: Final = 34
_TOP: Final = 34
_LEAST: Final = -1.0
"""Chosen: a step that takes twice as long; an interval that goes below ends there."""


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """One change: positions in the picture, and what it says; `band` is x and width of what was predicted."""

    label: str
    said: str
    kind: Outcome
    y: int
    x: str
    low: str
    high: str
    band: tuple[str, str] | None


class Gains(msgspec.Struct, frozen=True, kw_only=True):
    """The picture; `ticks` are positions with their labels."""

    width: int
    height: int
    top: int
    bottom: int
    left: int
    marks: tuple[Mark, ...]
    ticks: tuple[tuple[str, str], ...]


def gains(trials: Sequence[Trial]) -> Gains | None:
    """The picture of the changes that were measured; None without any."""
    shown = [(one, one.gain, one.interval) for one in trials if one.gain is not None and one.interval is not None]
    if not shown:
        return None
    low = max(min(-0.1, *(interval[0] for _, _, interval in shown)), _LEAST)

    def at(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (min(max(value, low), 1.0) - low) / (1.0 - low)

    marks = []
    for place, (one, gain, interval) in enumerate(shown):
        band = None
        if one.predicted is not None:
            begin, end = map(at, one.predicted)
            band = f"{begin:.1f}", f"{max(end - begin, 2):.1f}"
        told = "nothing" if one.predicted is None else words.interval(one.predicted)
        marks.append(
            Mark(
                label=one.change,
                said=f"{one.change}: {words.saved(gain)} ({words.interval(interval)}); {told} predicted",
                kind=one.outcome,
                y=_TOP + _ROW * place + _ROW // 2,
                x=f"{at(gain):.1f}",
                low=f"{at(interval[0]):.1f}",
                high=f"{at(interval[1]):.1f}",
                band=band,
            )
        )
    bottom = _TOP + _ROW * len(shown)
    ticks = tuple((f"{at(value):.1f}", f"{value:.0%}") for value in (-0.5, 0.0, 0.25, 0.5, 0.75, 1.0) if value >= low)
    return Gains(width=_WIDTH, height=bottom + 34, top=_TOP, bottom=bottom, left=_LEFT, marks=tuple(marks), ticks=ticks)
