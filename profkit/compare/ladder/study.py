"""A table of runs to its ladders: one for each series, and the changes that gain in one place and lose in another.

A climb goes from the plainest cell of the first rung up, rung by rung, each at its fastest settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from profkit.compare.ladder import sentences
from profkit.compare.ladder.cells import (
    Asked,
    Columns,
    Rate,
    Tried,
    cells_of,
    columns_of,
    counts_of,
    factor,
    noise_of,
    rates,
    unlike,
)
from profkit.compare.ladder.effects import effects_of, interactions_of
from profkit.compare.ladder.plan import Plan, plan_of
from profkit.compare.tables.result_tables import Cells, ResultTable, is_number, read_records, table_of
from profkit.errors import UsageError
from profkit.model.documents.ladder import Beside, Counts, Ladder, LadderReport, Noise, Rung, Spot, Step, WhyNot
from profkit.model.grouped import grouped
from profkit.model.switches import says_off, says_on

Place = tuple[Step, Tried]
"""Where a ladder has come to, and what brought it there."""
Passed = tuple[Tried, WhyNot, Tried]
"""A rung that was not taken, why, and where the ladder was then."""


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """What the ladders of all series share."""

    table: ResultTable
    columns: Columns
    rate: Rate
    plan: Plan
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
        table=table,
        columns=columns,
        rate=rate,
        plan=plan,
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
        told_apart = f"told apart by {', '.join(columns.series)}" if columns.series else "all runs are one"
        raise UsageError(
            f"{source} has no two rungs to compare in one series ({told_apart})",
            hint="name the rungs' column with --rung, or the columns that tell series apart with --series",
        )
    return _report(known, series, ladders, warnings)


def _report(
    known: _Known, series: Mapping[str, Sequence[Tried]], ladders: Sequence[Ladder], warnings: Sequence[str]
) -> LadderReport:
    table, columns, rate, plan = known.table, known.columns, known.rate, known.plan
    n_pairs, n_mixed, effects = effects_of(series, columns, plan, known.margin)
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
    rungs, beside = climb(cells, plan, known.margin)
    absent = tuple(name for name in plan.places if all(one.rung != name for one in cells))
    hidden = plan.companions
    notes = sentences.Notes(rungs, margin=known.margin, hidden=hidden)
    interactions = interactions_of(cells, plan)
    return Ladder(
        name=name,
        rungs=rungs,
        beside=beside,
        absent=absent,
        interactions=tuple(replace(one, sentence=sentences.interaction(one, hidden)) for one in interactions),
        spots=_front(cells),
        notes=tuple(notes.all(beside, absent, known.noise, known.counts)),
        sentence=sentences.publishable(name, rungs, known.rate.unit, hidden),
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


def climb(cells: Sequence[Tried], plan: Plan, margin: float) -> tuple[tuple[Rung, ...], tuple[Beside, ...]]:
    """The ladder of one series, and what stands beside it.

    It begins at the plainest settings of the first rung that is there: switches off, small batches. Each further rung
    is taken at its fastest settings, through the settings of the rung before where it was run at these: so the rung
    and the settings have a factor each. A rung that is slower than what the ladder had is left beside it, but where
    a later one of the series is known to stand on it. Alternatives of the first rung stand beside the base.
    """
    by_rung = grouped((one.rung, one) for one in cells)
    path: list[Place] = []
    passed: list[Passed] = []
    for number, group in enumerate(plan.groups):
        mine = [one for name in group for one in by_rung.get(name, ())]
        if not mine:
            continue
        if not path:
            path += _base(mine, plan)
            base = path[0][1]
            others = grouped((one.rung, one) for one in mine if one.rung != base.rung)
            passed += [(_fastest(cells_of_rung), WhyNot.ALTERNATIVE, base) for cells_of_rung in others.values()]
            continue
        at = path[-1][1]
        fitting = [one for one in mine if plan.follows(at.rung, one.rung)]
        later = [name for names in plan.groups[number + 1 :] for name in names if name in by_rung]
        path += _taken(at, fitting, by_rung, plan, later)
        passed += _passed(mine, path[0][1], at, path[-1][1], fitting)
    beside = (
        Beside(
            cell=tried.cell,
            why=why,
            against=at.rung,
            over=factor(at, tried, margin),
            changed=plan.changed(at, tried),
        )
        for tried, why, at in passed
    )
    return _rungs(path, by_rung, plan, margin), tuple(beside)


def _base(mine: Sequence[Tried], plan: Plan) -> list[Place]:
    """The plainest cell, then the fastest of its rung where that is another."""
    base = min(mine, key=_plainness(plan))
    best = _fastest([one for one in mine if one.rung == base.rung])
    return [(Step.BASE, base), *([(Step.SETTINGS, best)] if best.speed > base.speed else [])]


def _plainness(plan: Plan) -> Callable[[Tried], tuple[object, ...]]:
    """The order of cells by how little is set: switches on, batch, other numbers; of equal ones the fastest first."""

    def plainness(one: Tried) -> tuple[object, ...]:
        numbers = {name: float(value) for name, value in one.key.settings if is_number(value)}
        n_on = sum(says_on(value) for _, value in one.key.settings)
        batches = tuple(numbers.get(name, 0.0) for name in plan.batches)
        others = tuple(numbers.get(name, 0.0) for name, _ in one.key.settings if name not in plan.batches)
        return n_on, batches, others, -one.speed, one.rung, one.key.settings

    return plainness


def _fastest(cells: Sequence[Tried]) -> Tried:
    """The fastest cell; of equal ones that with less memory."""
    return min(cells, key=lambda one: (-one.speed, one.memory_bytes or 0.0, one.rung, one.key.settings))


def _taken(
    at: Tried, fitting: Sequence[Tried], by_rung: Mapping[str, list[Tried]], plan: Plan, later: Sequence[str]
) -> list[Place]:
    """To the fastest cell of a group, by way of the settings that the ladder had; nothing where none is to be taken.

    A rung whose layers a later one holds, as the table tells, is taken however fast: the ladder went through it.
    """
    carrying = [one for one in fitting if any(plan.carries(at.rung, one.rung, name) for name in later)]
    if not fitting:
        return []
    best = _fastest(carrying or fitting)
    if best.speed <= at.speed and not carrying:
        return []
    before = plan.free(at.key.settings)
    same = next((one for one in by_rung[best.rung] if plan.free(one.key.settings) == before), best)
    return [(Step.LAYER, same), *([(Step.SETTINGS, best)] if same.speed != best.speed else [])]


def _passed(mine: Sequence[Tried], base: Tried, at: Tried, now: Tried, fitting: Sequence[Tried]) -> list[Passed]:
    """The rungs of a group that were not taken, each at its fastest settings; one apart is set against the base."""
    found = []
    fits = {one.rung for one in fitting}
    for rung in dict.fromkeys(one.rung for one in mine):
        if rung == now.rung and now is not at:
            continue
        why = WhyNot.APART if rung not in fits else WhyNot.SLOWER if now is at else WhyNot.ALTERNATIVE
        best = _fastest([one for one in mine if one.rung == rung])
        found.append((best, why, base if why is WhyNot.APART else at))
    return found


def _rungs(path: Sequence[Place], by_rung: Mapping[str, list[Tried]], plan: Plan, margin: float) -> tuple[Rung, ...]:
    made = []
    first = before = path[0][1]
    for step, now in path:
        is_base = step is Step.BASE
        added, removed = plan.brought(before.rung, now.rung)
        made.append(
            Rung(
                cell=now.cell,
                step=step,
                added=added,
                removed=removed,
                changed=plan.changed(before, now),
                over_before=None if is_base else factor(before, now, margin),
                over_first=None if is_base else factor(first, now, margin),
                padding_factor=None if is_base else _of_padding(before, now),
                n_settings=len(by_rung[now.rung]),
            )
        )
        before = now
    return tuple(made)


def _of_padding(before: Tried, now: Tried) -> float | None:
    if before.padding is None or now.padding is None:
        return None
    return (1 - now.padding) / (1 - before.padding)
