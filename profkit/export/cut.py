"""A window of a trace: what touches it stays whole, and an arrow stays where both of its ends do."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.export.original import RawEvent
from profkit.ingest.kineto.decimals import DecimalError, us_to_ns
from profkit.model.arrays import I64

_ZERO: Final = msgspec.Raw(b"0")
_ARROWS: Final = frozenset((b'"s"', b'"t"', b'"f"'))
_BEGIN, _END = b'"B"', b'"E"'
_METADATA: Final = b'"M"'
_WHOLE: Final = b'"X"'

Spot = tuple[bytes, bytes, int]
"""Process, thread and time."""


class Cut:
    """Keeps the events of a window `[low, high)`, ns on the trace's own clock, piece by piece; `arrows` comes last."""

    def __init__(self, window_ns: tuple[int, int]) -> None:
        self.n_kept = 0
        self.n_arrows_cut = 0
        self._low, self._high = window_ns
        self._begun_before: set[Spot] = set()
        self._arrows: dict[tuple[bytes, bytes], list[tuple[RawEvent, Spot]]] = {}
        self._open: dict[tuple[bytes, bytes], int] = {}

    def __call__(self, events: list[RawEvent]) -> list[RawEvent]:
        """The events of a piece that touch the window."""
        start, end = _times(events)
        touches = (start < self._high) & ((end > self._low) | (start >= self._low))
        kept: list[RawEvent] = []
        for event, at, is_in in zip(events, start.tolist(), touches.tolist(), strict=True):
            ph = bytes(event.get("ph", b""))
            if ph == _METADATA:
                kept.append(event)
            elif ph in _ARROWS:
                where = bytes(event.get("cat", b"")), bytes(event.get("id", b""))
                self._arrows.setdefault(where, []).append((event, _spot(event, at)))
            elif is_in and self._is_paired(event, ph):
                kept.append(event)
                if at < self._low and ph == _WHOLE:
                    self._begun_before.add(_spot(event, at))
        self.n_kept += len(kept)
        return kept

    def arrows(self) -> list[RawEvent]:
        """The arrows with all their ends in the window, or where a range begins that reaches into it."""
        kept: list[RawEvent] = []
        for ends in self._arrows.values():
            is_in = [self._low <= spot[2] < self._high or spot in self._begun_before for _, spot in ends]
            if all(is_in) and len(ends) > 1:
                kept += [event for event, _ in ends]
            elif any(is_in):
                self.n_arrows_cut += 1
        self._arrows.clear()
        self.n_kept += len(kept)
        return kept

    def _is_paired(self, event: RawEvent, ph: bytes) -> bool:
        """Whether an event is none that ends what began outside the window."""
        if ph not in (_BEGIN, _END):
            return True
        where = bytes(event.get("pid", b"")), bytes(event.get("tid", b""))
        depth = self._open.get(where, 0) + (1 if ph == _BEGIN else -1)
        self._open[where] = max(depth, 0)
        return depth >= 0


def _spot(event: RawEvent, at: int) -> Spot:
    return bytes(event.get("pid", b"")), bytes(event.get("tid", b"")), at


def _times(events: list[RawEvent]) -> tuple[I64, I64]:
    start = _ns([event.get("ts", _ZERO) for event in events])
    return start, start + _ns([event.get("dur", _ZERO) for event in events])


def _ns(texts: list[Any]) -> NDArray[np.int64]:
    """Times in ns; what is none (it is in no table of profkit's either) is 0."""
    try:
        return us_to_ns(texts)
    except DecimalError:
        return np.array([_one(text) for text in texts], np.int64)


def _one(text: Any) -> int:
    try:
        return int(us_to_ns([text])[0])
    except DecimalError:
        return 0
