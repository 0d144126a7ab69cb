"""Products of three matrices in the longer order: (A B) C where A (B C) takes far fewer operations."""

from __future__ import annotations

from math import prod
from typing import Any, Final

from profkit.analyzers.patterns.shaped import PRODUCT, Forward, Waste, behind, lead, until_again, waste, with_shapes
from profkit.findings.wasted import LONG_ORDER
from profkit.redact.later import later
from profkit.timeline import Facts

_FIRST: Final = later(r"^aten::(?:mm|bmm|matmul)$")
_BETWEEN: Final = later(
    r"^aten::(?:view|reshape|t|transpose|permute|contiguous|unsqueeze|squeeze|detach|alias|mul|div)$"
)
_NEAR: Final = 6
"""Operators behind a product among which the next one stands: a factor, views. Chosen."""


def _costs(seen: Forward, place: int) -> tuple[int, float] | None:
    """The product behind that takes this one's result, and the share (0-1) of both products that the other order takes."""
    dims = seen.dims(place)
    if len(dims) < 2 or min(map(len, dims[:2])) < 2 or dims[0][:-2] != dims[1][:-2] or not prod(dims[0]):
        return None
    n, (rows, inner), columns = prod(dims[0][:-2]), dims[0][-2:], dims[1][-1]
    out = (*dims[0][:-2], rows, columns)
    turned = (*dims[0][:-2], columns, rows)
    for number in behind(seen, place, _NEAR):
        name, given = seen.name(number), seen.dims(number)
        if PRODUCT.search(name):
            one = _of_both(name, given, (out, turned), (n, inner))
            return (number, one) if one and not _is_read(seen, (place, number), (out, turned)) else None
        if not _BETWEEN.search(name) or given[1:2] or given[:1] not in ([out], [turned]):
            return None
    return None


def _of_both(
    name: str, given: list[tuple[Any, ...]], made: tuple[tuple[int, ...], tuple[int, ...]], sizes: tuple[int, int]
) -> float:
    """The share of both products' operations that the other order takes; 0 where the second takes something else."""
    if len(given) < 2:
        return 0.0
    n, inner = sizes
    if given[1] in made:
        a, b = (given[1][-1], given[1][-2]) if name == "aten::linear" else given[1][-2:]
        more = lead(given[0]) // n
    elif given[0] in made and name != "aten::linear" and len(given[1]) == len(given[0]):
        (b, a), more = given[0][-2:], given[1][-1]
    else:
        return 0.0
    now = a * inner * b + more * a * b
    return (more * a * inner + more * inner * b) / now if now else 0.0


def _is_read(seen: Forward, places: tuple[int, int], made: tuple[tuple[int, ...], ...]) -> bool:
    """Whether something else takes the first product's result as well."""
    return any(one in made for at in until_again(seen, *places) for one in seen.dims(at))


def long_orders(facts: Facts) -> Waste | None:
    """Both products, forward and backward, less the share of their operations that the other order takes."""
    seen = facts.once(with_shapes)
    if seen is None:
        return None
    every = [(place, told) for place in seen.places(_FIRST) if (told := _costs(seen, place)) is not None]
    most = LONG_ORDER.limit("operations")
    return waste(facts, seen, [([place, number], share, ()) for place, (number, share) in every if share <= most])
