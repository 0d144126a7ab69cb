"""Do gains multiply? Layers alone against the same layers together, over one base."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final

import msgspec
import numpy as np

from profkit.compare.ladder.cells import Tried
from profkit.compare.ladder.plan import Plan, told
from profkit.compare.stats.inference import contrast, paired
from profkit.model.documents.ladder import Interaction, Settings

ALPHA: Final = 0.05
_MOST_TRIED: Final = 64
"""Choices of single cells that are tried for one base (chosen: a table of that many has the right one among them)."""


def interactions_of(cells: Sequence[Tried], plan: Plan) -> tuple[Interaction, ...]:
    """A row for each rung of the series that is made of two other rungs or more.

    The sentences are left empty.
    """
    by_rung: dict[str, list[Tried]] = {}
    for one in cells:
        by_rung.setdefault(one.rung, []).append(one)
    return tuple(_measured(one, by_rung, plan) for one in _compositions(plan) if one.rung in by_rung)


class _Composition(msgspec.Struct, frozen=True, kw_only=True):
    """A rung of several layers: the rungs of its single ones ("" for one that the table lacks), and its bases."""

    rung: str
    layers: tuple[str, ...]
    parts: tuple[str, ...]
    bases: tuple[str, ...]


def _compositions(plan: Plan) -> Iterator[_Composition]:
    """Of told layers the base is the rung with the fewest; of names, the rungs before all parts, the nearest first."""
    order = [*plan.places, *(name for name in plan.layers if name not in plan.places)]
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


def _measured(one: _Composition, by_rung: Mapping[str, list[Tried]], plan: Plan) -> Interaction:
    """The fastest composition of which base and single layers were run; else what is missing."""
    chosen: tuple[Tried, tuple[Tried, ...], Tried] | None = None
    missing = ""
    for base in (base for name in one.bases for base in by_rung.get(name, ())):
        if chosen is not None and chosen[0].rung != base.rung:
            break
        for singles in _singles(base, one.parts, by_rung, plan):
            wanted = _together(base, singles, plan)
            whole = next((cell for cell in by_rung.get(one.rung, ()) if plan.free(cell.key.settings) == wanted), None)
            if whole is None:
                missing = missing or f"{one.rung} at {told(wanted) or 'the plain settings'} was not run"
            elif chosen is None or whole.speed > chosen[2].speed:
                chosen = base, singles, whole
    if chosen is None:
        return _absent(one, missing or _no_singles(one, by_rung))
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


def _absent(one: _Composition, missing: str) -> Interaction:
    return Interaction(
        rung=one.rung, layers=one.layers, base=None, singles=(), gains=(), together=None, product=None, measured=None,
        ratio=None, interval=None, missing=missing, sentence="",
    )  # fmt: skip


def _no_singles(one: _Composition, by_rung: Mapping[str, list[Tried]]) -> str:
    if not all(one.parts):
        return "not every layer was run alone"
    lacking = [part for part in one.parts if part not in by_rung]
    if lacking:
        return f"{' and '.join(lacking)} {'was' if len(lacking) == 1 else 'were'} not run alone"
    base = next((name for name in one.bases if name in by_rung), None)
    if base is None:
        return f"there is no run without {' and '.join(one.parts)}"
    return f"{' and '.join(one.parts)} were not run at one choice of settings with {base}"


def _singles(
    base: Tried, parts: tuple[str, ...], by_rung: Mapping[str, list[Tried]], plan: Plan
) -> list[tuple[Tried, ...]]:
    """Choices of a cell for each layer alone: at the base's settings, or with one other that comes with the layer.

    Never at another batch: that would be a change of its own.
    """
    choices = []
    for part in parts:
        near = [one for one in by_rung.get(part, ()) if _distance(base, one, plan) <= 1]
        near.sort(key=lambda one: (_distance(base, one, plan), -one.speed))
        choices.append(near)
    found = []
    for singles in product(*choices):
        found.append(singles)
        if len(found) >= _MOST_TRIED:
            break
    return found


def _distance(base: Tried, one: Tried, plan: Plan) -> int:
    """The settings in which a cell differs from a base, batches counted as many."""
    before = dict(plan.free(base.key.settings))
    apart = [name for name, value in plan.free(one.key.settings) if before[name] != value]
    return 99 if set(apart) & set(plan.batches) else len(apart)


def _together(base: Tried, singles: Sequence[Tried], plan: Plan) -> Settings:
    """The settings of the composition: the base's, with what each layer alone has changed of them."""
    settings = dict(plan.free(base.key.settings))
    before = dict(settings)
    for one in singles:
        settings.update({name: value for name, value in plan.free(one.key.settings) if before[name] != value})
    return tuple(settings.items())


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
    low, high = estimate.interval(ALPHA)
    of_means = _log_ratio(base, singles, whole)
    return math.exp(min(low, of_means)), math.exp(min(max(high, of_means), 700.0))


def _log_ratio(base: Tried, singles: Sequence[Tried], whole: Tried) -> float:
    gains = math.fsum(math.log(one.speed / base.speed) for one in singles)
    return math.log(whole.speed / base.speed) - gains


def _by_block(one: Tried) -> dict[int, float]:
    """The mean log of a cell's runs in each block; empty without blocks."""
    grouped: dict[int, list[float]] = {}
    for block, value in zip(one.sample.blocks, one.sample.values, strict=False):
        grouped.setdefault(block, []).append(math.log(value))
    return {block: math.fsum(logs) / len(logs) for block, logs in grouped.items()}
