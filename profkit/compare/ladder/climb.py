"""The climb: from the plainest cell of the first rung up, rung by rung, each at its fastest settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from profkit.compare.ladder.cells import Tried, factor
from profkit.compare.ladder.plan import Plan
from profkit.compare.tables.result_tables import is_number
from profkit.model.documents.ladder import Beside, Rung, Step, WhyNot
from profkit.model.grouped import grouped
from profkit.model.switches import says_on

Place = tuple[Step, Tried]
"""Where a ladder has come to, and what brought it there."""


class Climb(msgspec.Struct, frozen=True, kw_only=True):
    """A ladder, what stands beside it, and rungs of the order without a cell."""

    rungs: tuple[Rung, ...]
    beside: tuple[Beside, ...]
    absent: tuple[str, ...]


class _Passed(msgspec.Struct, frozen=True, kw_only=True):
    """A rung that was not taken, and where the ladder was then."""

    tried: Tried
    why: WhyNot
    at: Tried


def climb(cells: Sequence[Tried], plan: Plan, margin: float) -> Climb:
    """The ladder of one series.

    It begins at the plainest settings of the first rung that is there: switches off, small batches. Each further rung
    is taken at its fastest settings, through the settings of the rung before where it was run at these: so the rung
    and the settings have a factor each. A rung that is slower than what the ladder had is left beside it, but where
    a later one of the series is known to stand on it. Alternatives of the first rung stand beside the base.
    """
    by_rung = grouped((one.rung, one) for one in cells)
    path: list[Place] = []
    passed: list[_Passed] = []
    for number, group in enumerate(plan.groups):
        mine = [one for name in group for one in by_rung.get(name, ())]
        if not mine:
            continue
        if not path:
            path += _base(mine, plan)
            passed += _others(mine, path[0][1])
            continue
        at = path[-1][1]
        fitting = [one for one in mine if plan.follows(at.rung, one.rung)]
        later = [name for names in plan.groups[number + 1 :] for name in names if name in by_rung]
        path += _taken(at, fitting, by_rung, plan, later)
        passed += _passed(mine, path[0][1], at, path[-1][1], fitting)
    named = [name for group in plan.groups for name in group]
    return Climb(
        rungs=_rungs(path, by_rung, plan, margin),
        beside=tuple(
            Beside(
                cell=one.tried.cell,
                why=one.why,
                against=one.at.rung,
                over=factor(one.at, one.tried, margin),
                changed=plan.changed(one.at, one.tried),
            )
            for one in passed
        ),
        absent=tuple(name for name in named if name not in by_rung),
    )


def _base(mine: Sequence[Tried], plan: Plan) -> list[Place]:
    """The plainest cell, then the fastest of its rung where that is another."""
    base = min(mine, key=_plainness(plan))
    best = _fastest([one for one in mine if one.rung == base.rung])
    return [(Step.BASE, base), *([(Step.SETTINGS, best)] if best.speed > base.speed else [])]


def _others(mine: Sequence[Tried], base: Tried) -> list[_Passed]:
    """The alternatives of the first group, each at its fastest settings over the base."""
    others = dict.fromkeys(one.rung for one in mine if one.rung != base.rung)
    fastest = (_fastest([one for one in mine if one.rung == rung]) for rung in others)
    return [_Passed(tried=one, why=WhyNot.ALTERNATIVE, at=base) for one in fastest]


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


def _passed(mine: Sequence[Tried], base: Tried, at: Tried, now: Tried, fitting: Sequence[Tried]) -> list[_Passed]:
    """The rungs of a group that were not taken, each at its fastest settings; one apart is set against the base."""
    found = []
    fits = {one.rung for one in fitting}
    for rung in dict.fromkeys(one.rung for one in mine):
        if rung == now.rung and now is not at:
            continue
        why = WhyNot.APART if rung not in fits else WhyNot.SLOWER if now is at else WhyNot.ALTERNATIVE
        best = _fastest([one for one in mine if one.rung == rung])
        found.append(_Passed(tried=best, why=why, at=base if why is WhyNot.APART else at))
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
