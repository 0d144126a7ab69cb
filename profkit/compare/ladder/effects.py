"""Changes that gain in one place and lose in another: pairs of cells that differ in one setting, all else equal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Final

import msgspec

from profkit.compare.ladder.cells import Tried, factor
from profkit.compare.ladder.columns import Columns
from profkit.compare.ladder.plan import Plan
from profkit.compare.stats.judge import MIN_RUNS
from profkit.compare.tables.result_tables import is_number
from profkit.model.documents.comparison import Answer
from profkit.model.documents.ladder import Effect, Factor, Gain, Mix
from profkit.model.grouped import grouped
from profkit.model.switches import says_on

MOST_EFFECTS: Final = 20
"""Changes with both signs that a report holds, the strongest first (chosen: more are read by nobody)."""
_MOST_JUDGED: Final = 1_000
"""Pairs that are tested in search of these (chosen: half a second)."""
_MOST_VALUES: Final = 8
"""Values of a setting of which all pairs are compared; of more, neighbours only (chosen: pairs grow as the square)."""

Pair = tuple[str, Tried, Tried]
"""The name of the series and both cells."""
Change = tuple[str, str, str]
"""Heading, value before, value after."""


class _Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A change whose means have both signs."""

    change: Change
    pairs: tuple[Pair, ...]
    mix: Mix
    spread: float

    def rank(self, rungs: str) -> tuple[object, ...]:
        """The order of reading: between series, of rungs, far apart."""
        return self.mix is not Mix.SERIES, self.change[0] != rungs, -round(self.spread, 9), self.change


def effects_of(
    series: Mapping[str, Sequence[Tried]], columns: Columns, plan: Plan, margin: float
) -> tuple[int, int, list[Effect]]:
    """Pairs compared, changes with both signs, and the strongest of these without their sentences.

    A change within `margin` has no sign, nor has one that repeats do not support. The number of changes leaves out
    those that repeats refute; of weak ones beyond the strongest it goes by their means.
    """
    changes = grouped(
        (change, (name, old, new))
        for name, cells in series.items()
        for change, old, new in (*_of_rungs(cells, columns, plan), *_of_settings(cells, columns, plan))
    )
    found = (_candidate(change, pairs, margin) for change, pairs in changes.items())
    candidates = sorted((one for one in found if one is not None), key=lambda one: one.rank(columns.rung))
    effects: list[Effect] = []
    n_refuted = n_judged = 0
    for one in candidates:
        if len(effects) == MOST_EFFECTS or n_judged > _MOST_JUDGED:
            break
        n_judged += len(one.pairs)
        effect = _effect(one, plan, margin)
        if effect is None:
            n_refuted += 1
        else:
            effects.append(effect)
    n_pairs = sum(map(len, changes.values()))
    effects.sort(key=lambda one: one.mix is not Mix.SERIES)
    return n_pairs, len(candidates) - n_refuted, effects


def _candidate(change: Change, pairs: Sequence[Pair], margin: float) -> _Candidate | None:
    """A change by the means of its pairs; None where they have one sign."""
    values = [new.speed / old.speed for _, old, new in pairs]
    mix = _mix([(name, _point_sign(value, margin)) for (name, _, _), value in zip(pairs, values, strict=True)])
    if mix is None:
        return None
    return _Candidate(change=change, pairs=tuple(pairs), mix=mix, spread=max(values) / min(values))


def _mix(signs: Sequence[tuple[str, int]]) -> Mix | None:
    """Between what signs differ, by the names of their series; None where they do not."""
    if not {sign for _, sign in signs} >= {1, -1}:
        return None
    by_series = [set(mine) for mine in grouped(signs).values()]
    return Mix.SERIES if {1} in by_series and {-1} in by_series else Mix.SETTINGS


def _of_rungs(cells: Sequence[Tried], columns: Columns, plan: Plan) -> Iterator[tuple[Change, Tried, Tried]]:
    """Pairs of two rungs at the same settings, the earlier one of the order first."""
    places = plan.places
    last = len(places)
    for alike in grouped((plan.free(one.key.settings), one) for one in cells).values():
        ordered = sorted(alike, key=lambda one: (places.get(one.rung, last), one.rung))
        for one, other in combinations(ordered, 2):
            old, new = (other, one) if plan.layers[one.rung] > plan.layers[other.rung] else (one, other)
            change = _layer_change(plan, old.rung, new.rung) if plan.is_told else (old.rung, new.rung)
            if change is not None:
                yield (columns.rung, *change), old, new


def _layer_change(plan: Plan, old: str, new: str) -> tuple[str, str] | None:
    """The one layer that two rungs differ by: added ("" before), or in place of another; None for more than one."""
    before, after = plan.layers[old] - plan.layers[new], plan.layers[new] - plan.layers[old]
    if len(after) != 1 or len(before) > 1:
        return None
    return "".join(before), "".join(after)


def _of_settings(cells: Sequence[Tried], columns: Columns, plan: Plan) -> Iterator[tuple[Change, Tried, Tried]]:
    """Pairs of one rung with another value of one setting, the smaller value first."""
    for heading in columns.settings:
        if heading in plan.companions:
            continue
        for alike in grouped(((one.rung, one.without(heading)), one) for one in cells).values():
            ordered = sorted(alike, key=lambda one: _size(one.settings[heading]))
            for old, new in combinations(ordered, 2) if len(ordered) <= _MOST_VALUES else pairwise(ordered):
                yield (heading, old.settings[heading], new.settings[heading]), old, new


def _size(value: str) -> tuple[bool, float, str]:
    """The order of a setting's values: off before on, small before large, words by letters."""
    number = float(value) if value and is_number(value) else float(says_on(value))
    return bool(value), number, value


def _sign(one: Factor, margin: float) -> int:
    """+1 for a gain, -1 for a loss, 0 for neither; of enough repeats the test decides."""
    if min(one.n) >= MIN_RUNS and one.interval is not None:
        return (one.answer is Answer.IMPROVED) - (one.answer is Answer.REGRESSED)
    return _point_sign(one.value, margin)


def _point_sign(value: float, margin: float) -> int:
    return (value > 1 + margin) - (value < 1 / (1 + margin))


def _gain(name: str, old: Tried, new: Tried, margin: float) -> Gain:
    before, after = old.memory_bytes, new.memory_bytes
    return Gain(
        series=name,
        rung=new.rung,
        settings=new.key.settings,
        factor=factor(old, new, margin),
        memory_factor=after / before if before and after is not None else None,
    )


def _effect(one: _Candidate, plan: Plan, margin: float) -> Effect | None:
    """The change with its intervals; None where these leave one sign."""
    gains = [_gain(name, old, new, margin) for name, old, new in one.pairs]
    mix = _mix([(gain.series, _sign(gain.factor, margin)) for gain in gains])
    if mix is None:
        return None
    heading, before, after = one.change
    moved = (each for _, old, new in one.pairs for each in plan.changed(old, new) if each.heading != heading)
    return Effect(
        heading=heading,
        before=before,
        after=after,
        along=tuple({(each.heading, each.before, each.after): each for each in moved}.values()),
        mix=mix,
        gains=tuple(gains),
        sentence="",
    )
