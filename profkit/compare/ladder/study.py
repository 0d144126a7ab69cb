"""A table of runs to its ladders: one for each series, and the changes that gain in one place and lose in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from profkit.compare.ladder import sentences
from profkit.compare.ladder.cells import Rate, Tried, cells_of, noise_of, rates, unlike
from profkit.compare.ladder.climb import climb
from profkit.compare.ladder.columns import Columns, columns_of, counts_of
from profkit.compare.ladder.effects import Found, effects_of
from profkit.compare.ladder.interaction import interactions_of
from profkit.compare.ladder.pareto import front_of
from profkit.compare.ladder.plan import (
    Plan,
    alike,
    chained,
    companions_of,
    layers_by_names,
    layers_of,
    order_of,
    twofold,
)
from profkit.compare.stats.judge import DEFAULT_MARGIN
from profkit.compare.tables.records import Cells, read_records
from profkit.compare.tables.result_tables import ResultTable, is_number, table_of
from profkit.errors import UsageError
from profkit.model.documents.ladder import Counts, Ladder, LadderReport, Noise, OrderSource
from profkit.model.switches import says_off, says_on

MOST_RUNGS: Final = 64
"""Different rungs of a table (chosen: nobody climbs more, and pairs grow as the square); more are another column."""


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked beside the table; None leaves it to the names of the columns."""

    order: str | None = None
    rung: str | None = None
    series: tuple[str, ...] | None = None
    settings: tuple[str, ...] = ()
    metric: str | None = None
    margin: float = DEFAULT_MARGIN


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the ladders of all series share."""

    plan: Plan
    unit: str
    margin: float
    noise: Noise | None
    counts: Counts


def climb_table(path: str | Path, asked: Asked | None = None) -> LadderReport:
    """The report on the table in a CSV, TSV or JSON file; raises as `climb_records` and `read_table` do."""
    file = Path(path)
    return climb_records(file.name, read_records(file), asked or Asked())


def climb_records(source: str, records: Sequence[tuple[int, Cells]], asked: Asked) -> LadderReport:
    """The report on the records of a table.

    Raises UsageError or TraceFormatError for a table that names no rungs, has too many or only one of them, or whose
    numbers are none.
    """
    table = table_of(source, records, metric=asked.metric)
    columns = columns_of(
        [cells for _, cells in records],
        table.metric,
        source,
        rung=asked.rung,
        series=asked.series,
        settings=asked.settings,
    )
    rate = rates(table)
    by_line = dict(records)
    series = _named(cells_of(table, by_line, columns, rate), columns)
    cells = [one for members in series.values() for one in members]
    plan = _plan(source, cells, columns, by_line, asked)
    noise = noise_of(cells)
    counts = counts_of(table.metric, rate.unit)
    known = _Known(plan=plan, unit=rate.unit, margin=asked.margin, noise=noise, counts=counts)
    ladders, warnings = _ladders(series, known)
    warnings += _layers_left(columns, cells, by_line, plan)
    warnings += [
        f"runs that count as repeats differ in {name}; if that is a setting, say --settings {name}"
        for name in unlike(table, by_line, columns)
    ]
    if not ladders:
        raise UsageError(
            f"{source} has no two rungs to compare in one series ({_series_told(columns)})",
            hint="name the rungs' column with --rung, or the columns that tell series apart with --series",
        )
    return _report(table, columns, rate, known, ladders, effects_of(series, columns, plan, asked.margin), warnings)


def _report(  # noqa: PLR0913, PLR0917 - the parts of one document
    table: ResultTable,
    columns: Columns,
    rate: Rate,
    known: _Known,
    ladders: Sequence[Ladder],
    found: Found,
    warnings: Sequence[str],
) -> LadderReport:
    plan = known.plan
    return LadderReport(
        source=table.source,
        metric=table.metric.column,
        unit=rate.unit,
        higher_is_better=rate.higher_is_better,
        counts=known.counts,
        rung_column=columns.rung,
        series_columns=columns.series,
        setting_columns=tuple(name for name in columns.settings if name not in plan.companions),
        order=plan.groups,
        order_source=plan.source,
        are_layers_told=plan.is_told,
        margin=known.margin,
        noise=known.noise,
        ladders=tuple(ladders),
        n_pairs=found.n_pairs,
        n_mixed=found.n_mixed,
        effects=tuple(
            replace(one, sentence=sentences.effect(one, columns.rung, known.margin)) for one in found.effects
        ),
        warnings=(*table.warnings, *rate.warnings, *warnings),
    )


def _named(cells: Mapping[tuple[str, ...], list[Tried]], columns: Columns) -> dict[str, list[Tried]]:
    """The cells by the name of their series: `small, stage 1`."""
    named: dict[str, list[Tried]] = {}
    for key, mine in cells.items():
        said = ", ".join(_told(heading, value) for heading, value in zip(columns.series, key, strict=True))
        name = said or "all runs"
        named[f"{name} ({len(named) + 1})" if name in named else name] = mine
    return named


def _told(heading: str, value: str) -> str:
    if not value:
        return f"no {heading}"
    is_word = not is_number(value) and not says_on(value) and not says_off(value)
    return value if is_word else f"{heading} {value}"


def _series_told(columns: Columns) -> str:
    return f"told apart by {', '.join(columns.series)}" if columns.series else "all runs are one"


def _plan(source: str, cells: Sequence[Tried], columns: Columns, by_line: Mapping[int, Cells], asked: Asked) -> Plan:
    seen = [one.rung for one in sorted(cells, key=lambda one: one.lines[0])]
    rungs = list(dict.fromkeys(seen))
    if len(rungs) > MOST_RUNGS:
        raise UsageError(
            f"column {columns.rung!r} of {source} has {len(rungs):,} different values, too many for rungs of a ladder",
            hint=f"choose another with --rung; a ladder has up to {MOST_RUNGS}",
        )
    groups, found = order_of(rungs, asked.order, source)
    named = [name for group in groups for name in group]
    ordered = [*named, *(rung for rung in rungs if rung not in named)]
    layers, is_told = layers_of(ordered, columns, _rows(cells, by_line))
    if is_told and _alike(cells, layers) is not None:  # what sets the two apart is not among the layers
        layers, is_told = layers_by_names(ordered), False
    if is_told and found is OrderSource.FIRST_SEEN:
        groups, found = chained(ordered, layers), OrderSource.LAYERS
    return Plan(
        groups=groups,
        source=found,
        layers=layers,
        is_told=is_told,
        companions=companions_of(cells, columns, layers),
        batches=columns.batches,
    )


def _layers_left(columns: Columns, cells: Sequence[Tried], by_line: Mapping[int, Cells], plan: Plan) -> list[str]:
    """That layers which the table lists are not used, and why."""
    rows = _rows(cells, by_line)
    if (two := twofold(columns, rows)) is not None:
        rung, lists = two
        said = f"rows of {rung} list different layers ({'; '.join(lists)})"
        return [f"{said}: column {columns.layers!r} is not used"]
    if plan.is_told:
        return []
    layers, is_told = layers_of([*plan.layers], columns, rows)
    found = _alike(cells, layers) if is_told else None
    return [f"{' and '.join(found)} have the same layers in the table: layers are not used"] if found else []


def _rows(cells: Sequence[Tried], by_line: Mapping[int, Cells]) -> list[tuple[str, Cells]]:
    """Every row with the rung that it is a run of."""
    return [(one.rung, by_line[line]) for one in cells for line in one.lines]


def _alike(cells: Sequence[Tried], layers: Mapping[str, frozenset[str]]) -> tuple[str, str] | None:
    """Two rungs of one series that have the same layers, None where there are none."""
    by_series: dict[tuple[str, ...], dict[str, None]] = {}
    for one in cells:
        by_series.setdefault(one.key.series, {})[one.rung] = None
    return next((found for rungs in by_series.values() if (found := alike(rungs, layers)) is not None), None)


def _ladders(series: Mapping[str, Sequence[Tried]], known: _Known) -> tuple[list[Ladder], list[str]]:
    """A ladder for each series with two cells of the order, and what is said of the others."""
    ladders, left = [], []
    places = known.plan.places
    for name, cells in series.items():
        if len({one.rung for one in cells if one.rung in places}) > 1:
            ladders.append(_ladder(name, cells, known))
        else:
            left.append(name)
    shown = "; ".join(left[:5]) + ("; ..." if len(left) > 5 else "")
    return ladders, [f"no ladder of {len(left)} series with fewer than two rungs: {shown}"] if left else []


def _ladder(name: str, cells: Sequence[Tried], known: _Known) -> Ladder:
    plan = known.plan
    found = climb(cells, plan, known.margin)
    hidden = plan.companions
    notes = sentences.Notes(found.rungs, margin=known.margin, hidden=hidden)
    interactions = interactions_of(cells, plan)
    return Ladder(
        name=name,
        rungs=found.rungs,
        beside=found.beside,
        absent=found.absent,
        interactions=tuple(replace(one, sentence=sentences.interaction(one, hidden)) for one in interactions),
        spots=front_of(cells),
        notes=tuple(notes.all(found.beside, found.absent, known.noise, known.counts)),
        sentence=sentences.publishable(name, found.rungs, known.unit, hidden),
    )
