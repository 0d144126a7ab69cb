"""The backward passes of a trace in which a node runs again, and what lies between them.

A node of the backward pass has a sequence number, which a thread counts, and no node runs twice in a pass. So a number
that comes again is a pass through a graph that was kept (`retain_graph=True`); checkpoints and second derivatives make
nodes of their own.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.analyzers.patterns.dropped import AT_ONCE
from profkit.analyzers.patterns.parameters import STORES, method_codes
from profkit.model.arrays import I64, Bool, distinct, is_one_of
from profkit.model.table import NO_ROW
from profkit.model.trace import SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline.code.phases import Backward, backward_of
from profkit.timeline.host import BACKWARD_NODE, enclosing_op, outermost

_ADDS: Final = later(r"^aten::add_?$")


class Passes(msgspec.Struct, frozen=True, kw_only=True):
    """The outermost nodes of all backward passes in order of time, shape (n,) each; those that store have no number."""

    trace: Trace
    rows: I64
    key: I64
    """The same for two runs of one node; -1 of what has no number."""
    at: I64
    """The number of its pass."""
    stores: Bool
    adds: Bool
    """Whether it adds to a gradient that is there."""
    made: I64
    """The operator that made it, a row of `Trace.ops`; -1 where it is not known."""
    made_at: I64
    """The place here of the node in which it was made: then the pass is of a gradient; -1 for none."""
    last_other: I64
    """Per pass the operator that ran last before it on its threads, a row of `Trace.ops`; -1 for none."""
    group: I64
    """Per pass: the same where no optimizer steps between, none clears and nothing reads all gradients."""


def passes_again(trace: Trace) -> Passes | None:
    """The passes of a trace in which a node runs again; None where none does."""
    ops, backward = trace.ops, backward_of(trace)
    if not backward.by_thread or not trace.named(ops.name, BACKWARD_NODE)[backward.rows].all():
        return None
    rows = np.sort(backward.rows[np.concatenate([place for _, place in backward.by_thread.values()])]).astype(np.int64)
    key = _keys(trace, rows)
    if key.max(initial=-1) + 1 == (key >= 0).sum():
        return None
    others, used = _others(trace, rows, backward)
    at = _numbered(trace, rows, ops.start_ns[others])
    stores, adds = (_has(trace, rows, np.flatnonzero(trace.named(ops.name, one))) for one in (STORES, _ADDS))
    made = _makers(trace, rows)
    last = np.searchsorted(others, rows[np.flatnonzero(np.diff(at, prepend=-1))])
    found = Passes(
        trace=trace,
        rows=rows,
        key=key,
        at=at,
        stores=stores,
        adds=stores & adds,
        made=made,
        made_at=np.where(made >= 0, enclosing_op(ops.take(rows), ops.thread[made], ops.start_ns[made]), -1),
        last_other=np.append(others, -1)[last - 1],
        group=at,
    )
    return replace(found, group=_groups(found, others, used))


def _others(trace: Trace, rows: I64, backward: Backward) -> tuple[I64, Bool]:
    """The outermost operators of the threads of a pass and of what it comes back to, and whether it comes back to each."""
    ops, forward = trace.ops, backward.forward[backward.forward >= 0]
    others = outermost(ops)
    others = others[is_one_of(ops.thread[others], distinct(ops.thread[np.concatenate((rows, forward))]).tolist())]
    others = others[~trace.named(ops.name, BACKWARD_NODE)[others]].astype(np.int64)
    used = np.zeros(others.size, np.bool_)
    place = enclosing_op(ops.take(others), ops.thread[forward], ops.start_ns[forward])
    used[place[place >= 0]] = True
    return others, used


def _keys(trace: Trace, rows: I64) -> I64:
    ops = trace.ops
    number, thread = ops.sequence[rows], ops.forward_thread[rows]
    order = np.lexsort((thread, number))
    is_new = np.append(True, (np.diff(number[order]) != 0) | (np.diff(thread[order]) != 0))[: rows.size]
    key = np.empty(rows.size, np.int64)
    key[order] = np.cumsum(is_new & (number[order] >= 0)) - 1
    key[number < 0] = -1
    return key


def _numbered(trace: Trace, rows: I64, breaks: I64) -> I64:
    """The number of each node's pass: in one the numbers of a thread only go down, and the script runs no operator."""
    ops = trace.ops
    known = np.flatnonzero(ops.sequence[rows] >= 0)
    known = known[np.lexsort((known, ops.forward_thread[rows[known]], ops.thread[rows[known]]))]
    mine = rows[known]
    is_same = (np.diff(ops.thread[mine]) == 0) & (np.diff(ops.forward_thread[mine]) == 0)
    begins = np.sort(ops.start_ns[mine[1:][is_same & (np.diff(ops.sequence[mine]) >= 0)]])
    start = ops.start_ns[rows]
    n_before = np.searchsorted(begins, start, "right") + np.searchsorted(np.sort(breaks), start)
    return np.cumsum(np.diff(n_before, prepend=n_before[:1]) > 0)


def _has(trace: Trace, rows: I64, inner: NDArray[np.intp]) -> Bool:
    ops = trace.ops
    around = enclosing_op(ops.take(rows), ops.thread[inner], ops.start_ns[inner])
    out = np.zeros(rows.size, np.bool_)
    out[around[around >= 0]] = True
    return out


def _makers(trace: Trace, rows: I64) -> I64:
    """The operator that made each node, the last before it with its number, in a backward pass as well; -1: not known."""
    ops = trace.ops
    forward = np.flatnonzero((ops.sequence >= 0) & (ops.forward_thread <= 0))
    out = np.full(rows.size, NO_ROW, np.int64)
    if not forward.size:
        return out
    order = forward[np.lexsort((forward, ops.sequence[forward]))]
    wanted = ops.sequence[rows]
    low, high = np.searchsorted(ops.sequence[order], wanted), np.searchsorted(ops.sequence[order], wanted, "right") - 1
    first, last = order[np.minimum(low, order.size - 1)], order[np.maximum(high, 0)]
    is_known = (wanted >= 0) & (low <= high) & (ops.thread[first] == ops.thread[last])  # each thread counts for itself
    return np.where(is_known & (ops.start_ns[last] < ops.start_ns[rows]), last, NO_ROW)


def _groups(found: Passes, others: I64, used: Bool) -> I64:
    trace, ops = found.trace, found.trace.ops
    first = np.flatnonzero(np.diff(found.at, prepend=-1))
    n_stored = np.add.reduceat(found.stores.astype(np.int64), first)
    begins, ends = ops.start_ns[found.rows[first]], np.maximum.reduceat(ops.end_ns[found.rows], first)
    spans = trace.spans
    cuts = [
        np.sort(spans.end_ns[spans.kind == SpanKind.OPTIMIZER]),
        np.sort(spans.start_ns[is_one_of(spans.name, method_codes(trace, "zero_grad"))]),
        np.sort(ops.start_ns[trace.named(ops.name, AT_ONCE)]),
    ]
    is_cut = np.zeros(first.size, np.bool_)
    for times in cuts:
        is_cut[1:] |= np.diff(np.searchsorted(times, begins)) > 0
    start = ops.start_ns[others]
    for one in range(1, first.size):  # what reads gradients stands before or behind the next loss
        low, high = np.searchsorted(start, (ends[one - 1], begins[one]))
        loss = np.flatnonzero(used[low:high])
        n_read = high - low - (loss[-1] - loss[0] + 1 if loss.size else 0)
        is_cut[one] |= 0 < n_stored[one - 1] <= n_read
    return np.cumsum(is_cut)
