"""What the host was doing: operators and their nesting, and the sets of time spent waiting, blocked or dispatching."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, MANY, distinct_codes, is_one_of, laid_out, looked_up, place_among, rows_by_value
from profkit.model.intervals import Intervals
from profkit.model.table import NO_ROW
from profkit.model.trace import CallKind, CpuOps, Spans, Trace
from profkit.native import algebra
from profkit.timeline.input import InputTimes, input_times

_MAIN_SHARE: Final = 0.01
"""A thread counts as launching from this share of the launches on: watchdogs and pinning threads do not."""

QUIET_OP_NS: Final = 100_000
"""A top-level operator that launches nothing and lasts longer is host work (CPU tensors), not dispatch. Chosen: views
and shape functions take under 20 us with the profiler on; the reference traces have none of 60 to 200 us."""


class Nesting(msgspec.Struct, frozen=True, kw_only=True):
    """Operators ordered by thread, then start, then longest first; `order[i]` is the row in `CpuOps`."""

    order: NDArray[np.int32]
    is_leaf: NDArray[np.bool_]
    is_top: NDArray[np.bool_]


def nesting(ops: CpuOps) -> Nesting:
    """Which operators enclose no other (leaves) and which are enclosed by none (tops), per thread."""
    n = len(ops)
    if n >= algebra.LEAST and (made := algebra.nested(ops.start_ns, ops.end_ns, ops.thread)) is not None:
        return Nesting(order=made[0], is_leaf=made[1], is_top=made[2])
    counts = np.bincount(ops.thread)
    if counts.max(initial=0) == n:  # one thread: no copies of what may be eight million rows
        order = np.arange(n, dtype=np.int32)
    else:
        order = np.argsort(ops.thread, kind="stable").astype(np.int32)  # rows are sorted by start, the longer first
    is_leaf = np.ones(n, np.bool_)
    is_top = np.ones(n, np.bool_)
    if np.count_nonzero(counts) > MANY and (line := _on_one_line(ops, order)) is not None:
        start, end = line
        is_leaf[:-1] = start[1:] >= end[:-1]
        is_top[1:] = start[1:] >= np.maximum.accumulate(end)[:-1]
        return Nesting(order=order, is_leaf=is_leaf, is_top=is_top)
    first = 0
    for count in counts[counts > 0].tolist():
        rows = slice(first, first + count)
        start = ops.start_ns if count == n else ops.start_ns[order[rows]]
        end = ops.end_ns if count == n else ops.end_ns[order[rows]]
        is_leaf[rows][:-1] = start[1:] >= end[:-1]
        is_top[rows][1:] = start[1:] >= np.maximum.accumulate(end)[:-1]
        first += count
    return Nesting(order=order, is_leaf=is_leaf, is_top=is_top)


def outermost(ops: CpuOps) -> NDArray[np.intp]:
    """The rows of the operators that no other on their thread encloses, in order."""
    if len(ops) >= algebra.LEAST:
        is_top = algebra.outermost(ops.start_ns, ops.end_ns, ops.thread)
        if is_top is not None:
            return np.flatnonzero(is_top)
    nested = nesting(ops)
    return np.sort(nested.order[nested.is_top], kind="stable").astype(np.intp)


def scopes(trace: Trace, ops: CpuOps, nested: Nesting) -> NDArray[np.bool_]:
    """Whether each of `ops` is a name without a namespace around others, as that of a `torch.autograd.Function`."""
    is_scope = np.array(["::" not in name for name in trace.strings], np.bool_)[ops.name]
    is_scope[nested.order[nested.is_leaf]] = False
    return is_scope


def _on_one_line(ops: CpuOps, order: NDArray[Any]) -> list[I64] | None:
    thread = ops.thread[order]
    return laid_out((thread, thread), (ops.start_ns[order], ops.end_ns[order]))


def enclosing_op(ops: CpuOps | Spans, thread: NDArray[np.int32], at_ns: I64) -> I64:
    """For each (thread, time): the row of the innermost operator (or range) running there, `NO_ROW` for none."""
    if max(len(ops), at_ns.size) >= algebra.LEAST:
        found = algebra.enclosing((ops.start_ns, ops.end_ns), ops.thread, thread, at_ns)
        if found is not None:
            return found
    out = np.full(at_ns.size, NO_ROW, np.int64)
    threads = distinct_codes(thread)
    if threads.size > MANY:
        order = np.argsort(ops.thread, kind="stable")
        of_ops = ops.thread[order]
        line = laid_out((of_ops, of_ops, thread), (ops.start_ns[order], ops.end_ns[order], at_ns))
        if line is not None:
            start, end, at = line
            place = _innermost(start, end, at)
            inside = place >= 0
            out[inside] = order[place[inside]]
            return out
    for code in threads:
        rows = np.flatnonzero(ops.thread == code)
        wanted = np.flatnonzero(thread == code)
        if rows.size == 0:
            continue
        rows = rows.astype(np.int32)
        place = _innermost(ops.start_ns[rows], ops.end_ns[rows], at_ns[wanted])
        out[wanted] = looked_up(rows, place)
    return out


def _innermost(start: I64, end: I64, at_ns: I64) -> NDArray[np.intp]:
    """For each time: the position of the innermost range (of one thread, in order) around it, -1 for none."""
    place = np.searchsorted(start, at_ns, "right") - 1
    if start.size == 0:
        return place
    parent = _parents(start, end)
    climbing = np.flatnonzero(place >= 0)
    for _ in range(256):  # climb from the latest that started to the first that has not ended
        here = place[climbing]
        is_outside = end[here] <= at_ns[climbing]
        climbing = climbing[is_outside]
        if climbing.size == 0:
            break
        place[climbing] = above = parent[here[is_outside]]
        climbing = climbing[above >= 0]
    return place


def _parents(start: I64, end: I64) -> NDArray[np.int32]:
    """Per range of one thread: the position of the range around it, -1 for none.

    Depth is the number of ranges begun before minus those ended before; the parent is the latest range one level up.
    """
    n = start.size
    before = np.searchsorted(np.sort(end, kind="stable"), start, "right")
    np.subtract(np.arange(n, dtype=np.int32), before, out=before)  # in place: of a large trace each copy is 60 MB
    depth = np.clip(before, -1, np.iinfo(np.int16).max).astype(np.int16)
    del before
    order = np.argsort(depth, kind="stable").astype(np.int32)
    parent = np.full(n, -1, np.int32)
    edges = np.searchsorted(depth[order], np.arange(int(depth.max()) + 2 if n else 1))
    for level in range(1, edges.size - 1):
        upper = order[edges[level - 1] : edges[level]]
        here = order[edges[level] : edges[level + 1]]
        if upper.size and here.size:
            place = np.searchsorted(upper, here) - 1
            parent[here] = looked_up(upper, place)
    return parent


BACKWARD_NODE: Final = "autograd::engine::evaluate_function"
"""How the names of autograd's nodes begin, which run the backward pass."""


def in_backward(trace: Trace, rows: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Which of these operators run inside a node of the backward pass."""
    ops = trace.ops
    is_node = trace.named(ops.name, BACKWARD_NODE)
    node = enclosing_op(ops.take(np.flatnonzero(is_node)), ops.thread[rows], ops.start_ns[rows])
    inside: NDArray[np.bool_] = (node >= 0) & ~is_node[rows]
    return inside


def parent_rows(ops: CpuOps) -> I64:
    """Per operator: the row of the operator right around it on its thread, `NO_ROW` for none."""
    if len(ops) >= algebra.LEAST and (rows := algebra.parent_rows(ops.start_ns, ops.end_ns, ops.thread)) is not None:
        return rows
    out = np.full(len(ops), NO_ROW, np.int64)
    order = np.argsort(ops.thread, kind="stable")
    if distinct_codes(ops.thread).size > MANY and (line := _on_one_line(ops, order)) is not None:
        parent = _parents(*line)
        out[order] = looked_up(order, parent)
        return out
    for _, rows in rows_by_value(ops.thread):
        parent = _parents(ops.start_ns[rows], ops.end_ns[rows])
        out[rows] = looked_up(rows, parent)
    return out


class HostStates(msgspec.Struct, frozen=True, kw_only=True):
    """Sets of host time inside the window, over the launching threads together; they may overlap each other."""

    input: InputTimes
    blocked: Intervals
    """Inside a call that returns only when the device has caught up, or that stops the device to give memory."""
    dispatching: Intervals
    """Inside an operator that launches device work, a short one that does not, or a runtime call."""
    has_ops: bool
    is_known: bool
    """Whether time outside all of these is the host's own: with operators, or where every CUDA call was recorded."""
    threads: tuple[int, ...]

    @property
    def loader(self) -> Intervals:
        """Waiting in the input pipeline, on a thread that launches or marks the steps."""
        return self.input.waits


def launching_threads(trace: Trace) -> tuple[int, ...]:
    """The threads that issue device work."""
    linked = trace.gpu.launch_row[trace.gpu.launch_row >= 0]
    if linked.size == 0:
        return ()
    threads, counts = np.unique(trace.calls.thread[linked], return_counts=True)
    return tuple(int(thread) for thread in threads[counts >= _MAIN_SHARE * counts.sum()])


def host_states(trace: Trace) -> HostStates:
    """What the launching threads were doing, for the attribution of idle device time."""
    threads = launching_threads(trace)
    ops, calls = trace.ops, trace.calls
    on_thread = is_one_of(calls.thread, threads)
    blocking = on_thread & blocking_calls(trace)
    in_ops = _dispatching_ops(trace, threads)
    # most calls are inside an operator: two large sets less
    outside = in_ops.covered_ns(calls.start_ns, calls.end_ns) < calls.end_ns - calls.start_ns
    outside &= on_thread & ~blocking
    dispatch = in_ops | Intervals.of_rows(calls, outside)
    low, high = trace.window_ns
    has_ops = bool(is_one_of(ops.thread, threads).any())
    return HostStates(
        input=input_times(trace, threads, has_ops=has_ops),
        blocked=Intervals.of_rows(calls, blocking),
        dispatching=dispatch.clip(low, high),
        has_ops=has_ops,
        is_known=has_ops or trace.meta.traits.has_host_calls,
        threads=threads,
    )


def blocking_calls(trace: Trace) -> NDArray[np.bool_]:
    """Which runtime calls held the host until the device was done.

    Synchronising and allocating calls by name; asynchronous copies by what they did: the call returned after the copy
    it started had ended (pageable memory).
    """
    calls, gpu = trace.calls, trace.gpu
    blocking = is_one_of(calls.kind, (CallKind.SYNC, CallKind.ALLOC))
    copies = np.flatnonzero((gpu.launch_row >= 0) & (gpu.n_bytes != 0))
    row = gpu.launch_row[copies]
    waited = (calls.kind[row] == CallKind.COPY) & (calls.end_ns[row] >= gpu.end_ns[copies])
    blocking[row[waited]] = True
    return blocking


def os_waits(trace: Trace, threads: tuple[int, ...], during: Intervals) -> tuple[tuple[str, int], ...]:
    """The calls of the operating system in which threads spent that time, as (name, ns), the longest first.

    Not a call during which another of these threads asks the device for something: a backward pass has a thread of its
    own, and the one that waits for it holds nobody up.
    """
    waits = trace.waits
    mine = np.flatnonzero(is_one_of(waits.thread, threads))
    if len(threads) > 1:
        mine = np.concatenate([_waits_alone(trace, mine, thread, threads) for thread in threads])
    spent: list[tuple[str, int]] = []
    for code, places in rows_by_value(waits.name[mine]):
        rows = mine[places]
        total = (Intervals.of_rows(waits, rows) & during).total_ns
        if total:
            spent.append((trace.name(int(code)), total))
    return tuple(sorted(spent, key=lambda wait: -wait[1]))


def _waits_alone(trace: Trace, rows: NDArray[np.intp], thread: int, threads: tuple[int, ...]) -> NDArray[np.intp]:
    """Of these waits those of a thread during which no other one of the threads calls the device."""
    waits, calls = trace.waits, trace.calls
    mine = rows[waits.thread[rows] == thread]
    at = np.sort(calls.start_ns[is_one_of(calls.thread, [other for other in threads if other != thread])])
    alone: NDArray[np.intp] = mine[place_among(at, waits.end_ns[mine]) == place_among(at, waits.start_ns[mine])]
    return alone


def _dispatching_ops(trace: Trace, threads: tuple[int, ...]) -> Intervals:
    on_thread = is_one_of(trace.ops.thread, threads)
    ops = trace.ops if on_thread.all() else trace.ops.take(np.flatnonzero(on_thread))
    if len(ops) == 0:
        return Intervals.empty()
    top = outermost(ops)
    launches = np.flatnonzero(is_one_of(trace.calls.kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH, CallKind.COPY)))
    start, end, thread = ops.start_ns[top], ops.end_ns[top], ops.thread[top]
    del top
    keep = end - start <= QUIET_OP_NS
    for code in threads:  # a hundred at most: each has one launch in a hundred
        mine = np.flatnonzero(~keep & (thread == code))
        at = trace.calls.start_ns[launches[trace.calls.thread[launches] == code]]
        keep[mine] = place_among(at, end[mine]) > place_among(at, start[mine])
    return Intervals.of(start[keep], end[keep])


def self_times_ns(ops: CpuOps) -> I64:
    """Each operator's time outside the operators it encloses, per row of `CpuOps`."""
    return without_children_ns(ops, ops.end_ns - ops.start_ns)


def without_children_ns(ops: CpuOps, own_ns: I64) -> I64:
    """What each operator has of a time (`own_ns`, per row) without what the operators it encloses have of it."""
    out, around = own_ns.copy(), parent_rows(ops)
    is_inside = around >= 0
    np.subtract.at(out, around[is_inside], own_ns[is_inside])
    positive: I64 = np.maximum(out, 0)
    return positive
