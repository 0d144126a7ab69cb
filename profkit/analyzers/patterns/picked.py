"""Work on all values or rows where few are taken, known by shapes: whole sorts, one-hot products, layers before a choice."""

from __future__ import annotations

from math import prod
from typing import Any, Final

import msgspec
import numpy as np

from profkit.analyzers.patterns.ranges import Ranges, named
from profkit.analyzers.patterns.shaped import LINEAR, PRODUCT, Forward, dims_of, has, lead, name_of, number_of
from profkit.findings.patterns import FULL_SORT, LATE_CHOICE
from profkit.model.arrays import I64
from profkit.redact.later import later
from profkit.timeline import Facts

_SORT: Final = later(r"^aten::(?:arg)?sort$")
_SLICE: Final = later(r"^aten::slice$")
_PICK: Final = later(r"^aten::(?:index|index_select|select|slice|masked_select)$")
_ONE_HOT: Final = later(r"^aten::one_hot$")
_BEHIND: Final = 4
"""Operators behind a sort among which its slices are looked for: sort gives two tensors. Chosen."""
_AGAIN: Final = 200
"""Operators of the forward pass among which all rows may be read again. Chosen: more than a layer has."""
_NEAR: Final = 8
"""Operators between a one-hot tensor and the product that takes it: a conversion, views. Chosen."""
_TOPK_OF_SORT: Final = (0.05, 0.2, 1.5)
"""What topk takes of the time of a long sort, of one below `_LONG` values, and beside it for each share that it keeps.
Measured on a CPU: 0.03 to 0.05 for 20 of 4,096 and 1,000 of 100,000; of 320 values 0.2 for 10 and 0.6 for 80; 0.35 for 10 of
100."""
_LONG: Final = 1024


class _Sorts(msgspec.Struct, frozen=True):
    """Sorts of which a slice right behind keeps little: of most values how many, and what topk takes at most (0-1)."""

    rows: I64
    n_values: int
    n_kept: int
    topk: float


def _sorts(facts: Facts) -> _Sorts | None:
    if not has(facts, _SORT):
        return None
    seen = Forward(facts)
    found = []
    for place in seen.places(_SORT):
        told = seen.given(int(seen.rows[place]))
        dims = told.dims[0] if told is not None and told.dims else ()
        if told is None or not dims:
            continue
        axis = next((int(text) for text in told.concrete[1:] if text.lstrip("-").isdigit()), -1) % len(dims)
        kept = [_sliced(seen, one, dims, axis) for one in range(place + 1, min(place + 1 + _BEHIND, seen.rows.size))]
        most = max((one for one in kept if one is not None), default=dims[axis])
        if dims[axis] >= FULL_SORT.limit("length") and most <= FULL_SORT.limit("kept") * dims[axis]:
            found.append((int(seen.rows[place]), dims[axis], most))
    if not found:
        return None
    topk = max(_TOPK_OF_SORT[size < _LONG] + _TOPK_OF_SORT[2] * kept / size for _, size, kept in found)
    rows = np.array([row for row, _, _ in found], np.int64)
    _, n_values, n_kept = max(found, key=lambda one: one[1])
    return _Sorts(rows, n_values, n_kept, min(topk, 1.0))


def _sliced(seen: Forward, place: int, dims: tuple[Any, ...], axis: int) -> int | None:
    """How many values a slice of such a tensor keeps along the axis; None of other operators, and of whole axes."""
    row = int(seen.rows[place])
    told = seen.given(row)
    if told is None or not _SLICE.search(seen.trace.name(int(seen.trace.ops.name[row]))) or told.dims[0] != dims:
        return None
    if number_of(told, 1) % len(dims) != axis:
        return None
    size = int(dims[axis])
    begin, end = (one + size * (one < 0) for one in (number_of(told, 2), min(number_of(told, 3), size)))
    return end - begin if 0 <= begin < end and end - begin < size else None


def full_sorts(facts: Facts) -> Ranges | None:
    """Sorts of which few values are kept."""
    found = _sorts(facts)
    return Ranges.of(facts.trace.ops, found.rows, facts.trace.window_ns) if found is not None else None


def title_of_sorts(facts: Facts, _: Ranges) -> str:
    """The kind's title with the numbers."""
    found = _sorts(facts)
    return f"all of {found.n_values:,} values are sorted, and {found.n_kept:,} are kept" if found is not None else ""


def kept_of_sorts(facts: Facts, _: Ranges) -> float:
    """The share (0-1) of their time that topk takes as well."""
    found = _sorts(facts)
    return found.topk if found is not None else 1.0


def one_hots(facts: Facts) -> Ranges | None:
    """One-hot tensors and the products that take them, with their backward pass."""
    if not has(facts, _ONE_HOT):
        return None
    seen = Forward(facts)
    products = set(seen.places(PRODUCT))
    groups = []
    for place in seen.places(_ONE_HOT):
        told = seen.given(int(seen.rows[place]))
        n_classes = number_of(told, 1) if told is not None else 0
        dims = told.dims[0] if told is not None and told.dims else ()
        for number in range(place + 1, min(place + 1 + _NEAR, seen.rows.size)):
            given = dims_of(seen, number)[:1] if number in products else []
            if given and n_classes > 1 and given[0][-1] == n_classes and lead(given[0]) == prod(dims):
                groups.append(seen.rows[np.array([place, number])])
                break
    return seen.with_backward(groups) if groups else None


class _Late(msgspec.Struct, frozen=True):
    """Products of which the next operators take few rows: what is taken, as a share (0-1) of all."""

    groups: list[I64]
    kept: float
    seen: Forward


def _late(facts: Facts) -> _Late | None:
    if not has(facts, _PICK):
        return None
    seen = Forward(facts)
    ops, trace = seen.trace.ops, seen.trace
    is_pick = named(trace, ops, _PICK)[seen.rows]
    back = np.append(np.flatnonzero(seen.is_back), seen.rows.size)
    groups, kept = [], []
    for place in np.flatnonzero(is_pick & ~seen.is_back).tolist():
        before = next((one for one in range(place - 1, max(place - 1 - _BEHIND, -1), -1) if _is_known(seen, one)), -1)
        dims = dims_of(seen, before) if before >= 0 and LINEAR.search(name_of(seen, before)) else []
        if len(dims) < 2 or len(dims[1]) != 2 or seen.is_back[before]:
            continue
        is_linear = name_of(seen, before) == "aten::linear"
        n_rows, n_columns = lead(dims[0]), dims[1][0] if is_linear else dims[1][1]
        until = min(int(back[np.searchsorted(back, place)]), place + 1 + _AGAIN)
        given = {at: [one for one in dims_of(seen, at) if len(one) > 1] for at in range(place + 1, until)}
        taken = [
            lead(one)
            for at, each in given.items()
            for one in each
            if one[-1] == n_columns and (at <= place + _NEAR or lead(one) == n_rows)
        ]
        most = max(taken, default=n_rows)
        if taken and most <= LATE_CHOICE.limit("kept") * n_rows:
            groups.append(seen.rows[before : before + 1])
            kept.append(most / n_rows)
    return _Late(groups, float(np.mean(kept)), seen) if groups else None


def _is_known(seen: Forward, place: int) -> bool:
    """Whether what an operator takes is known, and it is no choice of rows itself."""
    row = int(seen.rows[place])
    return int(seen.trace.ops.signature[row]) >= 0 and _PICK.search(name_of(seen, place)) is None


def late_choices(facts: Facts) -> Ranges | None:
    """Products of which few rows are taken, with their backward pass."""
    found = _late(facts)
    return found.seen.with_backward(found.groups) if found is not None else None


def kept_of_late(facts: Facts, _: Ranges) -> float:
    """The share (0-1) of their rows that is taken."""
    found = _late(facts)
    return found.kept if found is not None else 1.0
