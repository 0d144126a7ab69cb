"""A scaling report as a page: for each series its standing, the curve against the ideal, sizes, case and sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from profkit.model.documents.scaling import Point, ScalingReport, Series, Standing
from profkit.render.html import page
from profkit.render.html.parts import tables
from profkit.render.html.parts.axes import Tick, round_values, tick
from profkit.render.words import scaling as words

_TONES: Final = {Standing.SOUND: "good", Standing.DOUBTFUL: "open", Standing.ACCUSED: "bad"}


def render(report: ScalingReport, *, with_paths: bool = False, **_: object) -> str:
    """The report as one HTML file: without folders and names of hosts, unless `with_paths`."""
    first = next(iter(report.series), None)
    return page.made(
        "scaling.html.j2",
        title="scaling" if first is None else f"{words.name(first)}: {words.headline(first)}",
        sources=report.sources,
        with_paths=with_paths,
        report=report,
        words=words,
        series=[_series(one) for one in report.series],
    )


def _series(series: Series) -> Mapping[str, Any]:
    headers, rows = words.headers(series), words.rows(series)
    parts = words.decomposition_rows(series.decompositions)
    return {
        "series": series,
        "tone": _TONES[series.standing] if words.name(series) != "DOES NOT SCALE" else "bad",
        "curve": _curve(series),
        "points": tables.of_words("sizes", headers, rows, n_left=0, is_sortable=len(rows) > 2),
        "parts": tables.of_words("", words.PART_HEADERS, parts, n_left=2, is_sortable=False) if parts else None,
    }


# --------------------------------------------------------------- the curve: speed-up over GPUs, ideal, intervals, law


_WIDTH: Final = 640
_HEIGHT: Final = 380
_LEFT: Final = 56
_BOTTOM: Final = 44
_TOP: Final = 14
_RIGHT: Final = 20
_LAW_POINTS: Final = 48


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A measured size: its point, and from `low` to `high` the interval of its speed-up, "" for none."""

    x: str
    y: str
    low: str
    high: str
    said: str


class _Curve(msgspec.Struct, frozen=True, kw_only=True):
    """A chart of `width` x `height`; positions as SVG takes them."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    marks: tuple[_Mark, ...]
    line: str
    ideal: str
    law: str
    """The universal scalability law where one was fitted with a degree of freedom, "" elsewhere."""


def _curve(series: Series) -> _Curve | None:
    """The chart of a series; None with one size, of which there is no curve."""
    base, points = series.base, series.points
    if len(points) < 2 or base.gpus <= 0:
        return None
    ratio = points[-1].gpus / base.gpus
    highest = max([ratio, *(_upper(point, base) for point in points)])
    if not math.isfinite(highest) or ratio <= 1:
        return None

    def x(gpus: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(gpus / base.gpus) / math.log(ratio)

    def y(speedup: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * max(speedup, 0.0) / highest

    def path(pairs: list[tuple[float, float]]) -> str:
        return " ".join(f"{x(gpus):.1f},{y(value):.1f}" for gpus, value in pairs)

    between = [base.gpus * ratio ** (step / _LAW_POINTS) for step in range(_LAW_POINTS + 1)]
    return _Curve(
        width=_WIDTH,
        height=_HEIGHT,
        left=_LEFT,
        right=_WIDTH - _RIGHT,
        top=_TOP,
        bottom=_HEIGHT - _BOTTOM,
        across=tuple(tick(x(point.gpus), str(point.gpus)) for point in points),
        up=tuple(tick(y(value), f"{value:g}x") for value in round_values(highest)),
        marks=tuple(_mark(point, base, x(point.gpus), y) for point in points),
        line=path([(point.gpus, point.speedup) for point in points]),
        ideal=path([(gpus, gpus / base.gpus) for gpus in between]),
        law=_law(series, between, path),
    )


def _upper(point: Point, base: Point) -> float:
    ideal = point.gpus / base.gpus
    return max(point.speedup, ideal * point.interval[1] if point.interval is not None else 0.0)


def _mark(point: Point, base: Point, x: float, y: Callable[[float], float]) -> _Mark:
    ideal = point.gpus / base.gpus
    low, high = ("", "")
    said = f"{point.gpus} GPUs: {point.speedup:.2f}x"
    if point.interval is not None:
        low, high = (f"{y(ideal * bound):.1f}" for bound in point.interval)
        said += f", efficiency {point.interval[0]:.2f} to {point.interval[1]:.2f}"
    return _Mark(x=f"{x:.1f}", y=f"{y(point.speedup):.1f}", low=low, high=high, said=said)


def _law(series: Series, between: list[float], path: Callable[[list[tuple[float, float]]], str]) -> str:
    fit = series.usl
    if fit is None or fit.df == 0:
        return ""
    base = series.base.gpus

    def rate(gpus: float) -> float:
        return fit.gamma * gpus / (1 + fit.alpha * (gpus - 1) + fit.beta * gpus * (gpus - 1))

    first = series.base.mean
    values = [rate(gpus) / first for gpus in between]
    return path(list(zip(between, values, strict=True))) if base and all(map(math.isfinite, values)) else ""
