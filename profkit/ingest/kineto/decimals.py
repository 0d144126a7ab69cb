"""Decimal microseconds as text to int64 nanoseconds, exactly and without float64.

At 1.7e15 us (a Unix time) one float64 step is 0.25 us, so a time that passes through a float loses its last digits.
Kineto writes `ns / 1000 "." ns % 1000`, always three digits, or (before torch 2.3) whole microseconds; files that
went through another JSON library have any number of digits. Numbers are kept as the bytes of the file until here.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64

_INT64_MAX: Final = 2**63 - 1
FLOAT_STEP_BELOW_HALF_NS: Final = 2.0**42
"""Times in us below this (51 days) lie in float64 less than half a nanosecond apart."""
_JSON_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


class DecimalError(ValueError):
    """A number that is not one, or does not fit; `row` is its position in the sequence."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


def us_to_ns(numbers: Sequence[bytes]) -> I64:
    """Times in int64 ns of JSON numbers in us (bytes-like); more than three decimals round half to even.

    Raises DecimalError for anything that is not a finite JSON number or exceeds int64 as ns.
    """
    n = len(numbers)
    if n == 0:
        return np.empty(0, np.int64)
    text = b"\n".join(numbers)
    values = _parse_usual(text, n)
    if values is None:
        values = _parse_plain(text, n)
    if values is None:
        values = np.array([_one_to_ns(bytes(number), row) for row, number in enumerate(numbers)], np.int64)
    return values


def numbers_to_ns(numbers_us: NDArray[np.float64]) -> I64 | None:
    """Times in int64 ns of decimal numbers in us that were read as float64; None unless each is what `us_to_ns` gives.

    Below 2^42 us (51 days) one float64 step is 0.49 ns: if the number of whole ns found reads as the same float64, the
    text was nearer to it than half a ns.
    """
    with np.errstate(over="ignore"):  # of 1e308 us: an infinity, which is not exact
        nanoseconds = np.rint(numbers_us * 1000.0)
    is_exact = (numbers_us >= 0) & (numbers_us < FLOAT_STEP_BELOW_HALF_NS) & (nanoseconds / 1000.0 == numbers_us)
    return nanoseconds.astype(np.int64) if is_exact.all() else None


def _parse_usual(text: bytes, n: int) -> I64 | None:
    """Times in ns of what Kineto writes, whole numbers or three decimals throughout, at half the cost of below."""
    other = text.translate(None, b"0123456789\n")
    if not other:
        values = _parse_integers(text, n)
        return None if values is None or int(values.max()) >= _INT64_MAX // 1000 else values * 1000
    if other != b"." * n:
        return None
    characters = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(characters == 0x0A), characters.size)
    if ends.size != n or int(ends[0]) < 5 or (n > 1 and int(np.diff(ends).min()) < 6):  # "0.000" is the shortest
        return None
    if not (characters[ends - 4] == 0x2E).all():
        return None
    values = _parse_integers(text.replace(b".", b""), n)
    return None if values is None or int(values.max()) == _INT64_MAX else values  # strtoll saturates


def _parse_plain(text: bytes, n: int) -> I64 | None:
    """Times in ns of `n` lines of digits with at most three decimals at once; None where the slow way must look."""
    if text.translate(None, b"-0123456789.\n") or text.count(b"-") != text.count(b"\n-") + text.startswith(b"-"):
        return None
    values = _parse_integers(text.replace(b".", b""), n)
    decimals = _count_decimals(text, n)
    if values is None or decimals is None:
        return None
    scale = 10 ** (3 - decimals)
    limit = _INT64_MAX // scale  # strtoll saturates, so its extreme values are in doubt too
    return None if ((values >= limit) | (values <= -limit)).any() else values * scale


def _parse_integers(text: bytes, n: int) -> I64 | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # an empty or odd field: the caller goes the slow way
        try:
            values = np.fromstring(text, np.int64, sep="\n")
        except ValueError:
            return None
    return values if values.size == n else None


def _count_decimals(text: bytes, n: int) -> I64 | None:
    """The digits after the point per line, 0 to 3; None if a line has more, two points, or one at its edge."""
    characters = np.frombuffer(text, np.uint8)
    decimals = np.zeros(n, np.int64)
    dots = np.flatnonzero(characters == 0x2E)
    ends = np.append(np.flatnonzero(characters == 0x0A), characters.size)
    if ends.size != n:
        return None
    if dots.size == 0:
        return decimals
    lines = np.arange(n) if dots.size == n else np.searchsorted(ends, dots)
    starts = np.concatenate(([0], ends[:-1] + 1))[lines]
    after = ends[lines] - dots - 1
    if (after < 1).any() or (after > 3).any() or (dots <= starts).any() or (characters[dots - 1] < 0x30).any():
        return None
    decimals[lines] = after
    return None if (lines[1:] == lines[:-1]).any() else decimals


def _one_to_ns(number: bytes, row: int) -> int:
    if not _JSON_NUMBER.fullmatch(number):
        raise DecimalError(f"{_shown(number)} is not a number", row)
    try:
        value = Decimal(number.decode("ascii"))
    except InvalidOperation:  # an exponent of more digits than Decimal takes
        raise DecimalError(f"{_shown(number)} is outside the range of int64 nanoseconds", row) from None
    if value.adjusted() > 18:  # 10^18 us: keep Decimal from writing out huge integers
        raise DecimalError(f"{_shown(number)} is outside the range of int64 nanoseconds", row)
    exact = Context(prec=len(number) + 3)
    nanoseconds = int(exact.multiply(value, Decimal(1000)).to_integral_value(ROUND_HALF_EVEN))
    if abs(nanoseconds) > _INT64_MAX:
        raise DecimalError(f"{_shown(number)} is outside the range of int64 nanoseconds", row)
    return nanoseconds


def _shown(number: bytes) -> str:
    text = number[:40].decode("utf-8", "replace")
    return text + ("..." if len(number) > 40 else "")
