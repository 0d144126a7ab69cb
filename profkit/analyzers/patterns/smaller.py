"""Work that smaller tensors would do, by recorded shapes: layers on gathered rows, all pairs at once, a queue made anew.

Found in the steps that were recorded with shapes; what the timed steps have there is known by the order of operators.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, Final

import numpy as np

from profkit.analyzers.patterns.shaped import (
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
    with_shapes,
)
from profkit.findings.wasted import MORE_ROWS, REBUILT
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
LONGEST: Final = 32
"""Operators behind a gather or a pair among which a chain ends. Chosen: a small network."""
_NEAR: Final = 4
"""Operators around a cat among which the slice stands that keeps its size. Chosen."""


def _broadcast(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:  # masks
        return ()


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
        made = _broadcast(listed)
        return (*made, *given[len(listed) :]) if made else ()
    if name in ("aten::gather", "aten::take_along_dim"):
        is_gather = name == "aten::gather"
        axis, index = number_of(told, 1 if is_gather else 2) % len(given), told.shape(2 if is_gather else 1)
        return index if axis < len(given) - 1 and index[-1:] == given[-1:] else ()
    sizes = numbers_of(told, 1)
    padded = (1,) * (len(sizes) - len(given)) + given
    if len(sizes) != len(padded) or sizes[-1] != 1:
        return ()
    return tuple(a * b for a, b in zip(sizes, padded, strict=True))


def made_of(seen: Forward, place: int) -> tuple[int, ...]:
    """The shape that the gather at that place makes; () where it is not known."""
    told = seen.given(place)
    made = _made(told, seen.name(place)) if told is not None else ()
    return made if is_shape(made) else ()


def _is_of(dims: list[tuple[Any, ...]], shape: tuple[int, ...]) -> bool:
    return bool(dims) and dims[0][-1:] == shape[-1:] and prod(dims[0]) == prod(shape)


def gathered(facts: Facts) -> Waste | None:
    """Layers of more rows than need be: behind a gather or an upsampling, before a mean."""
    seen = facts.once(with_shapes)
    if seen is None:
        return None
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
    for number in behind(seen, place, LONGEST):
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


def rebuilt(facts: Facts) -> Waste | None:
    """Joins without a gradient that keep a tensor's size: little is new, and a slice drops as much."""
    seen = facts.once(with_shapes)
    if seen is None:
        return None
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
