"""Plain SVG charts for the studies: lines, bars and intervals, readable on light and on dark pages.

A chart is a function from values to the text of a file. Colours are classes of one style sheet, which follows the
reader's colour scheme; series differ in marker as well as in colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

WIDTH: Final = 640
HEIGHT: Final = 380
LEFT, RIGHT, TOP, BOTTOM = 66, 18, 46, 78
N_COLOURS: Final = 6

# Okabe and Ito's colours, which people with any colour vision tell apart; lighter ones where the page is dark.
_LIGHT: Final = ("#0072b2", "#d55e00", "#009e73", "#a5508a", "#8a6d00", "#5a5a5a")
_DARK: Final = ("#56b4e9", "#ff9d57", "#3fd0a4", "#e39ac7", "#e6c34a", "#b5b5b5")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value at a place, and the ends of its error bar where it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points that belong together; `is_guide` draws them dashed and without markers: a line to compare with."""

    name: str
    points: tuple[Point, ...]
    is_guide: bool = False


@dataclass(frozen=True, slots=True)
class Count:
    """How often something happened, and whether that is as it should be."""

    n: int
    is_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What a chart says beside its values. `x_ticks` are (place, text); without them the places name themselves."""

    title: str
    x_label: str
    y_label: str
    x_ticks: tuple[tuple[float, str], ...] = ()


def line_chart(series: Sequence[Series], axes: Axes) -> str:
    """Gives a chart of lines over a base-2 logarithmic x axis, y from zero: throughput over ranks, say."""
    points = [point for one in series for point in one.points]
    xs = sorted({point.x for one in series if not one.is_guide for point in one.points})
    x_of = _scale(math.log2(xs[0]), math.log2(xs[-1]), LEFT + 24, WIDTH - RIGHT - 24)
    ticks = _ticks(0, max(_top(point) for point in points))
    y_of = _scale(0, ticks[-1], HEIGHT - BOTTOM, TOP)
    parts = [_y_axis(ticks, y_of)]
    parts += [_x_tick(x_of(math.log2(x)), text) for x, text in axes.x_ticks or [(x, f"{x:g}") for x in xs]]
    n_drawn = sum(not one.is_guide for one in series)
    for number, one in enumerate(series):
        # Side by side, not over each other: series meet at the same place and their bars must stay apart.
        shift = 0.0 if one.is_guide else 5 * (number - (n_drawn - 1) / 2)
        at = [(x_of(math.log2(point.x)) + shift, point) for point in one.points]
        path = " ".join(f"{x:.1f},{y_of(point.y):.1f}" for x, point in at)
        kind = "guide" if one.is_guide else f"line c{number % N_COLOURS}"
        parts.append(f'<polyline class="{kind}" points="{path}"/>')
        if not one.is_guide:
            parts += [_whisker(x, point, y_of, number) + _marker(x, y_of(point.y), number) for x, point in at]
    return _framed(parts, axes, [(one.name, one.is_guide) for one in series])


def bar_chart(groups: Sequence[str], series: Sequence[Series], axes: Axes) -> str:
    """Gives bars side by side in named groups; the x of a point is the number of its group."""
    ticks = _ticks(0, max(_top(point) for one in series for point in one.points))
    y_of = _scale(0, ticks[-1], HEIGHT - BOTTOM, TOP)
    room = (WIDTH - LEFT - RIGHT) / len(groups)
    bar = 0.76 * room / len(series)
    parts = [_y_axis(ticks, y_of)]
    parts += [_x_tick(LEFT + (number + 0.5) * room, name) for number, name in enumerate(groups)]
    for number, one in enumerate(series):
        for point in one.points:
            x, y = LEFT + (point.x + 0.12) * room + number * bar, y_of(point.y)
            size = f'width="{bar - 2:.1f}" height="{y_of(0) - y:.1f}"'
            parts.append(f'<rect class="fill c{number % N_COLOURS}" x="{x + 1:.1f}" y="{y:.1f}" {size}/>')
            parts.append(_whisker(x + bar / 2, point, y_of, None))
    return _framed(parts, axes, [(one.name, False) for one in series])


def interval_chart(rows: Sequence[tuple[str, Point]], axes: Axes) -> str:
    """Gives intervals over each other, one row each, against a line at zero; the y of a point is its value."""
    values = [value for _, point in rows for value in (point.y, point.low, point.high, 0.0) if value is not None]
    ticks = _ticks(min(values), max(values))
    name_width = 8 + 6.4 * max(len(name) for name, _ in rows)
    x_of = _scale(ticks[0], ticks[-1], LEFT / 2 + name_width, WIDTH - RIGHT - 8)
    bottom = HEIGHT - BOTTOM
    parts = []
    for tick in ticks:
        kind = "zero" if tick == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{x_of(tick):.1f}" x2="{x_of(tick):.1f}" y1="{TOP}" y2="{bottom}"/>')
        parts.append(_x_tick(x_of(tick), _number(tick)))
    room = (bottom - TOP) / len(rows)
    for number, (name, point) in enumerate(rows):
        y = TOP + (number + 0.5) * room
        parts.append(f'<text class="end" x="{LEFT / 2 + name_width - 12:.1f}" y="{y + 4:.1f}">{escape(name)}</text>')
        if point.low is not None and point.high is not None:
            low, high = x_of(point.low), x_of(point.high)
            ends = "".join(f"M{x:.1f},{y - 5:.1f}V{y + 5:.1f}" for x in (low, high))
            parts.append(f'<path class="line c0" d="M{low:.1f},{y:.1f}H{high:.1f}{ends}"/>')
        parts.append(_marker(x_of(point.y), y, 0))
    return _framed(parts, axes, [])


def scatter_chart(series: Sequence[Series], axes: Axes) -> str:
    """Gives points over two linear axes that hold zero; guides are dashed lines through their points."""
    points = [point for one in series for point in one.points]
    x_ticks = _ticks(min(0.0, *(point.x for point in points)), max(point.x for point in points))
    lowest = min(0.0, *(point.y if point.low is None else point.low for point in points))
    y_ticks = _ticks(lowest, max(_top(point) for point in points))
    x_of = _scale(x_ticks[0], x_ticks[-1], LEFT, WIDTH - RIGHT)
    y_of = _scale(y_ticks[0], y_ticks[-1], HEIGHT - BOTTOM, TOP)
    parts = [_y_axis(y_ticks, y_of), *(_x_tick(x_of(tick), _number(tick)) for tick in x_ticks)]
    for number, one in enumerate(series):
        if one.is_guide:
            path = " ".join(f"{x_of(point.x):.1f},{y_of(point.y):.1f}" for point in one.points)
            parts.append(f'<polyline class="guide" points="{path}"/>')
            continue
        for point in one.points:
            if point.low is not None and point.high is not None:
                ends = f"M{x_of(point.x):.1f},{y_of(point.low):.1f}V{y_of(point.high):.1f}"
                parts.append(f'<path class="line c{number % N_COLOURS}" d="{ends}" style="stroke-width:1;opacity:.6"/>')
            parts.append(_marker(x_of(point.x), y_of(point.y), number))
    return _framed(parts, axes, [(one.name, one.is_guide) for one in series])


def matrix_chart(
    rows: Sequence[str], columns: Sequence[str], cells: Mapping[tuple[str, str], Count], axes: Axes
) -> str:
    """Gives counts in a grid, darker for a larger share of their row; right ones in a colour of their own."""
    left = 24 + 6.8 * max(map(len, rows))
    width, height = (WIDTH - RIGHT - left) / len(columns), (HEIGHT - BOTTOM - TOP) / len(rows)
    parts = []
    for place, row in enumerate(rows):
        y = TOP + place * height
        total = sum(count.n for (of, _), count in cells.items() if of == row) or 1
        parts.append(f'<text class="end" x="{left - 8:.1f}" y="{y + height / 2 + 4:.1f}">{escape(row)}</text>')
        for number, column in enumerate(columns):
            count = cells.get((row, column), Count(0, is_right=False))
            x, share = left + number * width, count.n / total
            box = f'x="{x + 1:.1f}" y="{y + 1:.1f}" width="{width - 2:.1f}" height="{height - 2:.1f}"'
            colour = 2 if count.is_right else 1
            parts.append(f'<rect class="grid" fill="none" {box}/>')
            if count.n:
                parts.append(f'<rect class="fill c{colour}" {box} fill-opacity="{0.15 + 0.6 * share:.2f}"/>')
                at = f'x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}"'
                parts.append(f'<text class="middle" {at}>{count.n}</text>')
    for number, column in enumerate(columns):
        x, y = left + (number + 0.5) * width, HEIGHT - BOTTOM + 16
        turned = f'transform="rotate(-25 {x:.1f} {y})"'
        parts.append(f'<text class="end" x="{x + 8:.1f}" y="{y}" {turned}>{escape(column)}</text>')
    return _framed(parts, axes, [])


def _scale(first: float, last: float, begin: float, end: float) -> Callable[[float], float]:
    span = (last - first) or 1.0
    return lambda value: begin + (value - first) / span * (end - begin)


def _ticks(low: float, high: float) -> list[float]:
    """Gives round numbers from at most `low` to at least `high`, zero among them where it lies between."""
    rough = ((high - low) or 1.0) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _number(value: float) -> str:
    return f"{value:,.10g}".replace("-", "−")


def _top(point: Point) -> float:
    return max(point.y, point.high or 0.0)


def _y_axis(ticks: Sequence[float], y_of: Callable[[float], float]) -> str:
    lines = []
    for tick in ticks:
        y = y_of(tick)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text class="end" x="{LEFT - 8}" y="{y + 4:.1f}">{_number(tick)}</text>')
    return "\n".join(lines)


def _x_tick(x: float, text: str) -> str:
    return f'<text class="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}">{escape(text)}</text>'


def _whisker(x: float, point: Point, y_of: Callable[[float], float], number: int | None) -> str:
    if point.low is None or point.high is None:
        return ""
    low, high = y_of(max(point.low, 0.0)), y_of(point.high)
    kind = "whisker" if number is None else f"line c{number % N_COLOURS}"
    caps = "".join(f"M{x - 4:.1f},{y:.1f}h8" for y in (low, high))
    return f'<path class="{kind}" d="M{x:.1f},{low:.1f}V{high:.1f}{caps}"/>'


def _marker(x: float, y: float, number: int) -> str:
    kind = f"fill c{number % N_COLOURS}"
    shapes = (
        f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/>',
        f'<rect class="{kind}" x="{x - 4:.1f}" y="{y - 4:.1f}" width="8" height="8"/>',
        f'<path class="{kind}" d="M{x:.1f},{y - 5.5:.1f}l5,9h-10z"/>',
        f'<path class="{kind}" d="M{x:.1f},{y - 6:.1f}l5.5,6l-5.5,6l-5.5,-6z"/>',
    )
    return shapes[number % len(shapes)]


def _legend(names: Sequence[tuple[str, bool]]) -> list[str]:
    parts, x = [], float(LEFT)
    for number, (name, is_guide) in enumerate(names):
        y = HEIGHT - 14
        sign = f'<line class="guide" x1="{x}" x2="{x + 14}" y1="{y - 4}" y2="{y - 4}"/>'
        parts.append(sign if is_guide else _marker(x + 7, y - 4, number))
        parts.append(f'<text x="{x + 20:.1f}" y="{y}">{escape(name)}</text>')
        x += 36 + 6.6 * len(name)
    return parts


def _style() -> str:
    """Gives the style sheet, without CSS variables: not every reader of SVG knows them."""

    def rules(ink: str, faint: str, colours: Sequence[str]) -> str:
        of_series = (f".line.c{n}{{stroke:{colour}}}.fill.c{n}{{fill:{colour}}}" for n, colour in enumerate(colours))
        return f"text{{fill:{ink}}}.zero,.whisker,.guide{{stroke:{ink}}}.grid{{stroke:{faint}}}{''.join(of_series)}"

    return (
        "<style>text{font:12px system-ui,sans-serif}.title{font-size:15px;font-weight:600}"
        ".end{text-anchor:end}.middle{text-anchor:middle}.zero,.whisker{fill:none;stroke-width:1.5}"
        ".guide{stroke-dasharray:5 4;fill:none;opacity:.6}.line{stroke-width:2;fill:none}"
        + rules("#1f2328", "#d0d7de", _LIGHT)
        + "@media (prefers-color-scheme:dark){"
        + rules("#e6edf3", "#3d444d", _DARK)
        + "}</style>"
    )


def _framed(parts: Sequence[str], axes: Axes, names: Sequence[tuple[str, bool]]) -> str:
    middle, center = (TOP + HEIGHT - BOTTOM) / 2, (LEFT + WIDTH - RIGHT) / 2
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    lines = [
        head,
        f"<title>{escape(axes.title)}</title>",
        _style(),
        f'<text class="title" x="{LEFT / 2}" y="24">{escape(axes.title)}</text>',
        *parts,
        f'<text class="middle" x="{center}" y="{HEIGHT - BOTTOM + 38}">{escape(axes.x_label)}</text>',
    ]
    if axes.y_label:
        turned = f'transform="rotate(-90 16 {middle})"'
        lines.append(f'<text class="middle" x="16" y="{middle}" {turned}>{escape(axes.y_label)}</text>')
    return "\n".join([*lines, *_legend(names), "</svg>", ""])
