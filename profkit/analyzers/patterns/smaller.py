"""Work that smaller tensors would do, by recorded shapes: layers on gathered rows, all pairs at once, a queue made anew.

Found in the steps that were recorded with shapes; what the timed steps have there is known by the order of operators.
"""

from __future__ import annotations

from math import prod
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from profkit.analyzers.patterns.ranges import Ranges
from profkit.analyzers.patterns.shaped import Forward, dims_of, lead, name_of, number_of
from profkit.findings.wasted import MORE_ROWS, REBUILT
from profkit.model.arrays import I64
from profkit.model.signature import Signature
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import matched
from profkit.timeline.code.match import Match

_GATHER: Final = later(r"^aten::(?:index_select|index|gather|repeat|take_along_dim)$")
_MULTIPLY: Final = later(r"^aten::(?:linear|addmm|mm|matmul)$")
_UPSAMPLE: Final = later(r"^aten::(?:upsample_(?:nearest|bilinear|linear)\d?d?|_upsample_nearest_exact\dd)$")
_CONVOLUTION: Final = later(r"^aten::(?:conv\dd|_?convolution)$")
_VIEW: Final = later(r"^aten::(?:view|reshape|unsqueeze|squeeze|flatten|contiguous|to|detach|alias|unflatten)$")
_BY_ROWS: Final = later(r"^aten::(?:relu_?|gelu|silu_?|tanh|sigmoid|leaky_relu_?|elu_?|layer_norm|rms_norm|softplus)$")
_JOIN: Final = later(r"^aten::(?:cat|concat|concatenate|roll)$")
_SLICE: Final = later(r"^aten::slice$")
LONGEST: Final = 32
"""Operators behind a gather or a pair among which a chain ends. Chosen: a small network."""
_NEAR: Final = 4
"""Operators around a cat among which the slice stands that keeps its size. Chosen."""
Chain: TypeAlias = tuple[list[int], float, tuple[int, ...]]
"""Places, the share (0-1) of their time that stays, and numbers for the title."""


class Found(msgspec.Struct, frozen=True):
    """Rows of the timed trace's operators, the share (0-1) of their time that stays, and the numbers of the largest."""

    rows: I64
    kept: float
    largest: tuple[int, ...]


def typed(facts: Facts) -> Forward | None:
    """The operators of the steps with shapes: those recorded once more, where there are some."""
    again = facts.trace.again
    if again is not None and any(one is not None for one in again.signatures):
        return Forward(facts, again)
    return facts.once(Forward) if facts.trace.signatures else None


def _match(facts: Facts) -> Match | None:
    return matched(facts.trace)


def timed_rows(facts: Facts, seen: Forward, rows: I64) -> I64:
    """The operators of the timed trace that are these of the trace with shapes."""
    if seen.trace is facts.trace or not rows.size:
        return rows
    match = facts.once(_match)
    if match is None:
        return np.empty(0, np.int64)
    return np.flatnonzero((match.first == match.last) & np.isin(match.first, rows)).astype(np.int64)


def joined(facts: Facts, seen: Forward, found: list[Chain]) -> Found | None:
    """Chains of places, each with the share (0-1) that stays and its numbers, as rows of the timed trace."""
    if not found:
        return None
    ops = seen.trace.ops
    spent = [float((ops.end_ns - ops.start_ns)[seen.rows[places]].sum()) for places, _, _ in found]
    kept = sum(ns * each for ns, (_, each, _) in zip(spent, found, strict=True)) / max(sum(spent), 1.0)
    rows = timed_rows(facts, seen, np.unique(np.concatenate([seen.rows[places] for places, _, _ in found])))
    return Found(rows, kept, found[int(np.argmax(spent))][2]) if rows.size else None


def ranges_of(facts: Facts, found: Found | None) -> Ranges | None:
    """Those operators of the timed trace, and their backward nodes."""
    return facts.once(Forward).with_backward([found.rows[[at]] for at in range(found.rows.size)]) if found else None


def behind(seen: Forward, place: int, most: int) -> range:
    """The places behind it on its thread, of the forward pass."""
    end = min(place + 1 + most, seen.rows.size)
    thread = seen.trace.ops.thread[seen.rows[place:end]]
    stops = np.flatnonzero(seen.is_back[place:end] | (thread != thread[0]))
    return range(place + 1, place + int(stops[0]) if stops.size else end)


def until_again(seen: Forward, place: int, number: int) -> range:
    """The places behind `number`, of the forward pass, up to where the operator of `place` comes again with its shapes."""
    every = behind(seen, number, seen.rows.size)
    ops = seen.trace.ops
    rows, first = seen.rows[every.start : every.stop], seen.rows[place]
    again = np.flatnonzero((ops.name[rows] == ops.name[first]) & (ops.signature[rows] == ops.signature[first]))
    return range(every.start, every.start + int(again[0])) if again.size else every


def lists(text: str) -> list[int]:
    """The whole numbers of a list that was written as text."""
    return [int(one) for one in text.strip("[]").split(",") if one.strip().lstrip("-").isdigit()]


def _at(told: Signature, place: int) -> tuple[Any, ...]:
    """An argument's shape, or shapes; () where it has none."""
    return told.dims[place] if len(told.dims) > place else ()


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:  # masks
        return ()


def _made(told: Signature, name: str) -> tuple[int, ...]:
    """The shape that a gather makes; () where it is not known."""
    given = _at(told, 0)
    if not given or isinstance(given[0], tuple):
        return ()
    if name == "aten::index_select":
        axis, index = number_of(told, 1) % len(given), _at(told, 2)
        return (*given[:axis], index[0], *given[axis + 1 :]) if axis < len(given) - 1 and index else ()
    if name == "aten::index":
        listed = [one for one in _at(told, 1) if isinstance(one, tuple)]
        if not listed or len(listed) >= len(given) or not all(listed):
            return ()
        made = _broadcast(listed)
        return (*made, *given[len(listed) :]) if made else ()
    if name in ("aten::gather", "aten::take_along_dim"):
        is_gather = name == "aten::gather"
        axis, index = number_of(told, 1 if is_gather else 2) % len(given), _at(told, 2 if is_gather else 1)
        return tuple(index) if axis < len(given) - 1 and index[-1:] == given[-1:] else ()
    sizes = lists(told.concrete[1]) if len(told.concrete) > 1 else []
    padded = (1,) * (len(sizes) - len(given)) + given
    if len(sizes) != len(padded) or sizes[-1] != 1:
        return ()
    return tuple(a * b for a, b in zip(sizes, padded, strict=True))


def made_of(seen: Forward, place: int) -> tuple[int, ...]:
    """The shape that the gather at that place makes; () where it is not known."""
    told = seen.given(int(seen.rows[place]))
    return _made(told, name_of(seen, place)) if told is not None else ()


def _is_of(dims: list[tuple[Any, ...]], shape: tuple[int, ...]) -> bool:
    return bool(dims) and dims[0][-1:] == shape[-1:] and prod(dims[0]) == prod(shape)


def _on_gathered(facts: Facts) -> Found | None:
    """Layers of more rows than need be: behind a gather or an upsampling, before a mean."""
    seen = facts.once(typed)
    if seen is None:
        return None
    every = (
        *(_gathered(seen, place) for place in seen.places(_GATHER)),
        *(one for place in seen.places(_UPSAMPLE) for one in _upsampled(seen, place)),
        *(_averaged(seen, place) for place in seen.places(_MULTIPLY)),
    )
    most = MORE_ROWS.limit("rows")
    return joined(facts, seen, [one for one in every if one is not None and 0 < one[1] <= most])


def _gathered(seen: Forward, place: int) -> Chain | None:
    """Layers that take what a gather made, with what works on each row alone between."""
    shape, n_rows, n_made = made_of(seen, place), lead(dims_of(seen, place)[0]), 0
    if not shape:
        return None
    n_made, chain, until = lead(shape), list[int](), 0
    for number in behind(seen, place, LONGEST):
        name, dims = name_of(seen, number), dims_of(seen, number)
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
    return next((one for one in behind(seen, place, _NEAR) if not _VIEW.search(name_of(seen, one))), None)


def _upsampled(seen: Forward, place: int) -> list[Chain]:
    """A 1x1 convolution behind an upsampling, to as many channels at most: it may come first, and both are smaller."""
    number, given = _next(seen, place), dims_of(seen, place)[0]
    dims = dims_of(seen, number) if number is not None and _CONVOLUTION.search(name_of(seen, number)) else []
    if number is None or len(dims) < 2 or dims[0][:2] != given[:2] or len(dims[1]) != len(given):
        return []
    if prod(dims[1][2:]) != 1 or dims[1][0] > dims[1][1] or not prod(dims[0]):
        return []
    sizes = (dims[0][0] * prod(dims[0][2:]), given[0] * prod(given[2:]))
    return [([number], sizes[1] / sizes[0], sizes), ([place], dims[1][0] / dims[1][1], sizes)]


def _averaged(seen: Forward, place: int) -> Chain | None:
    """A layer of which nothing but the mean over some rows is read."""
    name, dims, number = name_of(seen, place), dims_of(seen, place), _next(seen, place)
    if number is None or len(dims) < 2 or len(dims[1]) != 2:
        return None
    shape, told = _multiplied(name, dims), seen.given(int(seen.rows[number]))
    if told is None or name_of(seen, number) != "aten::mean" or dims_of(seen, number)[:1] != [shape]:
        return None
    axes = [one % len(shape) for one in lists(told.concrete[1])] if len(told.concrete) > 1 else []
    later_on = until_again(seen, place, number)
    if not axes or len(shape) - 1 in axes or any(_is_of([one], shape) for at in later_on for one in dims_of(seen, at)):
        return None
    n_rows = lead(shape)
    return [place], 1 / prod(shape[one] for one in axes), (n_rows, n_rows // prod(shape[one] for one in axes))


def gathered(facts: Facts) -> Ranges | None:
    """Such layers, forward and backward."""
    return ranges_of(facts, facts.once(_on_gathered))


def kept_of_gathered(facts: Facts, _: Ranges) -> float:
    """The share (0-1) of rows that would do."""
    found = facts.once(_on_gathered)
    return found.kept if found is not None else 1.0


def title_of_gathered(facts: Facts, _: Ranges) -> str:
    """How many rows of how many."""
    found = facts.once(_on_gathered)
    return f"a layer computes {found.largest[0]:,} rows where {found.largest[1]:,} would do" if found else ""


def _rebuilt(facts: Facts) -> Found | None:
    """Joins without a gradient that keep a tensor's size: little is new, and a slice drops as much."""
    seen = facts.once(typed)
    if seen is None:
        return None
    ops = seen.trace.ops
    made = seen.backward.forward
    read = np.sort(ops.start_ns[made[made >= 0]])
    found: list[Chain] = []
    for place in seen.places(_JOIN):
        row = int(seen.rows[place])
        told = seen.given(row)
        if told is None or not told.dims or np.diff(np.searchsorted(read, (ops.start_ns[row], ops.end_ns[row])))[0]:
            continue
        near = range(max(place - _NEAR, 0), min(place + 1 + _NEAR, seen.rows.size))
        sizes = _rolled(seen, place, told, near) if name_of(seen, place) == "aten::roll" else _cut(seen, told, near)
        if sizes is not None and sizes[0] <= REBUILT.limit("new") * sizes[1]:
            found.append(([place], sizes[0] / sizes[1], sizes))
    return joined(facts, seen, found)


def _sliced(seen: Forward, place: int, shape: tuple[int, ...], axis: int) -> int:
    """How long a slice of a tensor of that shape is along the axis; 0 of other operators."""
    told = seen.given(int(seen.rows[place]))
    if told is None or not _SLICE.search(name_of(seen, place)) or _at(told, 0) != shape:
        return 0
    if number_of(told, 1) % len(shape) != axis:
        return 0
    size = shape[axis]
    begin, end = (one + size * (one < 0) for one in (number_of(told, 2), min(number_of(told, 3), size)))
    return end - begin


def _cut(seen: Forward, told: Signature, near: range) -> tuple[int, int] | None:
    """What is new, and how long the tensor is that a cat and a slice make anew."""
    parts: list[tuple[int, ...]] = [one for one in _at(told, 0) if isinstance(one, tuple) and one]
    if len(parts) < 2 or len(set(map(len, parts))) > 1:
        return None
    axis = number_of(told, 1) % len(parts[0])
    whole = sum(one[axis] for one in parts)
    most = max(one[axis] for one in parts)
    out = (*parts[0][:axis], whole, *parts[0][axis + 1 :])
    is_after = any(_sliced(seen, one, out, axis) == most for one in near)
    is_before = any(_sliced(seen, one, out, axis) == most for one in near if one < near[len(near) // 2])
    return (whole - most, most if is_after else whole) if is_after or is_before else None


def _rolled(seen: Forward, place: int, told: Signature, near: range) -> tuple[int, int] | None:
    """The same of a roll whose first or last rows are then written."""
    shape = _at(told, 0)
    behind = [one for one in near if one > place]
    if not shape or not any(name_of(seen, one) == "aten::copy_" for one in behind):
        return None
    new = [size for one in behind if 0 < (size := _sliced(seen, one, shape, 0)) < shape[0]]
    return (min(new), shape[0]) if new else None


def rebuilt(facts: Facts) -> Ranges | None:
    """Such joins."""
    return ranges_of(facts, facts.once(_rebuilt))


def kept_of_rebuilt(facts: Facts, _: Ranges) -> float:
    """The share (0-1) of the rows that are new."""
    found = facts.once(_rebuilt)
    return found.kept if found is not None else 1.0


def title_of_rebuilt(facts: Facts, _: Ranges) -> str:
    """The kind's title with the numbers."""
    found = facts.once(_rebuilt)
    return f"a tensor of {found.largest[1]:,} rows is copied to add {found.largest[0]:,}" if found else ""
