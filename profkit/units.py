"""Formats quantities. The only module that rounds; everything below it is integer nanoseconds.

Beside it a number that the traced process, which has nothing else of profkit's, shares with reports.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

MANY_FETCHES: Final = 3
"""Batches to one of the usual step, from which another loop is in a step. Chosen: an epoch's first fetches two."""
_MOST_SHOWN: Final = 1000.0
"""A change beyond this (100,000 %) is of another kind of run: its digits say nothing. Chosen."""


def format_ns(duration_ns: float) -> str:
    """A duration with three significant digits and its natural unit: `41.2 ms`, `7.35 us`, `-3 ns`."""
    size = abs(duration_ns)
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        # 999.5 of the smaller unit would print as 1000: it belongs to the larger one.
        if size >= 0.9995 * scale:
            return f"{_three_digits(duration_ns / scale)} {unit}"
    return f"{duration_ns:.0f} ns"


def format_signed_ns(change_ns: float) -> str:
    """A change of a duration with its sign: `+1.20 ms`, `-3 ns`, `0`."""
    return "0" if change_ns == 0 else f"{'+' if change_ns > 0 else ''}{format_ns(change_ns)}"


def format_fraction(fraction: float) -> str:
    """A fraction (0-1) as a percentage: `46.1 %`; what is not zero never prints as zero: `<0.1 %`."""
    if 0 < abs(fraction) < 0.0005:
        return "<0.1 %"
    if abs(fraction) > _MOST_SHOWN:
        return f"more than {100 * _MOST_SHOWN:,.0f} %"
    return f"{100 * fraction:.1f} %"


def format_count(count: float) -> str:
    """A count with thousands separators; a mean keeps one decimal: `3,264`, `0.5`."""
    if float(count).is_integer():
        return f"{int(count):,}"
    return f"{count:,.1f}"


def format_bytes(n_bytes: float) -> str:
    """Bytes in decimal units (GB = 10^9 bytes): `12.9 GB`."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(n_bytes) >= scale:
            return f"{_three_digits(n_bytes / scale)} {unit}"
    return f"{n_bytes:.0f} B"


def format_speedup(ratio: float) -> str:
    """A ratio of speeds or times with three significant digits: `1.74x`, `16.6x`."""
    return f"{_three_digits(ratio)}x" if ratio <= _MOST_SHOWN else f"more than {_MOST_SHOWN:,.0f}x"


def format_ceiling(ratio: float) -> str:
    """How much faster at best, an estimate: one decimal from 2x on (`7.8x`), below that two (`1.16x`)."""
    return f"{ratio:.1f}x" if 2 <= ratio < 10 else format_speedup(ratio)


def format_numbers(numbers: Sequence[int]) -> str:
    """Rising whole numbers with runs drawn together: `0-2, 5, 7`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)


def _three_digits(value: float) -> str:
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def format_change(fraction: float) -> str:
    """A signed change (0.016 is +1.6 %): `+1.6 %`, `-3.3 %`."""
    if abs(fraction) > _MOST_SHOWN:
        return f"beyond {math.copysign(100 * _MOST_SHOWN, fraction):+,.0f} %"
    return f"{100 * fraction:+.1f} %"


def format_effect(fraction: float) -> str:
    """The size of a change: as a percentage, and as a factor where it doubles the value: `7.1 %`, `20.4x`."""
    return format_fraction(fraction) if fraction < 1 else format_speedup(1 + fraction)


def format_time_change(ratio: float) -> str:
    """What a time became, by its ratio to what it was: `40.0 % less time (1.67x)`, `38.1 % more time (1.38x)`."""
    how = "less" if ratio < 1 else "more"
    return f"{format_fraction(abs(ratio - 1))} {how} time ({format_speedup(max(ratio, 1 / ratio))})"


def format_quantity(value: float, unit: str) -> str:
    """A measured value with its unit, at least three digits: `3,164 tokens/s`; `ns/step` prints as a duration."""
    if unit == "ns" or unit.startswith("ns/"):
        return format_ns(value) + unit.removeprefix("ns")
    return f"{_three_digits(value)} {unit}".rstrip()
