"""A scaling study: efficiencies with their intervals, and whether the base deserves to be one.

Throughput per GPU is p_N = X_N / N and efficiency against the base M is E = p_N / p_M, for strong and weak scaling
alike. Its interval is that of log E, se(log E)^2 = s_N^2 / n_N + s_M^2 / n_M of the runs' logs; it takes repeated runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.compare.scaling import suspicion
from profkit.compare.scaling.efficiency import decomposed, fit_usl, serial_fraction
from profkit.compare.stats.inference import welch
from profkit.compare.stats.judge import DEFAULT_ALPHA
from profkit.compare.stats.sample import variation
from profkit.compare.tables.result_tables import ResultTable, Row
from profkit.errors import UsageError
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.scaling import Held, Point, ScalingReport, Series, Standing
from profkit.model.grouped import grouped

SUPERLINEAR_FROM: Final = 1.05
"""Efficiency that accuses the base whatever its interval; below, an interval above 1 does (chosen)."""

Traces = Mapping[int, Sequence[RankReport]]
"""The ranks of one traced run, by number of GPUs."""


class SizedRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run: throughput of all its GPUs together, in the unit of the study."""

    throughput: float
    row: Row


def scale(
    tables: Sequence[ResultTable],
    *,
    held: Held | None = None,
    capacity_bytes: float | None = None,
    traces: Traces | None = None,
) -> ScalingReport:
    """The report on the runs of one table or more.

    What a series holds constant is read from batch columns; `held` says it where there are none, and picks one kind
    where there are. `capacity_bytes` is the memory of a device, where no column says. `traces` are of the tables' one
    configuration. Raises UsageError for tables without GPUs, of different units, with a single size, or where it is
    open which configuration the traces are of.
    """
    unit, runs = _sized(tables, held)
    shown = _varying_labels([run.row for run in runs])
    found: list[Series] = []
    warnings = [warning for table in tables for warning in table.warnings]
    for labels, group in _by_labels(runs, shown).items():
        name = ", ".join(f"{heading}={value}" for heading, value in labels) or "all runs"
        chosen, remarks = _series_runs(name, group, held)
        warnings += remarks
        found += [_series(name, kind, unit, members) for kind, members in chosen]
    if not found:
        sizes = sorted({run.row.gpus for run in runs if run.row.gpus})
        raise UsageError(
            f"nothing to scale: sizes {', '.join(map(str, sizes))} in {len(runs)} runs, no two comparable",
            hint="give two GPU counts of one configuration, with the same work per step or per GPU",
        )
    names = list(dict.fromkeys(series.name for series in found))
    if traces and len(names) > 1:
        raise UsageError(
            f"the traces belong to one of {len(names)} configurations, but which one is unknown",
            hint=f"keep one in the table: {'; '.join(names[:3])}",
        )
    context = suspicion.Context(series=tuple(found), capacity_bytes=capacity_bytes, traces=traces or {})
    judged = tuple(suspicion.judged(series, context, _rebased(series)) for series in found)
    return ScalingReport(
        sources=tuple(table.source for table in tables),
        series=tuple(replace(series, decompositions=decomposed(series, traces or {})) for series in judged),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _sized(tables: Sequence[ResultTable], held: Held | None) -> tuple[str, list[SizedRun]]:
    """Every run as throughput in one unit; a time per step becomes work per second."""
    units = {table.metric.unit for table in tables}
    if len(units) > 1:
        raise UsageError(
            f"the tables measure different things: {', '.join(sorted(units))}", hint="choose with --metric"
        )
    rows = [row for table in tables for row in table.rows]
    unsized = next((row for row in rows if row.gpus is None), None)
    if unsized is not None:
        raise UsageError(
            f"{tables[0].source} does not say how many GPUs line {unsized.line} ran on",
            hint="add a column named gpus or world_size",
        )
    (unit,) = units
    if unit.endswith("/s") and unit != "steps/s":
        return unit, [SizedRun(throughput=row.value, row=row) for row in rows]
    has_work = all(row.work is not None for row in rows)
    runs = []
    for row in rows:
        steps_per_s = row.value if unit == "steps/s" else 1e9 / row.value
        per_step = row.work if has_work else row.gpus if held is Held.WEAK else 1
        runs.append(SizedRun(throughput=steps_per_s * (per_step or 1), row=row))
    counted = {row.work_unit for row in rows}
    if has_work and len(counted) > 1:
        raise UsageError(
            "some rows have the tokens of a step, others only a batch", hint="give every row its tokens_per_step"
        )
    return f"{counted.pop()}/s" if has_work else "shares of work/s" if held is Held.WEAK else "steps/s", runs


def _varying_labels(rows: Sequence[Row]) -> frozenset[str]:
    """The headings whose values differ: the others tell no series apart."""
    values: dict[str, set[str]] = {}
    for row in rows:
        for heading, value in (*row.labels, *((("arm", row.arm),) if row.arm else ())):
            values.setdefault(heading, set()).add(value)
    return frozenset(heading for heading, seen in values.items() if len(seen) > 1)


def _by_labels(runs: Sequence[SizedRun], shown: frozenset[str]) -> dict[tuple[tuple[str, str], ...], list[SizedRun]]:
    return grouped(
        (tuple(label for label in (*run.row.labels, ("arm", run.row.arm)) if label[0] in shown), run) for run in runs
    )


def _series_runs(
    name: str, runs: Sequence[SizedRun], held: Held | None
) -> tuple[list[tuple[Held, list[SizedRun]]], list[str]]:
    """The sets of runs that hold work constant, and what was left out and why."""
    if any(run.row.work is None for run in runs):
        if len({run.row.gpus for run in runs}) < 2:
            return [], [f"{name}: only one size, nothing to scale"]
        assumed = (
            [] if held else [f"{name}: the work per step is unknown; profkit assumes it is the same at every size"]
        )
        return [(held or Held.UNKNOWN, list(runs))], assumed
    chosen: list[tuple[Held, list[SizedRun]]] = []
    for kind in (Held.STRONG, Held.WEAK):
        if held not in (None, kind):
            continue
        by_work = grouped(
            ((run.row.work or 0) / (1 if kind is Held.STRONG else run.row.gpus or 1), run) for run in runs
        )
        chosen += [(kind, group) for group in by_work.values() if len({run.row.gpus for run in group}) > 1]
    used = {id(run) for _, group in chosen for run in group}
    left = sorted({run.row.gpus or 0 for run in runs if id(run) not in used})
    sizes = ", ".join(map(str, left))
    return chosen, [f"{name}: no other size has the same work per step as the runs on {sizes} GPUs"] if left else []


def _series(name: str, kind: Held, unit: str, runs: Sequence[SizedRun]) -> Series:
    sizes = sorted({run.row.gpus or 0 for run in runs})
    points = tuple(_point([run for run in runs if run.row.gpus == size]) for size in sizes)
    series = Series(
        name=name,
        held=kind,
        unit=unit,
        points=points,
        usl=fit_usl(sizes, [point.mean for point in points]),
        standing=Standing.SOUND,
        clues=(),
        honest=(),
        next_command="",
        decompositions=(),
        sentence="",
    )
    return _based(series, points)


def _point(runs: Sequence[SizedRun]) -> Point:
    """A size without its efficiency, which `_based` adds."""
    rows = [run.row for run in runs]
    values = tuple(run.throughput for run in runs)
    return Point(
        gpus=rows[0].gpus or 0,
        runs=values,
        mean=float(np.mean(values)),
        cv=variation(values),
        speedup=1.0,
        efficiency=None,
        interval=None,
        is_pilot=False,
        serial_fraction=None,
        memory_bytes=max((row.memory_bytes for row in rows if row.memory_bytes is not None), default=None),
        capacity_bytes=next((row.capacity_bytes for row in rows if row.capacity_bytes is not None), None),
        work_per_step=_common([row.work for row in rows]),
        micro_batch=_common([row.micro_batch for row in rows]),
        accumulation=_common([row.accumulation for row in rows]),
    )


def _common(values: Sequence[float | None]) -> float | None:
    return values[0] if len(set(values)) == 1 else None


def _based(series: Series, points: Sequence[Point]) -> Series:
    """The series of these sizes, the first of which is the base."""
    base, *others = points
    alone = replace(base, speedup=1.0, efficiency=None, interval=None, is_pilot=False, serial_fraction=None)
    against = (alone, *(_against(point, base) for point in others))
    return replace(series, points=against, standing=_standing(against))


def _against(point: Point, base: Point) -> Point:
    growth, speedup = point.gpus / base.gpus, point.mean / base.mean
    return replace(
        point,
        speedup=speedup,
        efficiency=speedup / growth,
        interval=efficiency_interval(point.runs, base.runs, growth),
        is_pilot=min(point.n, base.n) == 2,
        serial_fraction=serial_fraction(speedup, growth),
    )


def efficiency_interval(runs: Sequence[float], base: Sequence[float], growth: float) -> tuple[float, float] | None:
    """The interval of E from Welch on logs; None where a side has one run, or nothing varies.

    It holds the quotient of the means, which is what is printed: where runs vary manyfold that is far from the quotient
    of the means of logs, and the interval is wider for it.
    """
    if min(len(runs), len(base)) < 2:
        return None
    estimate = welch(list(np.log(base)), list(np.log(runs)))
    if estimate is None:
        return None
    low, high = (math.exp(end) / growth for end in estimate.interval(DEFAULT_ALPHA))
    of_means = float(np.mean(runs)) / float(np.mean(base)) / growth
    return min(low, of_means), max(high, of_means)


def _standing(points: Sequence[Point]) -> Standing:
    if _is_superlinear(points[-1]):
        return Standing.ACCUSED
    return Standing.DOUBTFUL if any(map(_is_superlinear, points)) else Standing.SOUND


def _is_superlinear(point: Point) -> bool:
    if point.efficiency is None:
        return False
    return point.efficiency > SUPERLINEAR_FROM or (point.interval is not None and point.interval[0] > 1)


def _rebased(series: Series) -> Series | None:
    """The series from its smallest base that is in no doubt; None if no two sizes remain."""
    kept = (_based(series, series.points[first:]) for first in range(1, len(series.points) - 1))
    return next((rest for rest in kept if rest.standing is Standing.SOUND), None)
