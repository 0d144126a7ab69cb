"""What changes do beside each other: those that gain in one place and lose in another, and whether gains multiply.

An effect is of pairs of cells that differ in one setting, all else equal. An interaction sets layers alone against the
same layers together, over one base.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, islice, pairwise, product
from typing import Final

import msgspec
import numpy as np

from profkit.compare.ladder.cells import Columns, Tried, factor
from profkit.compare.ladder.plan import Plan, told
from profkit.compare.stats.inference import contrast, paired
from profkit.compare.stats.judge import DEFAULT_ALPHA, MIN_RUNS
from profkit.compare.tables.result_tables import is_number
from profkit.model.documents.comparison import Answer
from profkit.model.documents.ladder import Effect, Factor, Gain, Interaction, Mix, Settings
from profkit.model.grouped import grouped
from profkit.model.switches import says_on

_MOST_TRIED: Final = 64
"""Bases that are tried, the fastest first, and choices of single cells for each (chosen: the right one is there)."""


class _Rung(msgspec.Struct, frozen=True, kw_only=True):
    """The cells of a rung by their free settings, the fastest first, and the values that each of these takes.

    Batches are not among the values: another batch would be a change of its own.
    """

    cells: Mapping[Settings, Tried]
    values: Mapping[str, tuple[str, ...]]

    def near(self, free: Settings) -> list[Tried]:
        """The cell at these settings, then those that differ in one, the fastest first."""
        same = [self.cells[free]] if free in self.cells else []
        others = [
            one
            for place, (name, before) in enumerate(free)
            for value in self.values.get(name, ())
            if value != before
            and (one := self.cells.get((*free[:place], (name, value), *free[place + 1 :]))) is not None
        ]
        return same + sorted(others, key=_by_speed)


def _by_speed(one: Tried) -> tuple[float, Settings]:
    return -one.speed, one.key.settings


def _rung(cells: Sequence[Tried], plan: Plan) -> _Rung:
    found = {plan.free(one.key.settings): one for one in sorted(cells, key=_by_speed)}
    values = grouped(item for free in found for item in free if item[0] not in plan.batches)
    return _Rung(cells=found, values={name: tuple(dict.fromkeys(seen)) for name, seen in values.items()})


def interactions_of(cells: Sequence[Tried], plan: Plan) -> tuple[Interaction, ...]:
    """A row for each rung of the series that is made of two other rungs or more.

    The sentences are left empty.
    """
    rungs = {name: _rung(mine, plan) for name, mine in grouped((one.rung, one) for one in cells).items()}
    return tuple(_measured(one, rungs) for one in _compositions(plan) if one.rung in rungs)


class _Composition(msgspec.Struct, frozen=True, kw_only=True):
    """A rung of several layers: the rungs of its single ones ("" for one that the table lacks), and its bases."""

    rung: str
    layers: tuple[str, ...]
    parts: tuple[str, ...]
    bases: tuple[str, ...]


def _compositions(plan: Plan) -> Iterator[_Composition]:
    """Of told layers the base is the rung with the fewest; of names, the rungs before all parts, the nearest first."""
    order = plan.order
    if not plan.is_told:
        for rung in order:
            parts = tuple(sorted(plan.layers[rung], key=order.index))
            if len(parts) > 1:
                bases = tuple(reversed(order[: min(map(order.index, parts))]))
                yield _Composition(rung=rung, layers=parts, parts=parts, bases=bases)
        return
    base = min(order, key=lambda name: (len(plan.layers[name]), order.index(name)))
    start = plan.layers[base]
    of = {plan.layers[name]: name for name in reversed(order)}
    for rung in order:
        added = plan.in_order(plan.layers[rung] - start)
        if len(added) > 1 and plan.layers[rung] > start:
            parts = tuple(of.get(start | {layer}, "") for layer in added)
            yield _Composition(rung=rung, layers=added, parts=parts, bases=(base,))


def _measured(one: _Composition, rungs: Mapping[str, _Rung]) -> Interaction:
    """The fastest composition of which base and single layers were run; else what is missing."""
    chosen: tuple[Tried, tuple[Tried, ...], Tried] | None = None
    missing = ""
    together = rungs[one.rung].cells
    for name in (name for name in one.bases if name in rungs):
        for free, base in islice(rungs[name].cells.items(), _MOST_TRIED):
            for wanted, singles in _singles(free, one.parts, rungs):
                whole = together.get(wanted)
                if whole is None:
                    missing = missing or f"{one.rung} at {told(wanted) or 'the plain settings'} was not run"
                elif chosen is None or whole.speed > chosen[2].speed:
                    chosen = base, singles, whole
        if chosen is not None:
            break
    if chosen is None:
        return Interaction(
            rung=one.rung, layers=one.layers, base=None, singles=(), gains=(), together=None, product=None,
            measured=None, ratio=None, interval=None, missing=missing or _no_singles(one, rungs), sentence="",
        )  # fmt: skip
    base, singles, whole = chosen
    gains = tuple(single.speed / base.speed for single in singles)
    product_of_gains, measured = math.prod(gains), whole.speed / base.speed
    return Interaction(
        rung=one.rung,
        layers=one.layers,
        base=base.cell,
        singles=tuple(single.cell for single in singles),
        gains=gains,
        together=whole.cell,
        product=product_of_gains,
        measured=measured,
        ratio=measured / product_of_gains,
        interval=_interval(base, singles, whole),
        missing="",
        sentence="",
    )


def _no_singles(one: _Composition, rungs: Mapping[str, _Rung]) -> str:
    if not all(one.parts):
        return "not every layer was run alone"
    lacking = [part for part in one.parts if part not in rungs]
    if lacking:
        return f"{' and '.join(lacking)} {'was' if len(lacking) == 1 else 'were'} not run alone"
    base = next((name for name in one.bases if name in rungs), None)
    if base is None:
        return f"there is no run without {' and '.join(one.parts)}"
    return f"{' and '.join(one.parts)} were not run at one choice of settings with {base}"


def _singles(
    base: Settings, parts: tuple[str, ...], rungs: Mapping[str, _Rung]
) -> Iterator[tuple[Settings, tuple[Tried, ...]]]:
    """Choices of a cell for each layer alone, and the settings that the layers have together.

    A cell is at the base's settings, or at one other that comes with the layer: never one for two layers.
    """
    choices = [rungs[part].near(base) if part in rungs else [] for part in parts]
    for singles in islice(product(*choices), _MOST_TRIED):
        wanted = _together(base, singles)
        if wanted is not None:
            yield wanted, singles


def _together(base: Settings, singles: Sequence[Tried]) -> Settings | None:
    """The settings of the composition: the base's, with what each layer alone has changed of them.

    None where two layers have changed one setting to different values.
    """
    settings = []
    for name, before in base:
        changed = {one.settings[name] for one in singles} - {before}
        if len(changed) > 1:
            return None
        settings.append((name, changed.pop() if changed else before))
    return tuple(settings)


def _interval(base: Tried, singles: Sequence[Tried], whole: Tried) -> tuple[float, float] | None:
    """The interval of the ratio from the runs' logs, within blocks where all cells share them."""
    cells = (whole, base, *singles)
    weights = (1.0, len(singles) - 1.0, *(-1.0 for _ in singles))
    if not whole.sample.higher_is_better:
        weights = tuple(-weight for weight in weights)
    if min(len(one.sample.values) for one in cells) < 2:
        return None
    blocks = [_by_block(one) for one in cells]
    if len(blocks[0]) > 1 and all(one.keys() == blocks[0].keys() for one in blocks):
        rows = [sum(weight * one[block] for weight, one in zip(weights, blocks, strict=True)) for block in blocks[0]]
        estimate = paired(rows)
    else:
        estimate = contrast([np.log(one.sample.values).tolist() for one in cells], weights)
    if estimate is None:
        return None
    low, high = estimate.interval(DEFAULT_ALPHA)
    gains = math.fsum(math.log(one.speed / base.speed) for one in singles)
    of_means = math.log(whole.speed / base.speed) - gains
    return math.exp(min(low, of_means)), math.exp(min(max(high, of_means), 700.0))


def _by_block(one: Tried) -> dict[int, float]:
    """The mean log of a cell's runs in each block; empty without blocks."""
    of_block = grouped(zip(one.sample.blocks, map(math.log, one.sample.values), strict=False))
    return {block: math.fsum(logs) / len(logs) for block, logs in of_block.items()}


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
