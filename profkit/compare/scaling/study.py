"""A scaling study: efficiencies with their intervals, and whether the base deserves to be one.

Throughput per GPU is p_N = X_N / N and efficiency against the base M is E = p_N / p_M, for strong and weak scaling
alike. Its interval is that of log E, se(log E)^2 = s_N^2 / n_N + s_M^2 / n_M of the runs' logs; it takes repeated runs.
What it follows is Gunther's universal scalability law through the sizes of a series; where it went is log E of two
traced sizes as a signed sum over compute speed and the parts of the step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.compare.captures.sides import Run
from profkit.compare.scaling import suspicion
from profkit.compare.stats.inference import welch
from profkit.compare.stats.judge import DEFAULT_ALPHA
from profkit.compare.stats.sample import variation
from profkit.compare.tables.headings import Metric
from profkit.compare.tables.result_tables import ResultTable, Row
from profkit.errors import TraceFormatError, UsageError
from profkit.model.budget import Budget
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.scaling import Decomposition, Held, Point, ScalingReport, Series, Share, Standing, UslFit
from profkit.model.grouped import grouped

SUPERLINEAR_FROM: Final = 1.05
"""Efficiency that accuses the base whatever its interval; below, an interval above 1 does (chosen)."""

Traces = Mapping[int, Sequence[RankReport]]
"""The ranks of one traced run, by number of GPUs."""
WORK_PART = "work per compute second"
MIN_SIZES = 3
"""The law has three parameters; below, no fit. Guidance for a fit worth its error is six sizes or more (Gunther)."""
STEP = Metric(column="step", unit="ns/step", higher_is_better=False)


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
    shown = _varying_labels(runs)
    found: list[Series] = []
    warnings = [warning for table in tables for warning in table.warnings]
    by_labels = grouped(
        (tuple(label for label in (*run.labels, ("arm", run.arm)) if label[0] in shown), run) for run in runs
    )
    for labels, group in by_labels.items():
        name = ", ".join(f"{heading}={value}" for heading, value in labels) or "all runs"
        chosen, remarks = _series_runs(name, group, held)
        warnings += remarks
        found += [_series(name, kind, unit, members) for kind, members in chosen]
    if not found:
        sizes = sorted({run.gpus for run in runs if run.gpus})
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


def _sized(tables: Sequence[ResultTable], held: Held | None) -> tuple[str, list[Row]]:
    """Every run, its value the throughput of all its GPUs in one unit; a time per step becomes work per second."""
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
        return unit, rows
    has_work = all(row.work is not None for row in rows)
    runs = []
    for row in rows:
        steps_per_s = row.value if unit == "steps/s" else 1e9 / row.value
        per_step = row.work if has_work else row.gpus if held is Held.WEAK else 1
        runs.append(replace(row, value=steps_per_s * (per_step or 1)))
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


def _series_runs(name: str, runs: Sequence[Row], held: Held | None) -> tuple[list[tuple[Held, list[Row]]], list[str]]:
    """The sets of runs that hold work constant, and what was left out and why."""
    if any(run.work is None for run in runs):
        if len({run.gpus for run in runs}) < 2:
            return [], [f"{name}: only one size, nothing to scale"]
        assumed = (
            [] if held else [f"{name}: the work per step is unknown; profkit assumes it is the same at every size"]
        )
        return [(held or Held.UNKNOWN, list(runs))], assumed
    chosen: list[tuple[Held, list[Row]]] = []
    for kind in (Held.STRONG, Held.WEAK):
        if held not in (None, kind):
            continue
        by_work = grouped(((run.work or 0) / (1 if kind is Held.STRONG else run.gpus or 1), run) for run in runs)
        chosen += [(kind, group) for group in by_work.values() if len({run.gpus for run in group}) > 1]
    used = {id(run) for _, group in chosen for run in group}
    left = sorted({run.gpus or 0 for run in runs if id(run) not in used})
    sizes = ", ".join(map(str, left))
    return chosen, [f"{name}: no other size has the same work per step as the runs on {sizes} GPUs"] if left else []


def _series(name: str, kind: Held, unit: str, runs: Sequence[Row]) -> Series:
    sizes = sorted({run.gpus or 0 for run in runs})
    points = tuple(_point([run for run in runs if run.gpus == size]) for size in sizes)
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


def _point(rows: Sequence[Row]) -> Point:
    """A size without its efficiency, which `_based` adds."""
    values = tuple(row.value for row in rows)
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


def fit_usl(gpus: Sequence[int], throughput: Sequence[float]) -> UslFit | None:
    """The least squares fit in relative error, None below three different sizes.

    The law is linear in 1/gamma, alpha/gamma and beta/gamma: N / X = (1 + alpha (N - 1) + beta N (N - 1)) / gamma, and
    rows are weighted by X / N so that an error of 1 % counts alike at every size.
    """
    sizes, rates = np.array(gpus, np.float64), np.array(throughput, np.float64)
    n_sizes = len(set(gpus))
    if n_sizes < MIN_SIZES:
        return None
    weights = rates / sizes
    columns = np.column_stack((np.ones_like(sizes), sizes - 1, sizes * (sizes - 1)))
    (inverse, contention, coherency), *_ = np.linalg.lstsq(columns * weights[:, None], np.ones_like(sizes), rcond=None)
    if inverse <= 0:  # sizes so far from the law that one GPU would have no throughput
        return None
    misfit = (columns @ (inverse, contention, coherency)) * weights - 1
    df = n_sizes - MIN_SIZES
    alpha, beta = float(contention / inverse), float(coherency / inverse)
    return UslFit(
        gamma=float(1 / inverse),
        alpha=alpha,
        beta=beta,
        df=df,
        residual=math.sqrt(float(misfit @ misfit) / df) if df else None,
        peak_gpus=math.sqrt((1 - alpha) / beta) if beta > 0 and alpha < 1 else None,
    )


def serial_fraction(speedup: float, times_the_gpus: float) -> float:
    """Karp and Flatt's experimentally determined serial fraction; negative where the speed-up is superlinear."""
    return (1 / speedup - 1 / times_the_gpus) / (1 - 1 / times_the_gpus)


def decomposed(series: Series, traces: Mapping[int, Sequence[RankReport]]) -> tuple[Decomposition, ...]:
    """The account of each traced size against the series' base, which must be traced as well."""
    base = traces.get(series.base.gpus)
    if base is None:
        return ()
    found = []
    for point in series.points[1:]:
        ranks = traces.get(point.gpus)
        growth = _work_per_gpu(series, point) / _work_per_gpu(series, series.base)
        if ranks is None or (account := decompose(base, ranks, work_growth=growth)) is None:
            continue
        one = Decomposition(
            base_gpus=series.base.gpus,
            gpus=point.gpus,
            efficiency=account[0],
            parts=account[1],
            is_cpu=all(device.kind == "cpu" for rank in ranks for device in rank.devices),
        )
        found.append(one)
    return tuple(found)


def _work_per_gpu(series: Series, point: Point) -> float:
    if point.work_per_step is not None:
        return point.work_per_step / point.gpus
    return 1.0 if series.held is Held.WEAK else 1 / point.gpus


def decompose(
    base: Sequence[RankReport], larger: Sequence[RankReport], *, work_growth: float
) -> tuple[float, tuple[Share, ...]] | None:
    """E and the signed parts of log E, which sum to it; None where a trace has no steps or no compute.

    `work_growth` is the work of a GPU and step at the larger size over that at the base. With T the step, K its compute
    time and w its work, E = (w/T) ratio = (w/K) ratio times (K/T) ratio (docs/statistics.md 5). The first is 0 in logs
    where both run the same kernels on the same work. The second is divided among the parts that are not compute by the
    logarithmic mean of the two compute shares, which leaves no rest (LMDI, Ang 2005).
    """
    before, after = _account(base), _account(larger)
    if before is None or after is None:
        return None
    (step_old, shares_old), (step_new, shares_new) = before, after
    busy_old, busy_new = shares_old["compute"], shares_new["compute"]
    of_work = math.log(work_growth * step_old * busy_old / (step_new * busy_new))
    of_share = math.log(busy_new / busy_old)
    mean = (busy_new - busy_old) / of_share if abs(of_share) > 1e-12 else busy_new
    parts = [Share(name=WORK_PART, log_efficiency=of_work)]
    parts += [
        Share(name=name, log_efficiency=(shares_old[name] - shares_new[name]) / mean)
        for name in shares_old
        if name != "compute" and (shares_old[name] or shares_new[name])
    ]
    return work_growth * step_old / step_new, tuple(parts)


def _account(ranks: Sequence[RankReport]) -> tuple[float, dict[str, float]] | None:
    """The mean step (ns) and the shares of its parts, over all devices of the ranks."""
    budgets: list[Budget] = [device.budget for rank in ranks for device in rank.devices]
    n_steps = sum(rank.steps.n * len(rank.devices) for rank in ranks)
    window_ns = sum(budget.window_ns for budget in budgets)
    if not n_steps or not window_ns or not sum(budget.compute for budget in budgets):
        return None
    names = budgets[0].parts
    return window_ns / n_steps, {name: sum(budget.parts[name] for budget in budgets) / window_ns for name in names}


def traced_table(source: str, runs: Sequence[Run]) -> tuple[ResultTable, Mapping[int, Sequence[RankReport]]]:
    """The runs as a table and, for each number of GPUs, the ranks of its first run.

    Steps timed without the profiler count where every run has them. The work of a step is not in a trace. Raises
    TraceFormatError for a run without steps.
    """
    is_unprofiled = all(run.has_unprofiled for run in runs)
    rows: list[Row] = []
    traces: dict[int, Sequence[RankReport]] = {}
    for number, run in enumerate(runs, 1):
        steps = run.steps_ns(is_unprofiled=is_unprofiled)
        if not steps:
            raise TraceFormatError(f"{run.name} has no steps to compute a throughput from", hint="capture whole steps")
        gpus = _world_size(run)
        traces.setdefault(gpus, [trace.report for trace in run.traces])
        rows.append(Row(line=number, value=float(np.mean(steps)), gpus=gpus))
    is_cpu = any(trace.is_cpu for run in runs for trace in run.traces)
    warnings = ("CPU processes are counted as GPUs; they share the cores",) if is_cpu else ()
    return ResultTable(source=source, metric=STEP, rows=tuple(rows), warnings=warnings), traces


def _world_size(run: Run) -> int:
    """The ranks of the job: as the traces tell, else as many as there are."""
    told = [trace.meta.world_size for trace in run.traces if trace.meta.world_size]
    return max([*told, len({trace.meta.rank for trace in run.traces})])
