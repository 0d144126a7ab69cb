"""Formats and parses quantities. The only module that rounds; everything below it is integer nanoseconds."""

from __future__ import annotations

import re

_NS_PER_UNIT = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_BYTES_PER_UNIT = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_QUANTITY = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Zµ]+)\s*")


def format_ns(duration_ns: float) -> str:
    """Give a duration with three significant digits and its natural unit: `41.2 ms`, `7.35 us`, `-3 ns`."""
    size = abs(duration_ns)
    for unit, scale in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        # 999.5 of the smaller unit would print as 1000: it belongs to the larger one.
        if size >= 0.9995 * scale:
            return f"{_three_digits(duration_ns / scale)} {unit}"
    return f"{duration_ns:.0f} ns"


def format_fraction(fraction: float) -> str:
    """Give a fraction (0-1) as a percentage: `46.1 %`; what is not zero never prints as zero: `<0.1 %`."""
    if 0 < abs(fraction) < 0.0005:
        return "<0.1 %"
    return f"{100 * fraction:.1f} %"


def format_count(count: float) -> str:
    """Give a count with thousands separators; a mean keeps one decimal: `3,264`, `0.5`."""
    if float(count).is_integer():
        return f"{int(count):,}"
    return f"{count:,.1f}"


def format_bytes(n_bytes: float) -> str:
    """Give bytes in decimal units (GB = 10^9 bytes): `12.9 GB`."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(n_bytes) >= scale:
            return f"{_three_digits(n_bytes / scale)} {unit}"
    return f"{n_bytes:.0f} B"


def format_speedup(ratio: float) -> str:
    """Give a speed-up: `1.74x`."""
    return f"{ratio:.2f}x"


def parse_duration_ns(text: str) -> int:
    """Read `20ms`, `1.5 s`, `350us` as integer nanoseconds; raise ValueError on anything else."""
    value, unit = _split_quantity(text)
    if unit not in _NS_PER_UNIT:
        raise ValueError(f"unknown unit of time {unit!r} in {text!r}: use ns, us, ms or s")
    return round(value * _NS_PER_UNIT[unit])


def parse_bytes(text: str) -> int:
    """Read `16GB` (10^9) or `16GiB` (2^30) as bytes; raise ValueError on anything else."""
    value, unit = _split_quantity(text)
    if unit.lower() not in _BYTES_PER_UNIT:
        raise ValueError(f"unknown unit of size {unit!r} in {text!r}: use B, kB, MB, GB, KiB, MiB or GiB")
    return round(value * _BYTES_PER_UNIT[unit.lower()])


def _split_quantity(text: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a number with a unit")
    return float(match[1]), match[2]


def _three_digits(value: float) -> str:
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
