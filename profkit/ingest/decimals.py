"""Decimal microseconds as text to int64 nanoseconds, exactly and without float64.

At 1.7e15 us (a Unix time) one float64 step is 0.25 us, so a time that passes through a float loses its last digits.
Kineto writes `ns / 1000 "." ns % 1000`, always three digits, or (before torch 2.3) whole microseconds; files that
went through another JSON library have any number of digits. Numbers are kept as the bytes of the file until here.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Final

import numpy as np

from profkit.model.arrays import I64

_INT64_MAX: Final = 2**63 - 1
# More digits than this could overflow int64 as ns; such a number is parsed one by one, and refused if it does.
_MAX_SAFE_US: Final = _INT64_MAX // 1000


class DecimalError(ValueError):
    """A number that is not one, or does not fit; `row` is its position in the sequence."""

    def __init__(self, message: str, row: int) -> None:
        super().__init__(message)
        self.row = row


def us_to_ns(numbers: Sequence[bytes]) -> I64:
    """Give int64 ns for JSON numbers in us (bytes-like); more than three decimals round half to even.

    Raises DecimalError for anything that is not a finite JSON number or exceeds int64 as ns.
    """
    n = len(numbers)
    if n == 0:
        return np.empty(0, np.int64)
    text = b"\n".join(numbers)
    other = text.translate(None, b"0123456789\n")
    if not other:
        values = _parse_integers(text, n)
        if values is not None and int(np.abs(values).max()) <= _MAX_SAFE_US:
            return values * 1000
    elif other == b"." * n and _all_have_three_decimals(text, n):
        values = _parse_integers(text.replace(b".", b""), n)
        if values is not None and int(values.max()) < _INT64_MAX:  # strtoll saturates
            return values
    return np.array([_one_to_ns(bytes(number), row) for row, number in enumerate(numbers)], np.int64)


def _parse_integers(text: bytes, n: int) -> I64 | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # an empty or odd field: the caller goes the slow way
        try:
            values = np.fromstring(text, np.int64, sep="\n")
        except ValueError:
            return None
    return values if values.size == n else None


def _all_have_three_decimals(text: bytes, n: int) -> bool:
    characters = np.frombuffer(text, np.uint8)
    ends = np.append(np.flatnonzero(characters == 0x0A), characters.size)
    starts = np.concatenate(([0], ends[:-1] + 1))
    if int((ends - starts).min()) < 5:  # "0.000" is the shortest
        return False
    return ends.size == n and bool((characters[ends - 4] == 0x2E).all())


def _one_to_ns(number: bytes, row: int) -> int:
    try:
        value = Decimal(number.decode("ascii"))
        if not value.is_finite() or value.adjusted() > 18:  # 10^18 us: keep Decimal from writing out huge integers
            raise DecimalError(f"{_shown(number)} is outside the range of int64 nanoseconds", row)
        nanoseconds = int((value * 1000).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, UnicodeDecodeError):
        raise DecimalError(f"{_shown(number)} is not a number", row) from None
    if abs(nanoseconds) > _INT64_MAX:
        raise DecimalError(f"{_shown(number)} is outside the range of int64 nanoseconds", row)
    return nanoseconds


def _shown(number: bytes) -> str:
    text = number[:40].decode("utf-8", "replace")
    return text + ("..." if len(number) > 40 else "")
