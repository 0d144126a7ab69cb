"""Distances or products of all pairs of vectors, spread out in memory before they are summed, by recorded shapes."""

from __future__ import annotations

from math import prod
from typing import Any, Final

from profkit.analyzers.patterns.shaped import (
    Chain,
    Forward,
    Waste,
    behind,
    number_of,
    numbers_of,
    until_again,
    waste,
    with_shapes,
)
from profkit.analyzers.patterns.smaller import LONGEST
from profkit.model.signature import Signature
from profkit.redact.later import later
from profkit.timeline import Facts

_BROADCAST: Final = later(r"^aten::(?:sub|rsub|mul|cosine_similarity|pairwise_distance)$")
_POWER: Final = later(r"^aten::(?:pow|square|abs|mul)_?$")
_REDUCED: Final = later(r"^aten::(?:sum|mean|norm|linalg_vector_norm)$")
_LONG: Final = 16
_KEPT_OF_SQUARES: Final = (0.02, 0.1)
_KEPT_OF_ABS: Final = (0.25, 0.5)
"""What products, and cdist(p=1), take, of vectors of `_LONG` values or more and of shorter ones. Chosen inside what was measured on one CPU, so no
bound: 128 to 2,048 of 2 to 576 values, forward and backward: products 0.007 to 0.17, cdist(p=1) 0.10 to 0.34, of 2 and 3 values to 0.67."""


def _spread(dims: list[tuple[Any, ...]]) -> tuple[int, ...]:
    """The shape of all pairs that two tensors of vectors are spread to; () where they are not."""
    if len(dims) < 2 or len(set(map(len, dims[:2]))) > 2:
        return ()
    n_axes = max(map(len, dims[:2]))
    one, other = ((1,) * (n_axes - len(each)) + each for each in dims[:2])
    if n_axes < 3 or one[-1] != other[-1] or one[-1] < 2:
        return ()
    pairs = list(zip(one[:-1], other[:-1], strict=True))
    if any(1 not in both and both[0] != both[1] for both in pairs):
        return ()
    is_spread = any(a == 1 < b for a, b in pairs) and any(b == 1 < a for a, b in pairs)
    return (*(max(both) for both in pairs), one[-1]) if is_spread else ()


def _reduces(told: Signature, shape: tuple[int, ...], *, is_norm: bool) -> bool:
    """Whether it reduces the last axis alone."""
    axes = numbers_of(told, 2 if is_norm else 1)
    return len(axes) == 1 and axes[0] % len(shape) == len(shape) - 1


def _pair(seen: Forward, place: int) -> Chain | None:
    shape, name = _spread(seen.dims(place)), seen.name(place)
    told = seen.given(place)
    if not shape or told is None:
        return None
    is_short = shape[-1] < _LONG
    size = (prod(shape[:-1]), shape[-1])
    if name == "aten::pairwise_distance":
        return [place], _KEPT_OF_SQUARES[is_short], size
    if name == "aten::cosine_similarity":
        is_last = number_of(told, 2) % len(shape) == len(shape) - 1
        return ([place], _KEPT_OF_SQUARES[is_short], size) if is_last else None
    chain, kept = [place], _KEPT_OF_SQUARES
    for number in behind(seen, place, LONGEST):
        one, dims = seen.name(number), seen.dims(number)
        mine = seen.given(number)
        if mine is None or dims[:1] != [shape]:
            return None
        if _REDUCED.search(one):
            is_norm = "norm" in one
            if not _reduces(mine, shape, is_norm=is_norm) or (len(chain) == 1) != (is_norm or name == "aten::mul"):
                return None
            is_read = any(shape in seen.dims(at) for at in until_again(seen, place, number))
            return None if is_read else ([*chain, number], kept[is_short], size)
        if name == "aten::mul" or len(chain) > 1 or not _POWER.search(one) or any(each != shape for each in dims):
            return None
        if "abs" in one or ("pow" in one and mine.concrete[1:2] != ("2",)):
            kept = _KEPT_OF_ABS
        chain.append(number)
    return None


def pairs(facts: Facts) -> Waste | None:
    """Differences or products of all pairs of vectors, up to the sum over each pair, forward and backward."""
    seen = facts.once(with_shapes)
    if seen is None:
        return None
    found = [one for place in seen.places(_BROADCAST) if (one := _pair(seen, place)) is not None]
    return waste(facts, seen, found, "{:,} pairs of vectors are spread out to {:,} values each")
