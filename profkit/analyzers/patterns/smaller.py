"""Work that smaller tensors would do, by recorded shapes.

Layers on gathered rows, a queue made anew, three matrices in the longer order, all pairs of vectors spread out in memory.
Found in the steps that were recorded with shapes; what the timed steps have there is known by the order of operators.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final

import numpy as np

from profkit.analyzers.patterns.shaped import (
    PRODUCT,
    Chain,
    Forward,
    Waste,
    behind,
    lead,
    number_of,
    numbers_of,
    sliced,
    until_again,
    waste,
)
from profkit.findings.wasted import BY_COLUMNS, LONG_ORDER, MORE_ROWS, REBUILT
from profkit.model.signature import Signature, is_shape
from profkit.redact.later import later
from profkit.timeline import Facts

_GATHER: Final = later(r"^aten::(?:index_select|index|gather|repeat|take_along_dim)$")
_MULTIPLY: Final = later(r"^aten::(?:linear|addmm|mm|matmul)$")
_UPSAMPLE: Final = later(r"^aten::(?:upsample_(?:nearest|bilinear|linear)\d?d?|_upsample_nearest_exact\dd)$")
_CONVOLUTION: Final = later(r"^aten::(?:conv\dd|_?convolution)$")
_VIEW: Final = later(r"^aten::(?:view|reshape|unsqueeze|squeeze|flatten|contiguous|to|detach|alias|unflatten)$")
_BY_ROWS: Final = later(r"^aten::(?:relu_?|gelu|silu_?|tanh|sigmoid|leaky_relu_?|elu_?|layer_norm|rms_norm|softplus)$")
_JOIN: Final = later(r"^aten::(?:cat|concat|concatenate|roll)$")
_LONGEST: Final = 32
"""Operators behind a gather or a pair among which a chain ends. Chosen: a small network."""
_NEAR: Final = 4
"""Operators around a cat among which the slice stands that keeps its size. Chosen."""


def _made(told: Signature, name: str) -> tuple[int, ...]:
    """The shape that a gather makes; () where it is not known."""
    given = told.shape(0)
    if not given:
        return ()
    if name == "aten::index_select":
        axis, index = number_of(told, 1) % len(given), told.shape(2)
        return (*given[:axis], index[0], *given[axis + 1 :]) if axis < len(given) - 1 and index else ()
    if name == "aten::index":
        listed = told.listed(1)
        if not listed or len(listed) >= len(given) or not all(listed):
            return ()
        try:
            made = np.broadcast_shapes(*listed)
        except ValueError:  # masks
            made = ()
        return (*made, *given[len(listed) :]) if made else ()
    if name in ("aten::gather", "aten::take_along_dim"):
        is_gather = name == "aten::gather"
        axis, index = number_of(told, 1 if is_gather else 2) % len(given), told.shape(2 if is_gather else 1)
        return index if axis < len(given) - 1 and index[-1:] == given[-1:] else ()
    sizes = numbers_of(told, 1)
    padded = (1,) * (len(sizes) - len(given)) + given
    is_by_rows = len(sizes) == len(padded) and sizes[-1] == 1
    return tuple(a * b for a, b in zip(sizes, padded, strict=True)) if is_by_rows else ()


def made_of(seen: Forward, place: int) -> tuple[int, ...]:
    """The shape that the gather at that place makes; () where it is not known."""
    told = seen.given(place)
    made = _made(told, seen.name(place)) if told is not None else ()
    return made if is_shape(made) else ()


def _is_of(dims: list[tuple[Any, ...]], shape: tuple[int, ...]) -> bool:
    return bool(dims) and dims[0][-1:] == shape[-1:] and prod(dims[0]) == prod(shape)


def gathered(facts: Facts, seen: Forward) -> Waste | None:
    """Layers of more rows than need be: behind a gather or an upsampling, before a mean."""
    every = (
        *(_gathered(seen, place) for place in seen.places(_GATHER)),
        *(one for place in seen.places(_UPSAMPLE) for one in _upsampled(seen, place)),
        *(_averaged(seen, place) for place in seen.places(_MULTIPLY)),
    )
    most = MORE_ROWS.limit("rows")
    found = [one for one in every if one is not None and 0 < one[1] <= most]
    return waste(facts, seen, found, "a layer computes {:,} rows where {:,} would do")


def _gathered(seen: Forward, place: int) -> Chain | None:
    """Layers that take what a gather made, with what works on each row alone between."""
    shape = made_of(seen, place)
    if not shape:
        return None
    n_rows, n_made, chain, until = lead(seen.dims(place)[0]), lead(shape), list[int](), 0
    for number in behind(seen, place, _LONGEST):
        name, dims = seen.name(number), seen.dims(number)
        if not _is_of(dims, shape):
            break
        if _MULTIPLY.search(name):
            if len(dims) < 2 or len(dims[1]) != 2:
                break
            shape = _multiplied(name, dims)
            chain, until = [*chain, number], len(chain) + 1
        elif _BY_ROWS.search(name):
            chain = [*chain, number]
        elif not _VIEW.search(name):
            break
    return (chain[:until], n_rows / n_made, (n_made, n_rows)) if until and n_made else None


def _multiplied(name: str, dims: list[tuple[Any, ...]]) -> tuple[int, ...]:
    return (*dims[0][:-1], dims[1][0 if name == "aten::linear" else 1])


def _next(seen: Forward, place: int) -> int | None:
    """The next place that is no view."""
    return next((one for one in behind(seen, place, _NEAR) if not _VIEW.search(seen.name(one))), None)


def _upsampled(seen: Forward, place: int) -> list[Chain]:
    """A 1x1 convolution behind an upsampling, to as many channels at most: it may come first, and both are smaller."""
    number, given = _next(seen, place), next(iter(seen.dims(place)), ())
    dims = seen.dims(number) if number is not None and _CONVOLUTION.search(seen.name(number)) else []
    if number is None or len(dims) < 2 or dims[0][:2] != given[:2] or not 2 < len(dims[1]) == len(given):
        return []
    if prod(dims[1][2:]) != 1 or not 0 < dims[1][0] <= dims[1][1] or not prod(dims[0]):
        return []
    sizes = (dims[0][0] * prod(dims[0][2:]), given[0] * prod(given[2:]))
    return [([number], sizes[1] / sizes[0], sizes), ([place], dims[1][0] / dims[1][1], sizes)]


def _averaged(seen: Forward, place: int) -> Chain | None:
    """A layer of which nothing but the mean over some rows is read."""
    name, dims, number = seen.name(place), seen.dims(place), _next(seen, place)
    if number is None or len(dims) < 2 or len(dims[1]) != 2:
        return None
    shape, told = _multiplied(name, dims), seen.given(number)
    if told is None or seen.name(number) != "aten::mean" or seen.dims(number)[:1] != [shape]:
        return None
    axes = [one % len(shape) for one in numbers_of(told, 1)]
    later_on = until_again(seen, place, number)
    if not axes or len(shape) - 1 in axes or any(_is_of([one], shape) for at in later_on for one in seen.dims(at)):
        return None
    n_rows, n_mean = lead(shape), prod(shape[one] for one in axes)
    return ([place], 1 / n_mean, (n_rows, n_rows // n_mean)) if n_mean else None


def rebuilt(facts: Facts, seen: Forward) -> Waste | None:
    """Joins without a gradient that keep a tensor's size: little is new, and a slice drops as much."""
    found: list[Chain] = []
    for place in seen.places(_JOIN):
        told = seen.given(place)
        if told is None or seen.is_read(place):
            continue
        near = range(max(place - _NEAR, 0), min(place + 1 + _NEAR, seen.rows.size))
        sizes = _rolled(seen, place, told, near) if seen.name(place) == "aten::roll" else _cut(seen, told, near)
        if sizes is not None and sizes[0] <= REBUILT.limit("new") * sizes[1]:
            found.append(([place], sizes[0] / sizes[1], sizes))
    return waste(facts, seen, found, "a tensor of {1:,} rows is copied to add {0:,}")


def _cut(seen: Forward, told: Signature, near: range) -> tuple[int, int] | None:
    """What is new, and how long the tensor is that a cat and a slice make anew."""
    parts = [one for one in told.listed(0) if one]
    if len(parts) < 2 or len(set(map(len, parts))) > 1 or not any(map(prod, parts)):
        return None
    axis = number_of(told, 1) % len(parts[0])
    whole = sum(one[axis] for one in parts)
    most = max(one[axis] for one in parts)
    out = (*parts[0][:axis], whole, *parts[0][axis + 1 :])
    is_after = any(sliced(seen, one, out, axis) == most for one in near)
    is_before = any(sliced(seen, one, out, axis) == most for one in near if one < near[len(near) // 2])
    return (whole - most, most if is_after else whole) if is_after or is_before else None


def _rolled(seen: Forward, place: int, told: Signature, near: range) -> tuple[int, int] | None:
    """The same of a roll whose first or last rows are then written."""
    shape = told.shape(0)
    behind = [one for one in near if one > place]
    if not shape or not any(seen.name(one) == "aten::copy_" for one in behind):
        return None
    new = [size for one in behind if 0 < (size := sliced(seen, one, shape, 0)) < shape[0]]
    return (min(new), shape[0]) if new else None


_ROWS: Final = later(r"^aten::(?:index|index_select)$")
_TURNS: Final = later(r"^aten::(?:t|transpose|permute|numpy_T|swapaxes|mT|movedim|adjoint)$")
_KEPT_BY_ROWS: Final = 0.1
"""What gathering whole rows takes of the time. Measured on one CPU, matrices of 24 to 80 MB, 32 to 256 rows of 300 to 40,000 values: 0.05 to 0.12."""


def by_columns(facts: Facts, seen: Forward) -> Waste | None:
    """Gathers of rows without a gradient whose source has its columns in one piece each."""
    found: list[Chain] = []
    for place in seen.places(_ROWS) if facts.cpu is not None else ():
        told = seen.given(place)
        shape, strides = (told.shape(0), told.strides[:1]) if told is not None else ((), ())
        if told is None or len(shape) < 2 or not strides or len(strides[0]) != len(shape) or seen.is_read(place):
            continue
        step = strides[0]
        is_turned = step[0] == 1 and min(shape[0], shape[-1]) > 1 and min(step[1:]) >= shape[0]
        is_large = prod(shape) >= BY_COLUMNS.limit("values")
        is_just_made = any(_TURNS.search(seen.name(one)) for one in range(max(place - _NEAR, 0), place))
        if is_turned and is_large and _takes_rows(seen, place, told) and not is_just_made:
            found.append(([place], _KEPT_BY_ROWS, (shape[0], prod(shape[1:]))))
    return waste(facts, seen, found, "rows are gathered from a matrix of {0:,} x {1:,} that lies by columns")


def _takes_rows(seen: Forward, place: int, told: Signature) -> bool:
    """Whether indices choose along the first axis alone: torch records none of aten::index, but who takes what it makes."""
    if seen.name(place) == "aten::index_select":
        return number_of(told, 1) == 0
    rows, *rest = told.shape(0)
    told_of = (seen.given(one) for one in behind(seen, place, _LONGEST))
    takers = (dims for one in told_of if one is not None for each in one.dims for dims in (each, *each))
    return any(isinstance(dims, tuple) and [*dims[1:]] == rest and 0 < dims[0] < rows for dims in takers)


_FIRST: Final = later(r"^aten::(?:mm|bmm|matmul)$")
_BETWEEN: Final = later(
    r"^aten::(?:view|reshape|t|transpose|permute|contiguous|unsqueeze|squeeze|detach|alias|mul|div)$"
)
_BEHIND: Final = 6
"""Operators behind a product among which the next one stands: a factor, views. Chosen."""


def _other_order(seen: Forward, place: int) -> tuple[int, float] | None:
    """The product behind that takes this one's result, and the share (0-1) of both products that the other order takes."""
    dims = seen.dims(place)
    if len(dims) < 2 or min(map(len, dims[:2])) < 2 or dims[0][:-2] != dims[1][:-2] or not prod(dims[0]):
        return None
    n, (rows, inner), columns = prod(dims[0][:-2]), dims[0][-2:], dims[1][-1]
    out = (*dims[0][:-2], rows, columns)
    turned = (*dims[0][:-2], columns, rows)
    for number in behind(seen, place, _BEHIND):
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


def long_orders(facts: Facts, seen: Forward) -> Waste | None:
    """Both products, forward and backward, less the share of their operations that the other order takes."""
    every = [(place, told) for place in seen.places(_FIRST) if (told := _other_order(seen, place)) is not None]
    most = LONG_ORDER.limit("operations")
    return waste(facts, seen, [([place, number], share, ()) for place, (number, share) in every if share <= most])


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
    for number in behind(seen, place, _LONGEST):
        one, dims = seen.name(number), seen.dims(number)
        mine = seen.given(number)
        if mine is None or dims[:1] != [shape]:
            return None
        if _REDUCED.search(one):
            is_norm = "norm" in one
            if not _reduces(mine, shape, is_norm=is_norm) or (len(chain) == 1) != (is_norm or name == "aten::mul"):
                return None
            return None if _is_read(seen, (place, number), (shape,)) else ([*chain, number], kept[is_short], size)
        if name == "aten::mul" or len(chain) > 1 or not _POWER.search(one) or any(each != shape for each in dims):
            return None
        if "abs" in one or ("pow" in one and mine.concrete[1:2] != ("2",)):
            kept = _KEPT_OF_ABS
        chain.append(number)
    return None


def pairs(facts: Facts, seen: Forward) -> Waste | None:
    """Differences or products of all pairs of vectors, up to the sum over each pair, forward and backward."""
    found = [one for place in seen.places(_BROADCAST) if (one := _pair(seen, place)) is not None]
    return waste(facts, seen, found, "{:,} pairs of vectors are spread out to {:,} values each")
