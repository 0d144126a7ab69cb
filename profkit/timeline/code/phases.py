"""Forward, backward, optimizer: the phase of a moment of a thread, and the forward operator behind a backward one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import (
    I64,
    Bool,
    distinct,
    distinct_codes,
    is_one_of,
    last_begun,
    looked_up,
    place_among,
    rows_by_value,
)
from profkit.model.code import Phase
from profkit.model.intervals import Intervals
from profkit.model.table import NO_ROW
from profkit.model.trace import SpanKind, Spans, Trace
from profkit.redact.later import later
from profkit.timeline.host import BACKWARD_NODE, enclosing_op, outermost

COPY_SLICES: Final = later(rf"^{BACKWARD_NODE}: (?:torch::autograd::)?CopySlices$")
"""The node of a write into a view of a tensor: it has a number of its own, and runs that of the write inside itself."""


class Backward(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of the backward pass, rows of `Trace.ops`, each with its forward operator (`NO_ROW` for none)."""

    rows: I64
    forward: I64
    by_thread: Mapping[int, tuple[I64, I64]]
    """Thread to the start and the place in `rows` of its nodes, those that lie in another one left out."""
    end_ns: I64

    def at(self, thread: NDArray[np.integer[Any]], at_ns: I64) -> I64:
        """For each (thread, time): the place in `rows` of the outermost node there, -1 outside the backward pass."""
        node = last_begun(self.by_thread, thread, at_ns)
        return np.where(at_ns < looked_up(self.end_ns, node), node, -1)


def backward_of(trace: Trace) -> Backward:
    """The backward pass of a trace: its nodes, and by autograd's sequence numbers the forward operators."""
    ops = trace.ops
    rows = np.flatnonzero(trace.named(ops.name, BACKWARD_NODE))
    if not rows.size:  # until torch 1.10 or so: only what a node itself does
        rows = np.flatnonzero((ops.sequence >= 0) & (ops.forward_thread > 0))
    by_thread = {}
    for thread, places in rows_by_value(ops.thread[rows]):
        start, end = ops.start_ns[rows[places]], ops.end_ns[rows[places]]
        outer = start >= np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]))
        by_thread[int(thread)] = (start[outer], places[outer].astype(np.int64))
    return Backward(rows=rows, forward=_forward(trace, rows), by_thread=by_thread, end_ns=ops.end_ns[rows])


def _forward(trace: Trace, nodes: I64) -> I64:
    """The forward operator of each node: the last before it with its sequence number, on the thread it names."""
    ops, sequence = trace.ops, trace.ops.sequence
    out = np.full(nodes.size, NO_ROW, np.int64)
    if nodes.size == 0:
        return out
    forward = np.flatnonzero((sequence >= 0) & (ops.forward_thread <= 0))
    inside = Intervals.of_rows(ops, nodes)
    mine = [*distinct_codes(ops.thread[nodes]).tolist()]
    again = np.isin(ops.thread[forward], mine) & inside.contains(ops.start_ns[forward])
    forward = forward[~again]  # what is computed again in the backward pass
    if forward.size == 0:
        return out
    order = np.lexsort((ops.start_ns[forward], sequence[forward]))
    ordered = sequence[forward[order]]
    wanted = _wanted(trace, nodes)
    # operators before it that make no node have the number of the next one as well: the last one made it
    first, last = place_among(ordered, wanted), place_among(ordered, wanted, after=True) - 1
    found, other = forward[order[np.maximum(last, 0)]], forward[order[np.minimum(first, ordered.size - 1)]]
    is_known = (wanted >= 0) & (first <= last) & (ops.thread[found] == ops.thread[other])
    is_known &= ops.start_ns[found] < ops.start_ns[nodes]
    return np.where(is_known, found, NO_ROW)


def _wanted(trace: Trace, nodes: I64) -> I64:
    """The sequence number of each node's operator: of a write into a view that of the node inside."""
    ops, out = trace.ops, trace.ops.sequence[nodes].astype(np.int64)
    writes = np.flatnonzero(trace.named(ops.name, COPY_SLICES)[nodes])
    if writes.size:
        of_writes = ops.take(nodes[writes])
        inner = np.flatnonzero((ops.sequence >= 0) & (ops.forward_thread > 0) & is_one_of(ops.thread, of_writes.thread))
        place = enclosing_op(of_writes, ops.thread[inner], ops.start_ns[inner])
        inside = (place >= 0) & (ops.sequence[inner] != of_writes.sequence[place])
        # the first one inside: the last that is written
        out[writes[place[inside][::-1]]] = ops.sequence[inner[inside][::-1]]
    return out


class Phases(msgspec.Struct, frozen=True, kw_only=True):
    """What tells the phase of a moment."""

    optimizer: Spans
    backward: Backward
    forward: Mapping[int, tuple[I64, I64]]
    """Thread to the start and end of its outermost operators that the backward pass comes back to."""

    def at(self, thread: NDArray[np.integer[Any]], at_ns: I64, *, in_module: Bool) -> NDArray[np.int8]:
        """The `Phase` of each (thread, time); `in_module` says which lie in a call of a module."""
        out = np.full(at_ns.size, Phase.OTHER, np.int8)
        out[at_ns < last_begun(self.forward, thread, at_ns)] = Phase.FORWARD
        out[in_module] = Phase.FORWARD
        if len(self.optimizer):
            out[enclosing_op(self.optimizer, thread.astype(np.int32), at_ns) >= 0] = Phase.OPTIMIZER
        out[self.backward.at(thread, at_ns) >= 0] = Phase.BACKWARD
        return out


def phases_of(trace: Trace, backward: Backward) -> Phases:
    """What tells the phase of a moment of a trace."""
    ops, spans = trace.ops, trace.spans
    used = distinct(backward.forward[backward.forward >= 0])
    forward = {}
    if used.size:
        tops = outermost(ops)
        for thread, places in rows_by_value(ops.thread[tops]):
            start = ops.start_ns[tops[places]]
            mine = used[ops.thread[used] == thread]
            has = np.zeros(start.size, np.bool_)
            has[place_among(start, ops.start_ns[mine], after=True) - 1] = True
            if mine.size:
                forward[int(thread)] = (start[has], ops.end_ns[tops[places]][has])
    optimizer = spans.take(np.flatnonzero(spans.kind == SpanKind.OPTIMIZER))
    return Phases(optimizer=optimizer, backward=backward, forward=forward)
