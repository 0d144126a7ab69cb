"""Outermost operators of forward passes with the shapes that they take, for what is known by shapes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from profkit.analyzers.patterns.ranges import Ranges, step_threads
from profkit.findings.patterns import MOSTLY
from profkit.model.arrays import I64, is_one_of
from profkit.model.signature import Signature
from profkit.model.trace import Trace
from profkit.plain import clean
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code import matched
from profkit.timeline.code.match import Match
from profkit.timeline.code.phases import backward_of
from profkit.timeline.host import outermost

PRODUCT: Final = later(r"^aten::(?:linear|addmm|mm|matmul|bmm|baddbmm)$")
LINEAR: Final = later(r"^aten::(?:linear|addmm|mm)$")
_SLICE: Final = later(r"^aten::slice$")
_WHOLE: Final = later(r"^ ?-?[0-9]{1,19}$")
"""An int64 as profilers write it."""
Chain: TypeAlias = tuple[list[int], float, tuple[int, ...]]
"""Places, the share (0-1) of their time that stays, and numbers for the title."""


class Waste(msgspec.Struct, frozen=True):
    """Ranges of work, the share (0-1) of their time that a change leaves, what that is called, and what to do; "" as its kind."""

    ranges: Ranges
    kept: float
    title: str = ""
    fix: str = ""


class Forward:
    """Outermost operators of the step's threads beside the backward pass, in order of time, with their arguments."""

    def __init__(self, facts: Facts, trace: Trace | None = None) -> None:
        self.trace = trace or facts.trace
        self.backward = backward_of(self.trace)
        ops = self.trace.ops
        rows = outermost(ops)
        if trace is None:
            rows = rows[is_one_of(ops.thread[rows], step_threads(facts))]
        is_back = self.backward.at(ops.thread[rows], ops.start_ns[rows]) >= 0
        order = np.lexsort((ops.start_ns[rows], ops.thread[rows]))
        self.rows, self.is_back = rows[order].astype(np.int64), is_back[order]

    def given(self, place: int) -> Signature | None:
        """What the operator at a place of `rows` takes; None where that was not recorded."""
        return self.trace.given(int(self.rows[place]))

    def name(self, place: int) -> str:
        """The name of the operator at that place."""
        return self.trace.name(int(self.trace.ops.name[self.rows[place]]))

    def dims(self, place: int) -> list[tuple[int, ...]]:
        """The shapes of the tensors that it takes; of addmm those of the product."""
        told = self.given(place)
        dims = told.tensors if told is not None else []
        return dims[1:] if self.name(place) in ("aten::addmm", "aten::baddbmm") else dims

    def places(self, pattern: Any) -> list[int]:
        """Places in `rows` of the operators with such a name whose arguments are known."""
        ops = self.trace.ops
        mine = self.trace.named(ops.name, pattern)[self.rows] & (ops.signature[self.rows] >= 0) & ~self.is_back
        return np.flatnonzero(mine).tolist()

    def n_read(self, low_ns: int, high_ns: int) -> int:
        """How many operators that begin between these times a backward node comes back to."""
        return int(np.diff(np.searchsorted(self._read, (low_ns, high_ns)))[0])

    @cached_property
    def _read(self) -> I64:
        made = self.backward.forward
        return np.sort(self.trace.ops.start_ns[made[made >= 0]])

    def is_read(self, place: int) -> bool:
        """Whether a backward node comes back to it, or to what it calls."""
        ops, row = self.trace.ops, self.rows[place]
        return bool(self.n_read(ops.start_ns[row], ops.end_ns[row]))

    def with_backward(self, groups: list[I64]) -> Ranges:
        """From the first to the last operator of each group, and the backward nodes of what lies between."""
        ops = self.trace.ops
        first, last = (np.array([group[at] for group in groups], np.int64) for at in (0, -1))
        low, high, thread = ops.start_ns[first], ops.end_ns[last], ops.thread[first]
        made = self.backward.forward
        at = ops.start_ns[np.maximum(made, 0)]
        order = np.argsort(low, kind="stable")
        place = np.searchsorted(low[order], at, "right") - 1
        mine = order[np.maximum(place, 0)]
        inside = (made >= 0) & (place >= 0) & (at < high[mine]) & (ops.thread[np.maximum(made, 0)] == thread[mine])
        forward = Ranges.of(ops, first, self.trace.window_ns, end_ns=high)
        return Ranges.joined(forward, Ranges.of(ops, self.backward.rows[inside], self.trace.window_ns))


def has(facts: Facts, pattern: re.Pattern[str]) -> bool:
    """Whether such an operator is in the trace at all, and shapes are."""
    return bool(facts.trace.signatures) and any(map(pattern.search, facts.trace.strings))


def with_shapes(facts: Facts) -> Forward | None:
    """The operators of the timed steps, or of those recorded once more, whichever have shapes."""
    trace, again = facts.trace, facts.trace.again
    if any(one is not None for one in trace.signatures):
        return facts.once(Forward)
    return Forward(facts, again) if again is not None and any(one is not None for one in again.signatures) else None


def _match(facts: Facts) -> Match | None:
    return matched(facts.trace)


def timed_rows(facts: Facts, seen: Forward, rows: I64) -> I64:
    """The operators of the timed trace that are these of the trace with shapes, matched early as well as late."""
    if seen.trace is facts.trace or not rows.size:
        return rows
    match = facts.once(_match)
    if match is None:
        return np.empty(0, np.int64)
    return np.flatnonzero(np.isin(match.first, rows) & np.isin(match.last, rows)).astype(np.int64)


def waste(facts: Facts, seen: Forward, found: Sequence[Chain], title: str = "") -> Waste | None:
    """Chains in the timed trace, with their backward nodes; `title` is filled with the numbers of the largest."""
    if not found:
        return None
    ops = seen.trace.ops
    spent = [float((ops.end_ns - ops.start_ns)[seen.rows[places]].sum()) for places, _, _ in found]
    kept = sum(ns * each for ns, (_, each, _) in zip(spent, found, strict=True)) / max(sum(spent), 1.0)
    rows = timed_rows(facts, seen, np.unique(np.concatenate([seen.rows[places] for places, _, _ in found])))
    largest = found[int(np.argmax(spent))][2]
    return Waste(each_with_backward(facts, rows), kept, title.format(*largest)) if rows.size else None


def each_with_backward(facts: Facts, rows: I64) -> Ranges:
    """Each of these operators of the timed trace by itself, and its backward nodes."""
    return facts.once(Forward).with_backward([rows[[at]] for at in range(rows.size)])


def function_of(facts: Facts, rows: I64) -> str:
    """The function of the user's that has most of the time of these operators, "" for none."""
    code, ops = facts.code, facts.trace.ops
    if code is None:
        return ""
    whole = (ops.end_ns - ops.start_ns)[rows]
    first: dict[str, int] = {}
    numbers = [first.setdefault(f"{one.file} {one.function}", place) for place, one in enumerate(code.places, 1)]
    spent = np.bincount(np.array([0, *numbers])[code.place_of_op[rows] + 1], weights=whole)
    spent[0] = 0.0
    best = int(spent.argmax())
    name = code.places[best - 1].function if spent[best] >= MOSTLY * whole.sum() > 0 else ""
    return f"{clean(name)}()" if name.isidentifier() else ""


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


def lead(dims: tuple[int, ...]) -> int:
    """The rows of a tensor as a matrix; 0 of a number."""
    return prod(dims[:-1]) if dims else 0


def number_of(told: Signature, place: int) -> int:
    """An argument that is a whole number; 0 of others."""
    text = told.text(place)
    return int(text) if _WHOLE.match(text) else 0


def numbers_of(told: Signature, place: int) -> list[int]:
    """The whole numbers of an argument that is one, or a list of them; none of others."""
    return [int(one) for one in told.text(place).strip("[]").split(",") if _WHOLE.match(one)]


def sliced(seen: Forward, place: int, shape: tuple[int, ...], axis: int) -> int:
    """How long a slice of a tensor of that shape is along the axis; 0 of other operators."""
    told = seen.given(place)
    if told is None or not _SLICE.search(seen.name(place)) or told.shape(0) != shape:
        return 0
    if number_of(told, 1) % len(shape) != axis:
        return 0
    size = shape[axis]
    begin, end = (one + size * (one < 0) for one in (number_of(told, 2), min(number_of(told, 3), size)))
    return end - begin if 0 <= begin < end else 0
