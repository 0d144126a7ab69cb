"""Do gains multiply? Layers alone against the same layers together, over one base."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Final

import msgspec
import numpy as np

from profkit.compare.ladder.cells import Tried
from profkit.compare.ladder.plan import Plan, told
from profkit.compare.stats.inference import contrast, paired
from profkit.compare.stats.judge import DEFAULT_ALPHA
from profkit.model.documents.ladder import Interaction, Settings
from profkit.model.grouped import grouped

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
