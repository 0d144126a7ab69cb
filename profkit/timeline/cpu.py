"""A CPU as the device: what counts as work, waiting, dispatch and Python (docs/method.md, section 3).

An estimate where the GPU case is an account: the profiler sees operators, not what they do inside, so the fixed cost
of an operator is taken from the smallest ones.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import distinct, distinct_codes, is_one_of, median
from profkit.model.intervals import Intervals
from profkit.model.names import FULL_COLLECTION
from profkit.model.trace import SpanKind, Trace
from profkit.timeline.collectives import is_call
from profkit.timeline.host import nesting, scopes
from profkit.timeline.input import loader_ranges

SMALL_OP_NS: Final = 10_000
"""An operator up to this long may be all dispatch. Chosen: on the project's own CPU captures an operator on 8 elements
takes 1.5 to 6 us with the profiler on, one on 10^5 elements more than 20 us."""
_MIN_SMALL_OPS: Final = 20
WRAPPER_NS: Final = 50_000
"""A stretch inside an operator but outside its children, up to this long, is dispatch; a longer one is work that has
no operator of its own (compiled graphs, custom operators). Chosen: wrappers take 1 to 15 us."""


class CpuBudget(msgspec.Struct, frozen=True, kw_only=True):
    """A partition of the window for the CPU; the sets are disjoint and leave out `host`."""

    compute: Intervals
    comm: Intervals
    comm_exposed: Intervals
    fetching: Intervals
    """Calls of the input pipeline."""
    data: Intervals
    """The same without full collections of Python's: these come to whoever allocates, and look through all objects."""
    dispatch: Intervals
    operators: Intervals
    """All leaf operator time outside the input pipeline, dispatch cost included."""
    op_cost_ns: int
    """The estimated fixed cost of one operator, 0 if the trace has too few small ones."""
    n_leaf_ops: int
    n_small_ops: int
    small_work_ns: int
    """What operators of up to `SMALL_OP_NS` compute beyond their fixed cost: it goes with them."""

    @property
    def has_no_operators(self) -> bool:
        """Whether nothing shows the work of the window: no operator, no compiled graph."""
        return self.n_leaf_ops == 0 and not self.compute

    @property
    def parts(self) -> dict[str, Intervals]:
        """The parts of the budget; the rest of the window is the host's."""
        return {
            "compute": self.compute,
            "comm_exposed": self.comm_exposed,
            "copy_exposed": Intervals.empty(),
            "idle_data": self.data,
            "idle_launch": self.dispatch,
        }


def training_threads(trace: Trace) -> tuple[int, ...]:
    """The threads of the step: those with step markers or operators, without background communication threads."""
    spans = trace.spans
    comm_only = set(distinct(spans.thread[spans.kind == SpanKind.COMM]).tolist())
    with_ops = set(distinct_codes(trace.ops.thread).tolist())
    with_steps = set(distinct(spans.thread[spans.kind == SpanKind.STEP]).tolist())
    threads = (with_ops | with_steps) - (comm_only - with_steps - with_ops)
    return tuple(sorted(int(thread) for thread in threads))


def cpu_budget(trace: Trace) -> CpuBudget:
    """What the CPU did in the window."""
    low, high = trace.window_ns
    spans = trace.spans
    threads = training_threads(trace)
    is_full = (spans.kind == SpanKind.GC) & is_one_of(spans.thread, threads) & trace.named(spans.name, FULL_COLLECTION)
    fetching = _span_set(trace, loader_ranges(spans, ())[0])
    data = fetching - _span_set(trace, is_full)
    comm = _span_set(trace, spans.kind == SpanKind.COMM)
    ops = trace.ops.take(np.flatnonzero(is_one_of(trace.ops.thread, threads)))
    nested = nesting(ops)
    asks = is_call(trace, ops.name)
    leaf = np.sort(nested.order[nested.is_leaf], kind="stable")
    leaf = leaf[~asks[leaf]]
    start, end = ops.start_ns[leaf], ops.end_ns[leaf]
    inside = (end > low) & (start < high) & ~fetching.contains(start)
    start, end = start[inside], end[inside]
    cost = _op_cost_ns(end - start)
    leaves = Intervals.of(start, end).clip(low, high)
    heads = Intervals.of(start, np.minimum(end, start + cost)).clip(low, high)
    wrappers = Intervals.of(ops.start_ns, ops.end_ns).clip(low, high) - leaves
    compiled = _span_set(trace, spans.kind == SpanKind.COMPILED)  # their kernels are no operators
    is_short = wrappers.lengths_ns <= WRAPPER_NS
    short = Intervals(wrappers.start_ns[is_short], wrappers.end_ns[is_short]) - compiled
    calls = Intervals.of_rows(ops, asks)
    is_node = np.array([_is_node(name) for name in trace.strings], np.bool_)[ops.name] | scopes(trace, ops, nested)
    working = Intervals.of_rows(ops, ~is_node & ~asks) | compiled
    # FSDP waits for its collectives inside autograd nodes, a script inside the forward() of its torch.autograd.Function
    # (a name without a namespace): neither does work outside the operators it calls
    waiting = calls | (comm - working)
    long = Intervals(wrappers.start_ns[~is_short], wrappers.end_ns[~is_short]) - waiting
    compiling = _span_set(trace, spans.kind == SpanKind.COMPILING)  # the host's own: no work of the step
    compute = ((leaves - heads) | long | (compiled - heads)) - data - compiling
    comm_exposed = comm - compute - data
    dispatch = (heads | short) - compute - data - comm_exposed - compiling
    return CpuBudget(
        compute=compute,
        comm=comm,
        comm_exposed=comm_exposed,
        fetching=fetching,
        data=data,
        dispatch=dispatch,
        operators=leaves - data,
        op_cost_ns=cost,
        n_leaf_ops=int(start.size),
        n_small_ops=int((end - start <= SMALL_OP_NS).sum()),
        small_work_ns=int(np.maximum(end - start - cost, 0)[end - start <= SMALL_OP_NS].sum()),
    )


def _is_node(name: str) -> bool:
    return name.startswith("autograd::engine::") or "Backward" in name


def _span_set(trace: Trace, rows: NDArray[np.bool_]) -> Intervals:
    return Intervals.of_rows(trace.spans, rows).clip(*trace.window_ns)


def _op_cost_ns(durations_ns: NDArray[np.int64]) -> int:
    small = durations_ns[durations_ns <= SMALL_OP_NS]
    return median(small) if small.size >= _MIN_SMALL_OPS else 0
