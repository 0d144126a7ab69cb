"""What torch does otherwise than it could: graphs that are broken, anomaly mode, attention in separate operators.

Breaks and checks have marks; attention without a fused kernel is torch's own way, or what a model writes out itself.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns.ranges import Ranges, compilations, extents, step_threads
from profkit.findings.patterns import MATH_ATTENTION
from profkit.model.arrays import I64, distinct, distinct_codes, is_one_of, middle, rows_by_value
from profkit.model.intervals import Intervals
from profkit.model.trace import CallKind, CpuOps, SpanKind, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code.phases import backward_of
from profkit.timeline.host import BACKWARD_NODE, enclosing_op, in_backward, self_times_ns

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


def anomaly_checks(facts: Facts) -> Ranges:
    """The looks for NaN in each node, and at the end of each operator that made one the time that a stack takes."""
    trace, ops = facts.trace, facts.trace.ops
    checks = np.flatnonzero(trace.named(ops.name, _CHECK))
    if not checks.size:
        return Ranges.of(ops, checks, trace.window_ns)
    nodes = np.flatnonzero(trace.named(ops.name, BACKWARD_NODE))
    first, last = extents(ops, nodes, np.flatnonzero(trace.named(ops.name, _CHECKING)))
    node = enclosing_op(ops.take(nodes), ops.thread[checks], ops.start_ns[checks])
    looked = distinct(node[node >= 0])
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


_MATH: Final = later(r"^aten::_scaled_dot_product_attention_math")
_PRODUCT: Final = later(r"^aten::(?:bmm|baddbmm)_?$")
_SCORES: Final = later(r"^aten::_softmax(?:_backward_data)?$")
_OTHER: Final = later(
    r"^aten::(?:mm|addmm|linear|\w*convolution\w*|native_(?:layer|batch|group)_norm\w*|embedding\w*|\w*loss\w*|_log_softmax\w*)$"
)
"""What stands between two products that are no attention."""
_ADDS: Final = later(r"^autograd::engine::evaluate_function: AddBackward\d*$")
_SUMS: Final = later(r"^aten::sum$")
_TORCHS_ON_CPU: Final = "attention without dropout, masks that need no gradient, no need_weights=True: a CPU's fused kernel takes nothing else"
_OWN_ON_CPU: Final = (
    "F.scaled_dot_product_attention for attention of your own; nn.MultiheadAttention: need_weights=False"
)


def separate_attention(facts: Facts) -> Ranges:
    """Calls of the way without a fused kernel; elsewhere what stands between both products with the scores, backward as well.

    The products are needed with a fused kernel, too. What stands between them writes and reads the matrix of scores.
    """
    trace = facts.trace
    ops = trace.ops
    math = np.flatnonzero(trace.named(ops.name, _MATH))
    scores = np.flatnonzero(trace.named(ops.name, _SCORES))
    if math.size:
        scores = scores[enclosing_op(ops.take(math), ops.thread[scores], ops.start_ns[scores]) < 0]
    whole = Ranges.of(ops, math, trace.window_ns)
    if not scores.size:
        return _without_learnt(facts, whole)
    product, other = trace.named(ops.name, _PRODUCT), trace.named(ops.name, _OTHER)
    found = [whole]
    for thread, mine in rows_by_value(ops.thread[scores]):
        on, at = ops.thread == thread, scores[mine]
        first, at, second = _around(ops, np.flatnonzero(on & product), at)
        after, until = ops.end_ns[first], ops.start_ns[second]
        others = np.sort(ops.start_ns[on & other])
        is_free = np.searchsorted(others, until) <= np.searchsorted(others, after)
        is_free &= _is_attention(trace, first, at, second)
        start, end = after[is_free], until[is_free]
        found.append(Ranges.of(ops, at[is_free], trace.window_ns, start_ns=start, end_ns=end))
    return _without_learnt(facts, Ranges.joined(*found))


def _without_learnt(facts: Facts, found: Ranges) -> Ranges:
    """On a CPU those that add no mask with a gradient, which a node sums over the batch: no fused kernel there takes one."""
    if facts.cpu is None or not found.start_ns.size:
        return found
    ops, backward = facts.trace.ops, backward_of(facts.trace)
    nodes = np.flatnonzero(facts.trace.named(ops.name[backward.rows], _ADDS))
    sums = np.flatnonzero(facts.trace.named(ops.name, _SUMS))
    node = enclosing_op(ops.take(backward.rows[nodes]), ops.thread[sums], ops.start_ns[sums])
    nodes = nodes[distinct(node[node >= 0])]
    rows = np.concatenate((backward.rows[nodes], backward.forward[nodes]))
    rows = rows[rows >= 0]
    is_plain = np.ones(found.start_ns.size, np.bool_)
    for thread, mine in rows_by_value(found.thread):
        at = np.sort(ops.start_ns[rows[ops.thread[rows] == thread]])
        is_plain[mine] = np.searchsorted(at, found.start_ns[mine]) == np.searchsorted(at, found.end_ns[mine])
    return found.take(is_plain)


def _around(ops: CpuOps, products: I64, at: I64) -> tuple[I64, I64, I64]:
    """Per softmax with a product before it and one behind it: the first product, the softmax, the second, as rows."""
    by_end = products[np.argsort(ops.end_ns[products], kind="stable")]
    before = np.searchsorted(ops.end_ns[by_end], ops.start_ns[at], "right") - 1
    after = np.searchsorted(ops.start_ns[products], ops.start_ns[at], "right")
    has_both = (before >= 0) & (after < products.size)
    return by_end[before[has_both]], at[has_both], products[after[has_both]]


def _is_attention(trace: Trace, first: I64, scores: I64, second: I64) -> NDArray[np.bool_]:
    """Whether the second product may take what was made of the first one's: in the same pass, and of the same size.

    A loss takes a softmax of products as well: the next product is then one of the backward pass.
    """
    rows = np.concatenate([first, scores, second])
    back = in_backward(trace, rows).reshape(3, -1)
    sizes = _elements(trace, rows).reshape(3, -1, 3)
    made, taken, given = sizes[0, :, 0], sizes[1, :, 1], sizes[2, :, 1:]
    is_of_size = (made == taken) & (given == taken[:, None]).any(1) | (sizes < 0).any(axis=(0, 2))
    found: NDArray[np.bool_] = (back == back[0]).all(0) & is_of_size
    return found


def _elements(trace: Trace, rows: I64) -> I64:
    """Per operator how many elements a product of its last two tensors has, and each of them, shape (n, 3); -1: unknown."""
    codes, place = np.unique(trace.ops.signature[rows], return_inverse=True)
    told = [trace.signatures[code] if code >= 0 else None for code in codes.tolist()]
    last = [one.tensors[-2:] if one is not None and one.tensors else [(-1,)] for one in told]
    return np.array([(prod(two[0][:-1]) * two[-1][-1], prod(two[0]), prod(two[-1])) for two in last], np.int64)[place]


def fix_of_attention(facts: Facts, found: Ranges) -> str:
    """A CPU has other conditions than a GPU; without a call of torch's, the model writes it out itself."""
    is_torchs = any(_MATH.search(facts.trace.name(code)) for code in distinct_codes(found.name).tolist())
    if facts.cpu is not None:
        return _TORCHS_ON_CPU if is_torchs else _OWN_ON_CPU
    return MATH_ATTENTION.fixes[0] if is_torchs else MATH_ATTENTION.fixes[-1]
