"""Fields of decoded events to arrays: times, names, threads, whole numbers of arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.ingest.assemble.raw import Columns
from profkit.ingest.kineto.decimals import DecimalError, numbers_to_ns, us_to_ns
from profkit.ingest.kineto.events import ABSENT, BadEventError, Event
from profkit.ingest.numbers import LATEST_NS, whole

MOST_DIGITS: Final = 20  # as many as 2^64 has; Python refuses to read more than 4,300
_MOST_ID: Final = 2**128
_MOST_CHARACTERS: Final = 200  # of an id as text
_MOST_US: Final = LATEST_NS // 1000


class Codes(dict[Any, int]):
    """The same small integer for the same value: 0, 1, 2... in order of first sight."""

    def __missing__(self, value: Any) -> int:
        code = self[value] = len(self)
        return code


class InexactError(Exception):
    """A time that was read as a number may have lost a nanosecond, or is out of range: it must be read as text."""


def times(rows: list[Event]) -> Columns:
    """Start and end in ns; raises BadEventError for a negative duration or an end beyond int64."""
    start = starts(rows)
    duration = _durations(rows)
    if duration.size and int(duration.min()) < 0:
        row = int(np.argmax(duration < 0))
        raise bad_event(rows[row], f"negative dur {_text_of_dur(rows[row])}")
    with np.errstate(over="ignore"):
        end = start + duration
    if (end < start).any():
        row = int(np.argmax(end < start))
        raise bad_event(rows[row], f"dur {_text_of_dur(rows[row])} overflows int64 nanoseconds")
    return {"start_ns": start, "end_ns": end}


def _text_of_dur(event: Event) -> str:
    duration: Any = event.dur
    if isinstance(duration, int | float):
        raise InexactError  # the text says it as it was written
    return bytes(duration).decode()


def starts(rows: list[Event]) -> NDArray[np.int64]:
    """`ts` in ns: of text, of whole numbers or of float64, as the first event has it (then all have).

    Raises BadEventError for a time so far away that the difference to another would leave int64.
    """
    first: Any = rows[0].ts if rows else None
    if isinstance(first, int):
        return _whole(map(attrgetter("ts"), rows), len(rows))
    if isinstance(first, float):
        return _exact(map(attrgetter("ts"), rows), len(rows))
    start = _parse(rows, attrgetter("ts"), "ts")
    if start.size and (int(start.min()) < -LATEST_NS or int(start.max()) > LATEST_NS):
        row = int(np.argmax((start < -LATEST_NS) | (start > LATEST_NS)))
        text = bytes(attrgetter("ts")(rows[row])).decode()
        raise bad_event(rows[row], f"ts {text[:40]} is more than 73 years from where times begin")
    return start


def _durations(rows: list[Event]) -> NDArray[np.int64]:
    first: Any = rows[0].dur if rows else None
    if isinstance(first, int | float):
        return _exact(map(attrgetter("dur"), rows), len(rows))
    return _parse(rows, attrgetter("dur"), "dur")


def _whole(numbers_us: Iterable[int], n: int) -> NDArray[np.int64]:
    try:
        numbers = np.fromiter(numbers_us, np.int64, n)
    except OverflowError:
        raise InexactError from None
    if int(numbers.max()) >= _MOST_US or int(numbers.min()) <= -_MOST_US:
        raise InexactError
    return numbers * 1000


def _exact(numbers_us: Iterable[float], n: int) -> NDArray[np.int64]:
    try:
        numbers = np.fromiter(numbers_us, np.float64, n)
    except OverflowError:  # more digits than float64 has: the text is refused by event
        raise InexactError from None
    times = numbers_to_ns(numbers)
    if times is None:
        raise InexactError
    return times


def _parse(rows: list[Event], column: Callable[[Event], Any], field_name: str) -> NDArray[np.int64]:
    try:
        return us_to_ns(list(map(column, rows)))
    except DecimalError as error:
        raise bad_event(rows[error.row], f"{field_name} {error}") from None


def bad_event(event: Event, message: str) -> BadEventError:
    """The error that names an event."""
    return BadEventError(f"{message} in event {str(event.name)[:60]!r}")


def names(rows: list[Event], strings: Codes) -> NDArray[np.int32]:
    """The codes of names."""
    try:
        return _coded(map(attrgetter("name"), rows), strings, len(rows))
    except TypeError:
        raise BadEventError("name is not text") from None


def _coded(values: Iterable[Any], codes: Codes, n: int) -> NDArray[np.int32]:
    return np.fromiter(map(codes.__getitem__, values), np.int32, n)


def threads_of(rows: list[Event], threads: Codes) -> NDArray[np.int32]:
    """The codes of (pid, tid)."""
    return _coded(map(attrgetter("pid", "tid"), rows), threads, len(rows))


def integers(args: list[Any], name: str, absent: int = ABSENT) -> NDArray[np.int64]:
    """An argument as whole numbers; `absent` for what is none."""
    values = map(attrgetter(name), args)
    try:
        return np.fromiter(values, np.int64, len(args))
    except (TypeError, ValueError, OverflowError):  # null, text, a float or beyond int64 somewhere: one by one
        return np.array([integer(getattr(arg, name), absent) for arg in args], np.int64)


def integer(value: object, absent: int) -> int:
    """A whole number, also from text ("stream 7"); `absent` for anything else."""
    number = whole(value, -_MOST_ID, _MOST_ID)
    if number is None:
        digits = "".join(re.findall("[0-9]", value[:_MOST_CHARACTERS])) if isinstance(value, str) else ""
        number = int(digits[:MOST_DIGITS]) if digits else absent
    if not -(2**63) <= number < 2**63:
        return int(np.uint64(number % 2**64).astype(np.int64))  # unsigned 64-bit ids wrap, as they do in C
    return int(number)


def external_ids(args: list[Any]) -> NDArray[np.int64]:
    """The external ids, in the old spelling where the new one is absent."""
    ids = integers(args, "external_id")
    if ids.size and int(ids.min()) < 0:
        old = integers(args, "old_external_id")
        ids = np.where(ids < 0, old, ids)
    return ids


def text_of(value: object) -> str:
    """An id or a label as text, "" for none."""
    return "" if value is None else str(value)
