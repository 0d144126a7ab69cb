"""A ladder report as a page: for each series its total, its rungs and its memory as pictures, and what limits them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from profkit.model.documents.ladder import Ladder, LadderReport, Rung, Spot
from profkit.render.html import page
from profkit.render.html.parts import tables
from profkit.render.html.parts.axes import Tick, round_values, tick
from profkit.render.words import ladder as words
from profkit.units import format_bytes, format_speedup


def render(report: LadderReport, *, with_paths: bool = False, **_: object) -> str:
    """The report as one HTML file: without folders and names of hosts, unless `with_paths`."""
    first = report.ladders[0]
    return page.made(
        "ladder.html.j2",
        title=f"{words.name(first)}: {words.headline(first)}",
        sources=(report.source,),
        with_paths=with_paths,
        report=report,
        words=words,
        ladders=[_ladder(report, one) for one in report.ladders],
    )


def _ladder(report: LadderReport, ladder: Ladder) -> Mapping[str, Any]:
    n_left = words.n_left(report)
    spots = tables.of_words("", *words.spots(report, ladder), n_left=n_left + 1)
    return {
        "ladder": ladder,
        "steps": _steps(report, ladder),
        "front": _front(report, ladder),
        "rungs": tables.of_words("rungs", *words.table(report, ladder), n_left=n_left, is_sortable=False),
        "spots": spots if ladder.spots else None,
    }


# ----------------------------------------------------------------------------------------------------------- pictures


_WIDTH: Final = 640
_LEFT: Final = 210
_RIGHT: Final = 64
_ROW: Final = 34
_TOP: Final = 8
_LABEL: Final = 28
"""Letters of a rung's name for which there is room."""
_TICKS: Final = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0, 20.0, 30.0, 50.0, 100.0)
_HEIGHT: Final = 360
_EDGE: Final = 70
_BOTTOM: Final = 48


class _Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A rung: from 1x to the rung before (`until`), and on to where it is; the interval of its factor, "" for none.

    `end` is where its value is written.
    """

    label: str
    said: str
    value: str
    y: int
    begin: str
    until: str
    x: str
    width: str
    end: str
    is_loss: bool
    low: str
    high: str


class _Steps(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of bars over a logarithmic axis: equal factors are equally long."""

    width: int
    height: int
    top: int
    bottom: int
    left: int
    ticks: tuple[Tick, ...]
    bars: tuple[_Bar, ...]


class _Dot(msgspec.Struct, frozen=True, kw_only=True):
    """A cell: its place, and what it says; on the front its name as well, before or behind its place."""

    x: str
    y: str
    is_front: bool
    said: str
    name: str
    is_before: bool
    label_x: str
    label_y: str


class _Front(msgspec.Struct, frozen=True, kw_only=True):
    """A picture of cells over peak memory (across) and speed (up); `line` passes along the front."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    dots: tuple[_Dot, ...]
    line: str


def _steps(report: LadderReport, ladder: Ladder) -> _Steps | None:
    """The picture of a ladder; None of a base alone, or of factors that no axis holds."""
    if len(ladder.rungs) < 2:
        return None
    totals = [_total(one) for one in ladder.rungs]
    ends = [*totals, *(end for place, one in enumerate(ladder.rungs) for end in _ends(one, totals, place))]
    low, high = min(ends), max(ends)
    if not (low > 0 and math.isfinite(high / low) and high > low):
        return None

    def at(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * math.log(value / low) / math.log(high / low)

    bottom = _TOP + _ROW * len(ladder.rungs)
    ticks = tuple(tick(at(value), f"{value:g}x") for value in _TICKS if low <= value <= high)
    return _Steps(
        width=_WIDTH,
        height=bottom + 30,
        top=_TOP,
        bottom=bottom,
        left=_LEFT,
        ticks=ticks,
        bars=tuple(_bar(report, one, place, totals, at) for place, one in enumerate(ladder.rungs)),
    )


def _total(one: Rung) -> float:
    return 1.0 if one.over_first is None else one.over_first.value


def _ends(one: Rung, totals: list[float], place: int) -> Iterator[float]:
    """The interval of a rung's own factor, drawn from where the ladder was."""
    interval = None if one.over_before is None else one.over_before.interval
    if interval is not None and interval[0] > 0:
        yield from (totals[place - 1] * end for end in interval)


def _bar(report: LadderReport, one: Rung, place: int, totals: list[float], at: Callable[[float], float]) -> _Bar:
    before, now = totals[max(place - 1, 0)], totals[place]
    begin, end = sorted((at(before), at(now)))
    ends = [f"{at(value):.1f}" for value in _ends(one, totals, place)] or ["", ""]
    name = words.step_name(one)
    gain = "the base" if one.over_before is None else f"{format_speedup(one.over_before.value)} of the rung before"
    return _Bar(
        label=_fitted(name, _LABEL),
        said=f"{words.of_cell(report, one.cell)}: {words.value(one.cell.mean, report.unit)} {report.unit}, {gain}",
        value=format_speedup(now),
        y=_TOP + _ROW * place + _ROW // 2,
        begin=f"{at(1.0):.1f}",
        until=f"{max(at(before) - at(1.0), 0):.1f}",
        x=f"{begin:.1f}",
        width=f"{max(end - begin, 2):.1f}",
        end=f"{end + 8:.1f}",
        is_loss=now < before,
        low=ends[0],
        high=ends[1],
    )


def _front(report: LadderReport, ladder: Ladder) -> _Front | None:
    """The picture of all cells of known memory; None of fewer than two, or where all are at one place."""
    spots = ladder.spots
    sizes = [spot.cell.memory_bytes or 0.0 for spot in spots]
    speeds = [_speed(report, spot.cell.mean) for spot in spots]
    if len(spots) < 2 or max(sizes) < 1 or not math.isfinite(max(speeds)):
        return None
    most, fastest = max(sizes), max(speeds)
    right, bottom = _WIDTH - 20, _HEIGHT - _BOTTOM

    def x(size: float) -> float:
        return _EDGE + (right - _EDGE) * size / most

    def y(speed: float) -> float:
        return bottom - (bottom - _TOP) * speed / fastest

    places = [(x(size), y(speed)) for size, speed in zip(sizes, speeds, strict=True)]
    along = [place for spot, place in zip(spots, places, strict=True) if spot.by is None]
    return _Front(
        width=_WIDTH,
        height=_HEIGHT,
        left=_EDGE,
        right=right,
        top=_TOP,
        bottom=bottom,
        across=tuple(tick(x(size), format_bytes(size)) for size in round_values(most)),
        up=tuple(tick(y(speed), f"{speed:,.6g}") for speed in round_values(fastest)),
        dots=tuple(_dot(report, spot, place, right) for spot, place in zip(spots, places, strict=True)),
        line=_staircase(along, right),
    )


def _dot(report: LadderReport, spot: Spot, place: tuple[float, float], right: int) -> _Dot:
    cell, (x, y) = spot.cell, place
    is_front, is_before = spot.by is None, x > 0.6 * right
    speed = f"{words.value(cell.mean, report.unit)} {report.unit}"
    return _Dot(
        x=f"{x:.1f}",
        y=f"{y:.1f}",
        is_front=is_front,
        said=f"{words.of_cell(report, cell)}: {speed}, {words.memory(cell)}",
        name=_fitted(words.of_cell(report, cell), 2 * _LABEL) if is_front else "",
        is_before=is_before,
        label_x=f"{x + (-10 if is_before else 10):.1f}",
        label_y=f"{y + 16:.1f}",
    )


def _fitted(name: str, most: int) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _staircase(along: list[tuple[float, float]], right: int) -> str:
    """The front: up to a memory, the speed of the fastest cell that takes no more."""
    points = []
    for (x, y), (after, _) in zip(along, [*along[1:], (float(right), 0.0)], strict=True):
        points += [f"{x:.1f},{y:.1f}", f"{after:.1f},{y:.1f}"]
    return " ".join(points)


def _speed(report: LadderReport, mean: float) -> float:
    return mean if report.higher_is_better else 1e9 / mean
