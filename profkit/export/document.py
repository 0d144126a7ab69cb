"""One Chrome trace document: the events of one rank or of several, profkit's own rows, and what stands around them.

In a window, what touches it stays whole, and an arrow stays where both of its ends do. Of several ranks each has
numbers that no other rank has, and times on the common clock.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.export.original import Change, Original, RawEvent, joined, text_of, value_of
from profkit.export.own import own_events
from profkit.export.place import PER_RANK, UNNUMBERED, Place, us_text
from profkit.ingest.bytes.bytesource import Progress
from profkit.ingest.kineto.decimals import DecimalError, us_to_ns
from profkit.ingest.kineto.merged_ranks import OF_RANKS
from profkit.model.arrays import I64
from profkit.model.documents.tracks import Tracks
from profkit.timeline.elsewhere import EXPORT
from profkit.version import __version__

MARK: Final = EXPORT
"""The first key of a file that profkit has exported."""
_OF_ONE_RANK: Final = frozenset(("traceName", "baseTimeNanoseconds", "distributedInfo", MARK, OF_RANKS))

Pieces = Iterator[bytes]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's events: a file, or the events that stand for one (`drawn`), with the rows drawn beside them."""

    source: str
    path: Path | None
    tracks: tuple[Tracks, ...]
    places: tuple[Place, ...]
    """Of each of `tracks`."""
    drawn: Any = None
    """A function without arguments that gives pieces of events, for a source that has none of its own."""
    metadata: Mapping[str, Any] = {}
    """What stands around the events of a `drawn` part."""
    window_ns: tuple[int, int] | None = None
    """Only what touches this, on the rank's own clock."""


class Written(msgspec.Struct):
    """What became of the events while a document was made."""

    n_arrows_cut: int = 0


def chrome_trace(
    parts: Sequence[Part],
    *,
    told: Mapping[str, Any],
    lenient: bool = False,
    progress: Progress | None = None,
    written: Written | None = None,
) -> Pieces:
    """The document in pieces of text; `told` is what it says of itself under `MARK`. Raises TraceError."""
    written = written or Written()
    mark = json.dumps({"version": __version__, **told})
    yield f'{{"{MARK}": {mark},\n"traceEvents": [\n'.encode()
    metadata: list[Mapping[str, Any]] = []
    is_first = True
    for piece in _all_pieces(parts, metadata, lenient=lenient, progress=progress, written=written):
        if not piece.strip():
            continue
        yield piece if is_first else b",\n" + piece
        is_first = False
    yield _tail(parts, metadata)


def _all_pieces(
    parts: Sequence[Part],
    metadata: list[Mapping[str, Any]],
    *,
    lenient: bool,
    progress: Progress | None,
    written: Written,
) -> Pieces:
    for part in parts:  # first, so that a reader knows at once whose process is whose
        for tracks, place in zip(part.tracks, part.places, strict=True):
            yield from own_events(tracks, place, part.window_ns)
    for part in parts:
        cut = None if part.window_ns is None else Cut(part.window_ns)
        # a file that holds several ranks tells them apart itself
        rewriting = None if len(parts) == 1 else Rewriting(part.places[0])
        if part.path is None:
            yield from part.drawn()
            metadata.append(part.metadata)
            continue
        original = Original(part.path, part.source, lenient=lenient, progress=progress)
        yield from original.pieces(_change(cut, rewriting))
        metadata.append(original.metadata)
        if cut is not None:
            arrows = cut.arrows()
            written.n_arrows_cut += cut.n_arrows_cut
            if arrows:
                yield joined(arrows if rewriting is None else rewriting(arrows))


def _change(cut: Cut | None, rewriting: Rewriting | None) -> Change | None:
    if cut is None or rewriting is None:
        return cut or rewriting

    def both(events: list[RawEvent]) -> list[RawEvent]:
        return rewriting(cut(events))

    return both


def _tail(parts: Sequence[Part], metadata: Sequence[Mapping[str, Any]]) -> bytes:
    """The end of the events and what stands around them: of several ranks what all say alike."""
    if len(parts) == 1:
        top = {key: value for key, value in metadata[0].items() if key != MARK}
    else:
        top = _of_all(parts, metadata)
    top.setdefault("displayTimeUnit", "ms")
    return b"\n],\n" + json.dumps(top, indent=1).encode().removeprefix(b"{")


def _of_all(parts: Sequence[Part], metadata: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all ranks say alike, and under `OF_RANKS` what each says for itself."""
    first = metadata[0]
    keys = [key for key in dict.fromkeys(key for one in metadata for key in one) if key not in _OF_ONE_RANK]
    alike = {key for key in keys if all(key in one and one[key] == first.get(key) for one in metadata)}
    said = first.get("distributedInfo")
    info = said if isinstance(said, dict) else {}
    return {
        "baseTimeNanoseconds": min(_base(one) for one in metadata),
        "distributedInfo": {key: value for key, value in info.items() if key != "rank"},
        **{key: first[key] for key in keys if key in alike},
        OF_RANKS: {
            str(part.places[0].rank): {key: one[key] for key in keys if key in one and key not in alike}
            for part, one in zip(parts, metadata, strict=True)
        },
    }


def _base(metadata: Mapping[str, Any]) -> int:
    value = metadata.get("baseTimeNanoseconds")
    return value if isinstance(value, int) else 0


_ZERO: Final = msgspec.Raw(b"0")
_ARROWS: Final = frozenset((b'"s"', b'"t"', b'"f"'))
_BEGIN, _END = b'"B"', b'"E"'
_METADATA: Final = b'"M"'
_RANGE: Final = b'"X"'

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
                if at < self._low and ph == _RANGE:
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


_LINKS: Final = re.compile(rb'("(?:correlation|External id)"\s*:\s*)([1-9]\d{0,18})(?![\d.eE])')
_FLOWS: Final = frozenset((b'"s"', b'"t"', b'"f"', b'"b"', b'"e"', b'"n"'))
"""Phases whose `id` ties events together: arrows, and ranges that have no thread."""
_PLAIN: Final = re.compile(rb"(-?)(\d{1,15})(?:\.(\d{1,3}))?")
_WHOLE: Final = re.compile(rb"\d{1,18}")


class Rewriting:
    """Changes the events of one rank, piece by piece."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._pids: dict[bytes, msgspec.Raw] = {}
        self._ids: dict[bytes, int] = {}

    def __call__(self, events: list[RawEvent]) -> list[RawEvent]:
        """The events changed, with a name and a rank for each process that is new."""
        out: list[RawEvent] = []
        for event in events:
            if "pid" in event:
                given = bytes(event["pid"])
                if given not in self._pids:
                    out += self._new(given)
                event["pid"] = self._pids[given]
            if "ts" in event:
                event["ts"] = msgspec.Raw(shifted(bytes(event["ts"]), self._place.shift_ns))
            ph = bytes(event.get("ph", b""))
            if "id" in event and ph in _FLOWS:
                event["id"] = msgspec.Raw(str(self._id(bytes(event["id"]))).encode())
            if "args" in event:
                event["args"] = self._told(event) if ph == b'"M"' else self._linked(bytes(event["args"]))
            out.append(event)
        return out

    def _new(self, given: bytes) -> list[RawEvent]:
        """Give a process its number; the events that name it and say whose it is."""
        value = value_of(given)
        is_own = isinstance(value, int) and 0 <= value < UNNUMBERED
        first = (self._place.number + 1) * PER_RANK
        pid = first + value if is_own else first + UNNUMBERED + len(self._pids)
        self._pids[given] = msgspec.Raw(str(pid).encode())
        name, index = (f"process {value}", value) if is_own else (f"{value}", 2**29)
        return [msgspec.json.decode(text, type=RawEvent) for text in self._place.process(pid, name, index)]

    def _id(self, given: bytes) -> int:
        if _WHOLE.fullmatch(given):
            return self._place.renumbered(int(given))
        return self._place.renumbered(2**52 + self._ids.setdefault(given, len(self._ids)))

    def _linked(self, args: bytes) -> msgspec.Raw:
        return msgspec.Raw(_LINKS.sub(lambda m: m[1] + b"%d" % self._place.renumbered(int(m[2])), args))

    def _told(self, event: RawEvent) -> msgspec.Raw:
        """What a metadata event says: the names of processes with the rank before them, and their order."""
        told = value_of(event["args"])
        name = bytes(event.get("name", b""))
        if not isinstance(told, dict):
            return event["args"]
        if name == b'"process_name"' and isinstance(told.get("name"), str):
            told["name"] = f"{self._place.prefix}{told['name']}"
        if name == b'"process_sort_index"' and isinstance(told.get("sort_index"), int):
            told["sort_index"] = self._place.order(told["sort_index"])
        return text_of(told)


def shifted(text: bytes, shift_ns: int) -> bytes:
    """A time in microseconds, as a trace writes it, with nanoseconds added; exact, and the text itself for none."""
    if shift_ns == 0:
        return text
    plain = _PLAIN.fullmatch(text)
    if plain is None:
        return _shifted_exactly(text, shift_ns)
    time_ns = int(plain[2]) * 1000 + int((plain[3] or b"").ljust(3, b"0"))
    return us_text((-time_ns if plain[1] else time_ns) + shift_ns).encode()


def _shifted_exactly(text: bytes, shift_ns: int) -> bytes:
    """The same of times with exponents, or with more digits than nanoseconds have; what is no time stays as it is."""
    try:
        (time_ns,) = us_to_ns([text]).tolist()
    except DecimalError:
        return text
    return us_text(time_ns + shift_ns).encode()
