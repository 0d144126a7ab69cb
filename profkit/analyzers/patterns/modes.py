"""Marks of torch's modes: where a graph of torch.compile is broken, and where autograd looks for NaN (anomaly mode)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns.ranges import Ranges, compilations, step_threads
from profkit.model.arrays import I64, distinct, is_one_of, middle, rows_by_value
from profkit.model.intervals import Intervals
from profkit.model.trace import CallKind, SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code.phases import backward_of
from profkit.timeline.host import BACKWARD_NODE, enclosing_op, self_times_ns

_REGION: Final = later(r"^Torch-Compiled Region")
_GRAPH: Final = later(r"^## Call CompiledFxGraph")
_NO_WORK: Final = later(
    r"^TorchDynamo Cache Lookup|^AOTDispatcher |^Pregraph bytecode|^aten::(?:item|_local_scalar_dense)$"
)
"""Operators of the change from one graph to the next: guards, wrappers, and the value that Python asked for."""
_CHECK: Final = later(r"^aten::_is_any_true$")
_CHECKING: Final = later(r"^aten::(?:isnan|_is_any_true|item)$")
_VIEW: Final = later(r"^aten::(?:t|transpose|permute|view|_unsafe_view|expand|unsqueeze|squeeze|select|slice)$")
_LEAST_VIEWS: Final = 3
"""Chosen: one view may have been interrupted."""


def graph_breaks(facts: Facts) -> Ranges:
    """Each break from the last work before it to the first work of the graph that follows, on the threads of the step.

    The range of a compiled function holds that of another one only where its graph is broken: the second one goes on
    behind the break. Left out are those at which something is compiled, and functions that only call the compiled one:
    in them nothing runs before it (torch wraps the step of an optimizer like that).
    """
    trace = facts.trace
    spans = trace.spans
    mine = (
        (spans.kind == SpanKind.COMPILED)
        & trace.named(spans.name, _REGION)
        & is_one_of(spans.thread, step_threads(facts))
    )
    regions = Ranges.of(spans, mine, trace.window_ns)
    found = [_of_thread(trace, regions, int(thread), rows) for thread, rows in rows_by_value(regions.thread)]
    if not found:
        return regions
    starts, ends, threads = (np.concatenate(column) for column in zip(*found, strict=True))
    compiling = compilations(facts)
    is_plain = Intervals.of(compiling.start_ns, compiling.end_ns).covered_ns(starts, ends) == 0
    is_plain &= starts < ends
    thread = threads[is_plain].astype(np.int32)
    return Ranges(start_ns=starts[is_plain], end_ns=ends[is_plain], thread=thread, name=np.full_like(thread, -1))


def _of_thread(trace: Trace, regions: Ranges, thread: int, rows: NDArray[np.intp]) -> tuple[I64, I64, I64]:
    """Starts, ends and the thread of the breaks of one thread; of no length where no work is known on both sides."""
    order = rows[np.lexsort((-regions.end_ns[rows], regions.start_ns[rows]))]
    begins, ends = regions.start_ns[order], regions.end_ns[order]
    reach = np.maximum.accumulate(ends)
    is_outer = np.append(True, begins[1:] >= reach[:-1])
    inner = np.flatnonzero(~is_outer)
    outer = np.maximum.accumulate(np.where(is_outer, np.arange(order.size), 0))[inner]
    starts, stops = _work(trace, thread)
    edge = np.iinfo(np.int64)
    before = np.append(edge.min, stops)[np.searchsorted(stops, begins[inner], "right")]
    after = np.append(starts, edge.max)[np.searchsorted(starts, begins[inner], "left")]
    low = np.where(before > begins[outer], before, begins[inner])
    high = np.where((after < ends[inner]) & (low < begins[inner]), after, low)
    return low, high, np.full(inner.size, thread, np.int64)


def _work(trace: Trace, thread: int) -> tuple[I64, I64]:
    """Starts and ends, each sorted, of what works for the step on that thread: operators, graphs, launches."""
    ops, spans, calls = trace.ops, trace.spans, trace.calls
    chosen = (
        (ops, (ops.thread == thread) & ~trace.named(ops.name, _NO_WORK)),
        (spans, (spans.thread == thread) & trace.named(spans.name, _GRAPH)),
        (calls, (calls.thread == thread) & (calls.kind == CallKind.LAUNCH)),
    )
    starts = np.concatenate([table.start_ns[rows] for table, rows in chosen])
    ends = np.concatenate([table.end_ns[rows] for table, rows in chosen])
    return np.sort(starts), np.sort(ends)


def checks(facts: Facts) -> Ranges:
    """The looks for NaN in each node, and at the end of each operator that made one the time that a stack takes."""
    trace, ops = facts.trace, facts.trace.ops
    if not trace.named(ops.name, _CHECK).any():
        return Ranges.of(ops, np.empty(0, np.int64), trace.window_ns)
    nodes = np.flatnonzero(trace.named(ops.name, BACKWARD_NODE))
    inner = np.flatnonzero(trace.named(ops.name, _CHECKING))
    node = enclosing_op(ops.take(nodes), ops.thread[inner], ops.start_ns[inner])
    inner, node = inner[node >= 0], node[node >= 0]
    first, last = np.full(nodes.size, np.iinfo(np.int64).max), np.zeros(nodes.size, np.int64)
    np.minimum.at(first, node, ops.start_ns[inner])
    np.maximum.at(last, node, ops.end_ns[inner])
    looked = distinct(node[trace.named(ops.name, _CHECK)[inner]])
    makers, stack_ns = _makers(trace) if looked.size else (np.empty(0, np.int64), 0)
    start = np.concatenate((first[looked], np.maximum(ops.start_ns[makers], ops.end_ns[makers] - stack_ns)))
    end = np.concatenate((last[looked], ops.end_ns[makers]))
    rows = np.concatenate((nodes[looked], makers))
    return Ranges.of(ops, rows, trace.window_ns, start_ns=start, end_ns=end)


def _makers(trace: Trace) -> tuple[I64, int]:
    """The operators that made nodes, and what storing a stack takes each, ns: what views among them take themselves."""
    backward = backward_of(trace)
    made = distinct(backward.forward[backward.forward >= 0])
    views = made[trace.named(trace.ops.name, _VIEW)[made]]
    if views.size < _LEAST_VIEWS:
        return made[:0], 0
    return made, int(middle(self_times_ns(trace.ops)[views]))
