"""The words of a scaling report that its renderers share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from profkit.model.budget import PARTS, label
from profkit.model.documents.scaling import Decomposition, Held, Point, Series, Standing
from profkit.shell import clean
from profkit.units import format_bytes, format_fraction, format_quantity, format_speedup

_NAMES: Final = {
    Standing.SOUND: "SCALING",
    Standing.DOUBTFUL: "BASELINE IN DOUBT",
    Standing.ACCUSED: "BASELINE SUSPECT",
}
MARKS: Final = {"accuses": "!", "suggests": "?", "clears": "-", "unknown": "."}
MARKS_TOLD: Final = "! speaks against the base   ? a hint   - speaks for it   . unknown"
PILOT_TOLD: Final = "* a pilot: two runs on a side, so the interval is wide and uncertain"
_FEW_SIZES: Final = 6  # from here on a fit of the law is worth its error (docs/statistics.md 4)


_WORK: Final = {"work per compute second": "speed of compute"}


def name(series: Series) -> str:
    """The answer in two or three words, in capitals."""
    if series.standing is Standing.SOUND and series.largest.speedup <= 1 and len(series.points) > 1:
        return "DOES NOT SCALE"
    return _NAMES[series.standing]


def headline(series: Series) -> str:
    """The one line of meaning: the efficiency of the largest size, or why it is none."""
    base, top = series.base, series.largest
    told = f"{top.gpus} GPUs do {format_speedup(top.speedup)} the work of {base.gpus} (E = {top.efficiency or 0:.2f})"
    if series.standing is Standing.ACCUSED:
        return f"{told}: faster than ideal; assume a slow {base.gpus}-GPU base until it is explained"
    if series.standing is Standing.DOUBTFUL:
        return f"{told}, but a size in between is faster than ideal: the {base.gpus}-GPU base may be slow"
    return told


def series_name(series: Series) -> str:
    """The configuration and what is held: `activation_ckpt=True, strong scaling`."""
    held = "work per step unknown" if series.held is Held.UNKNOWN else f"{series.held.value} scaling"
    return clean(f"{series.name}, {held}")


def headers(series: Series) -> tuple[str, ...]:
    """The headings of `rows`."""
    memory = ("memory",) if _has_memory(series) else ()
    return ("GPUs", "runs", clean(series.unit), "cv", "speed-up", "E", "95 % of E", "serial", *memory)


def _serial(fraction: float | None) -> str:
    """A serial fraction; above 1, where more GPUs do less than one, it is no share of anything."""
    if fraction is None:
        return "-"
    return "> 1" if fraction > 1 else f"{fraction:.2f}"


def rows(series: Series) -> list[tuple[str, ...]]:
    """A line for each size; what is not known is "-"."""
    return [_row(series, point) for point in series.points]


def _row(series: Series, point: Point) -> tuple[str, ...]:
    memory = ("-" if point.memory_bytes is None else format_bytes(point.memory_bytes),) if _has_memory(series) else ()
    return (
        str(point.gpus),
        str(point.n),
        format_quantity(point.mean, ""),
        "-" if point.cv is None else format_fraction(point.cv),
        format_speedup(point.speedup),
        "-" if point.efficiency is None else f"{point.efficiency:.2f}",
        _interval(point),
        _serial(point.serial_fraction),
        *memory,
    )


def _has_memory(series: Series) -> bool:
    return any(point.memory_bytes is not None for point in series.points)


def _interval(point: Point) -> str:
    if point.interval is None:
        return "-"
    return f"{point.interval[0]:.2f} to {point.interval[1]:.2f}" + "*" * point.is_pilot


def notes(series: Series) -> list[str]:
    """What the table's numbers stand on: pilots, single runs, and the law with its degrees of freedom."""
    told = [PILOT_TOLD] if any(point.is_pilot for point in series.points) else []
    single = [str(point.gpus) for point in series.points if point.n == 1]
    if single:
        told.append(f"one run on {', '.join(single)} GPUs: no interval there, and noise is not ruled out")
    return [*told, _law(series)]


def _law(series: Series) -> str:
    fit = series.usl
    if fit is None:
        fractions = [point.serial_fraction for point in series.points if point.serial_fraction is not None]
        if fractions and fractions[-1] > 1:
            return "two sizes: no law can be fitted; more GPUs do less, which no serial part explains"
        return f"two sizes: no law can be fitted; serial fraction {fractions[-1]:.2f}" if fractions else "one size"
    if fit.df == 0:
        return "three sizes: the law of scaling (USL) would pass through every point, so a fourth size must test it"
    peak = f", peak at {fit.peak_gpus:.1f} GPUs" if fit.peak_gpus is not None else ", no peak"
    law = f"USL: contention {fit.alpha:.3f}, coherency {fit.beta:.3f}{peak}"
    # A negative one says so only where a size is faster than ideal: beside E = 0.24 it is a bad fit.
    is_superlinear = fit.alpha < 0 and any((point.efficiency or 0) > 1 for point in series.points)
    law += "; a negative contention is superlinear" if is_superlinear else ""
    few = f", fewer than {_FEW_SIZES} sizes" if len(series.points) < _FEW_SIZES else ""
    plural = "s" * (fit.df != 1)
    return f"{law}; {fit.df} degree{plural} of freedom{few}, misfit {format_fraction(fit.residual or 0)}"


def publishable(series: Series) -> str:
    """What one may publish of a series, or why that is nothing yet."""
    if not series.sentence:
        return "nothing: no size is left to compare against"
    if series.base.n == 1 or series.largest.n == 1:
        return "nothing yet: it takes three runs of each size"
    return series.sentence


PART_HEADERS: Final = ("GPUs", "E of the profiled steps is the product of", "factor")
"""Columns of `decomposition_rows`."""


def decomposition_rows(decompositions: Sequence[Decomposition]) -> list[tuple[str, ...]]:
    """A line for each factor of E that is not 1, and their product: what the sum of logarithms is to readers."""
    lines: list[tuple[str, ...]] = []
    for one in decompositions:
        sizes = f"{one.base_gpus} -> {one.gpus}"
        parts = [part for part in one.parts if abs(part.log_efficiency) >= 0.0005]
        names = [_part_name(part.name, is_cpu=one.is_cpu) for part in parts]
        lines += [
            (sizes, name, f"{math.exp(part.log_efficiency):.3f}") for name, part in zip(names, parts, strict=True)
        ]
        lines.append((sizes, "E", f"{one.efficiency:.3f}"))
    return lines


def _part_name(name: str, *, is_cpu: bool) -> str:
    return label(name, is_cpu=is_cpu) if name in PARTS else clean(_WORK.get(name, name))
