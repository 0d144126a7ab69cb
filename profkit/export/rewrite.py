"""The events of one rank for a file of several: numbers that no other rank has, and times on the common clock."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from profkit.export.original import RawEvent, text_of, value_of
from profkit.export.place import PER_RANK, UNNUMBERED, Place, described, us_text
from profkit.ingest.kineto.decimals import DecimalError, us_to_ns

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
                event["args"] = self._args(event, is_told=ph == b'"M"')
            out.append(event)
        return out

    def _new(self, given: bytes) -> list[RawEvent]:
        """Give a process its number; the events that name it and say whose it is."""
        value = value_of(given)
        is_own = isinstance(value, int) and 0 <= value < UNNUMBERED
        first = (self._place.number + 1) * PER_RANK
        pid = first + value if is_own else first + UNNUMBERED + len(self._pids)
        self._pids[given] = msgspec.Raw(str(pid).encode())
        place = self._place
        told = {} if place.rank is None else {"rank": place.rank}
        name = f"{place.prefix}process {value}" if is_own else f"{place.prefix}{value}"
        texts = [
            described(pid, "process_name", {"name": name, **told}),
            described(pid, "process_sort_index", {"sort_index": place.order(value if is_own else 2**29), **told}),
        ]
        return [msgspec.json.decode(text, type=RawEvent) for text in texts]

    def _id(self, given: bytes) -> int:
        if _WHOLE.fullmatch(given):
            return self._place.renumbered(int(given))
        return self._place.renumbered(2**52 + self._ids.setdefault(given, len(self._ids)))

    def _args(self, event: RawEvent, *, is_told: bool) -> msgspec.Raw:
        args = bytes(event["args"])
        if is_told:
            return self._told(event, args)
        return msgspec.Raw(_LINKS.sub(lambda m: m[1] + b"%d" % self._place.renumbered(int(m[2])), args))

    def _told(self, event: RawEvent, args: bytes) -> msgspec.Raw:
        """What a metadata event says: the names of processes with the rank before them, and their order."""
        told = value_of(args)
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
