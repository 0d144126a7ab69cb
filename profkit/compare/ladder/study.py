"""A table of runs to its ladders: one for each series, and the changes that gain in one place and lose in another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from profkit.compare.ladder import sentences
from profkit.compare.ladder.cells import Rate, Tried, cells_of, noise_of, rates, unlike
from profkit.compare.ladder.climb import climb
from profkit.compare.ladder.columns import Asked, Columns, columns_of, counts_of
from profkit.compare.ladder.effects import effects_of
from profkit.compare.ladder.interaction import interactions_of
from profkit.compare.ladder.plan import Plan, plan_of
from profkit.compare.tables.records import Cells, read_records
from profkit.compare.tables.result_tables import ResultTable, is_number, table_of
from profkit.errors import UsageError
from profkit.model.documents.ladder import Counts, Effect, Ladder, LadderReport, Noise, Spot
from profkit.model.switches import says_off, says_on


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
    columns = columns_of([cells for _, cells in records], table.metric, source, asked)
    rate = rates(table)
    by_line = dict(records)
    series = _named(cells_of(table, by_line, columns, rate), columns)
    cells = [one for members in series.values() for one in members]
    plan, unused = plan_of(source, cells, columns, by_line, asked.order)
    known = _Known(
        plan=plan,
        unit=rate.unit,
        margin=asked.margin,
        noise=noise_of(cells),
        counts=counts_of(table.metric, rate.unit),
    )
    ladders, warnings = _ladders(series, known)
    warnings += unused
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
    found: tuple[int, int, Sequence[Effect]],
    warnings: Sequence[str],
) -> LadderReport:
    plan = known.plan
    n_pairs, n_mixed, effects = found
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
        n_pairs=n_pairs,
        n_mixed=n_mixed,
        effects=tuple(replace(one, sentence=sentences.effect(one, columns.rung, known.margin)) for one in effects),
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
        spots=_front(cells),
        notes=tuple(notes.all(found.beside, found.absent, known.noise, known.counts)),
        sentence=sentences.publishable(name, found.rungs, known.unit, hidden),
    )


def _front(cells: Sequence[Tried]) -> tuple[Spot, ...]:
    """Speed against peak memory: the cells of known memory, from the least memory up, each with one that dominates it.

    That is the fastest of those that take no more memory. Cells alike in both do not dominate each other.
    """
    known = [one for one in cells if one.memory_bytes is not None]
    known.sort(key=lambda one: (one.memory_bytes or 0.0, -one.speed, one.rung, one.key.settings))
    spots = []
    fastest = 0
    for place, one in enumerate(known):
        best = known[fastest]
        is_beaten = best.speed > one.speed or (
            best.speed == one.speed and (best.memory_bytes or 0.0) < (one.memory_bytes or 0.0)
        )
        spots.append(Spot(cell=one.cell, by=fastest if is_beaten else None))
        if one.speed > best.speed:
            fastest = place
    return tuple(spots)
