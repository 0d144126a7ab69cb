"""Outermost operators of forward passes with the shapes that they take, for what is known by shapes."""

from __future__ import annotations

import re
from math import prod
from typing import Any, Final

import numpy as np

from profkit.analyzers.patterns.ranges import Ranges, named, step_threads
from profkit.model.arrays import I64, is_one_of
from profkit.model.signature import Signature
from profkit.model.trace import Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code.phases import backward_of
from profkit.timeline.host import outermost

PRODUCT: Final = later(r"^aten::(?:linear|addmm|mm|matmul|bmm|baddbmm)$")
LINEAR: Final = later(r"^aten::(?:linear|addmm|mm)$")


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

    def given(self, row: int) -> Signature | None:
        """What an operator takes; None where that was not recorded."""
        code = int(self.trace.ops.signature[row])
        return self.trace.signatures[code] if code >= 0 else None

    def places(self, pattern: Any) -> list[int]:
        """Places in `rows` of the operators with such a name whose arguments are known."""
        ops = self.trace.ops
        mine = named(self.trace, ops, pattern)[self.rows] & (ops.signature[self.rows] >= 0) & ~self.is_back
        return np.flatnonzero(mine).tolist()

    def with_backward(self, groups: list[I64]) -> Ranges:
        """From the first to the last operator of each group, and the backward nodes of what lies between."""
        ops = self.trace.ops
        low = np.array([ops.start_ns[group[0]] for group in groups], np.int64)
        high = np.array([ops.end_ns[group[-1]] for group in groups], np.int64)
        thread = np.array([ops.thread[group[0]] for group in groups], np.int32)
        names = np.array([ops.name[group[0]] for group in groups], np.int32)
        made = self.backward.forward
        at = ops.start_ns[np.maximum(made, 0)]
        order = np.argsort(low, kind="stable")
        place = np.searchsorted(low[order], at, "right") - 1
        mine = order[np.maximum(place, 0)]
        inside = (made >= 0) & (place >= 0) & (at < high[mine]) & (ops.thread[np.maximum(made, 0)] == thread[mine])
        nodes = self.backward.rows[inside]
        begin, end = self.trace.window_ns
        starts = np.concatenate([low, ops.start_ns[nodes]])
        ends = np.concatenate([high, ops.end_ns[nodes]])
        kept = (ends > begin) & (starts < end)
        return Ranges(
            start_ns=starts[kept],
            end_ns=ends[kept],
            thread=np.concatenate([thread, ops.thread[nodes]])[kept],
            name=np.concatenate([names, ops.name[nodes]])[kept],
        )


def has(facts: Facts, pattern: re.Pattern[str]) -> bool:
    """Whether such an operator is in the trace at all, and shapes are."""
    return bool(facts.trace.signatures) and any(map(pattern.search, facts.trace.strings))


def lead(dims: tuple[Any, ...]) -> int:
    """The rows of a tensor as a matrix; 0 of a list of tensors, and of a number."""
    return prod(dims[:-1]) if dims and not isinstance(dims[0], tuple) else 0


def number_of(told: Signature, place: int) -> int:
    """An argument that is a whole number; 0 of others."""
    text = told.concrete[place] if len(told.concrete) > place else ""
    return int(text) if text.lstrip("-").isdigit() else 0


def dims_of(seen: Forward, place: int) -> list[tuple[Any, ...]]:
    """The shapes of the tensors that an operator takes; of addmm those of the product."""
    row = int(seen.rows[place])
    told = seen.given(row)
    dims = [one for one in told.dims if one and not isinstance(one[0], tuple)] if told is not None else []
    return dims[1:] if seen.trace.name(int(seen.trace.ops.name[row])) in ("aten::addmm", "aten::baddbmm") else dims


def name_of(seen: Forward, place: int) -> str:
    """The name of the operator at that place."""
    return seen.trace.name(int(seen.trace.ops.name[seen.rows[place]]))
