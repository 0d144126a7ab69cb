"""JSON events as typed values: what profkit reads of them, how a batch is decoded, and its groups by category.

Field meanings: Kineto's `output_json.cpp` and `ActivityType.h`; older spellings (capitalised categories, "stream 7" as
tid) from traces of torch 1.8 on. The arguments of an event stay text: `arguments` reads those that its table needs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np

from profkit.ingest.kineto import split
from profkit.ingest.kineto.decimals import FLOAT_STEP_BELOW_HALF_NS

Id = int | str | None
ABSENT: Final = -1

_ZERO: Final = msgspec.Raw(b"0")
NO_ARGUMENTS: Final = msgspec.Raw(b"null")
"""This very object where an event has none."""
_FIRST_TS: Final = re.compile(rb'"ts"\s*:\s*([0-9]+)(\.?)')
_LOOK_BYTES: Final = 4096


class Event(msgspec.Struct, gc=False):
    """One element of traceEvents, as far as profkit reads it."""

    ph: str = ""
    cat: str | None = None
    name: str | int | None = ""
    pid: Id = None
    tid: Id = None
    ts: msgspec.Raw = _ZERO
    dur: msgspec.Raw = _ZERO
    args: msgspec.Raw = NO_ARGUMENTS
    id: Id = None


class _Measured(Event, gc=False):
    """One whose duration, in us, may be a number: `fields` checks what float64 may have lost."""

    dur: int | float = 0  # type: ignore[assignment]


class _OfWhole(_Measured, gc=False):
    ts: int = 0  # type: ignore[assignment]


class _OfFloat(_Measured, gc=False):
    ts: float = 0.0  # type: ignore[assignment]


Groups = dict[tuple[str, str], list[Event]]

AS_TEXT: Final = msgspec.json.Decoder(list[Event])
"""Reads times as they stand there: of these an error can be told."""
_WITH_NUMBERS: Final = msgspec.json.Decoder(list[_Measured])
_WHOLE: Final = msgspec.json.Decoder(list[_OfWhole])
_FLOAT: Final = msgspec.json.Decoder(list[_OfFloat])
_MEMBERS: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])

COMM_OP: Final = "record_param_comms"
EMBEDDING: Final = "aten::embedding"
COUNTED: Final = ("profkit", "C")
"""Category and phase of what a script told `profkit.capture.step`."""

LAUNCH_ARROWS: Final = {"ac2g", "async_cpu_to_gpu", "async_gpu", "async"}
"""Arrows from launch to device row: they only repeat `correlation`, so they are counted and not kept."""


class BadEventError(ValueError):
    """An event that cannot be read; `row` is its position in the batch, -1 if unknown."""

    def __init__(self, message: str, row: int = -1) -> None:
        super().__init__(message)
        self.row = row


def quick_decoder(array: bytes) -> Any:
    """What reads the times of these events as numbers, by the first `ts`: whole ones, or float64 where that is exact.

    Kineto writes whole us since 1970, or since torch 2.3 three decimals since a day of the same quarter: for half of a
    quarter float64 is exact (`decimals.numbers_to_ns`).
    """
    first = _FIRST_TS.search(array, 0, _LOOK_BYTES)
    if first is None:
        return _WITH_NUMBERS
    if not first[2]:
        return _WHOLE
    return _FLOAT if int(first[1]) < FLOAT_STEP_BELOW_HALF_NS else _WITH_NUMBERS


def decode_events(array: bytes, decoder: Any = AS_TEXT) -> list[Any]:
    """The events of a JSON array; raises BadEventError."""
    return decoded(decoder, array, "event")


def decoded(decoder: Any, array: bytes, shown: str) -> list[Any]:
    """The elements of a JSON array, each of which errors call `shown`; raises BadEventError."""
    try:
        rows: list[Any] = decoder.decode(array)
    except RecursionError:
        raise BadEventError("nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = re.sub(r"\$\[(?:\.\.\.|\d+)\]", shown, str(error))
        raise BadEventError(message.replace("`", "'")) from None
    return rows


def refuse_repeated_keys(array: bytes) -> None:
    """Compare the members of each event, as its text has them, with its distinct keys (those of `args` are free)."""
    distinct = np.fromiter(map(len, decode_events(array, _MEMBERS)), np.int64)
    repeated = np.flatnonzero(split.count_members(array) > np.maximum(distinct, 1))
    if repeated.size:
        row = int(repeated[0])
        raise BadEventError(f"key {_repeated_key(split.elements(array)[row])!r} appears twice", row)


def _repeated_key(event: bytes) -> str:
    try:
        members: list[tuple[str, Any]] = json.loads(event, object_pairs_hook=list)
    except (ValueError, RecursionError):  # an integer too long for Python, bytes that are no text: not our question
        return "?"
    keys = [key for key, _ in members]
    return next((key[:40] for key in keys if keys.count(key) > 1), "?")


class _Appends(dict[str | None, Callable[[Event], None]]):
    """Gives the `append` of a list per category, making the list at first sight."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[str | None, list[Event]] = {}

    def __missing__(self, category: str | None) -> Callable[[Event], None]:
        rows: list[Event] = []
        self.lists[category] = rows
        self[category] = rows.append
        return rows.append


def grouped(events: list[Event]) -> Groups:
    """Events by (category, phase), in their order; arrows of a launch under "s", whichever end they are."""
    appends = _Appends()
    for event in events:  # the one loop over events; everything after it is per group or per column
        appends[event.cat](event)
    if {None, ""} <= appends.lists.keys():  # both are none: one group, in the order of its events
        del appends.lists[None]
        appends.lists[""] = [event for event in events if not event.cat]
    groups: Groups = {}
    for told, rows in appends.lists.items():
        cat = told or ""
        if cat in LAUNCH_ARROWS:
            groups[cat, "s"] = rows
            continue
        phases = dict.fromkeys(map(attrgetter("ph"), rows))  # in order, so that codes are the same in every run
        for ph in phases:
            groups[cat, ph] = rows if len(phases) == 1 else [event for event in rows if event.ph == ph]
    return groups
