"""Autograd's anomaly mode: where it looks for NaN in the backward pass, and where it stores Python stacks."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.analyzers.patterns.ranges import Ranges, named
from profkit.model.arrays import I64, distinct, middle
from profkit.model.trace import Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code.phases import backward_of
from profkit.timeline.host import BACKWARD_NODE, enclosing_op, self_times_ns

_CHECK: Final = later(r"^aten::_is_any_true$")
_CHECKING: Final = later(r"^aten::(?:isnan|_is_any_true|item)$")
_VIEW: Final = later(r"^aten::(?:t|transpose|permute|view|_unsafe_view|expand|unsqueeze|squeeze|select|slice)$")
_LEAST_VIEWS: Final = 3
"""Chosen: one view may have been interrupted."""


def checks(facts: Facts) -> Ranges:
    """The looks for NaN in each node, and at the end of each operator that made one the time that a stack takes."""
    trace, ops = facts.trace, facts.trace.ops
    if not named(trace, ops, _CHECK).any():
        return Ranges.of(ops, np.empty(0, np.int64), trace.window_ns)
    nodes = np.flatnonzero(named(trace, ops, BACKWARD_NODE))
    inner = np.flatnonzero(named(trace, ops, _CHECKING))
    node = enclosing_op(ops.take(nodes), ops.thread[inner], ops.start_ns[inner])
    inner, node = inner[node >= 0], node[node >= 0]
    first, last = np.full(nodes.size, np.iinfo(np.int64).max), np.zeros(nodes.size, np.int64)
    np.minimum.at(first, node, ops.start_ns[inner])
    np.maximum.at(last, node, ops.end_ns[inner])
    looked = distinct(node[named(trace, ops, _CHECK)[inner]])
    makers, stack_ns = _makers(trace) if looked.size else (np.empty(0, np.int64), 0)
    low, high = trace.window_ns
    start = np.concatenate((first[looked], np.maximum(ops.start_ns[makers], ops.end_ns[makers] - stack_ns)))
    end = np.concatenate((last[looked], ops.end_ns[makers]))
    rows = np.concatenate((nodes[looked], makers))
    kept = (end > low) & (start < high)
    return Ranges(start_ns=start[kept], end_ns=end[kept], thread=ops.thread[rows[kept]], name=ops.name[rows[kept]])


def _makers(trace: Trace) -> tuple[I64, int]:
    """The operators that made nodes, and what storing a stack takes each, ns: what views among them take themselves."""
    backward = backward_of(trace)
    made = distinct(backward.forward[backward.forward >= 0])
    views = made[named(trace, trace.ops, _VIEW)[made]]
    if views.size < _LEAST_VIEWS:
        return made[:0], 0
    return made, int(middle(self_times_ns(trace.ops)[views]))
