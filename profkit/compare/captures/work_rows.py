"""The work of a trace row by row: what each row is, how long it took, and how much of it ran under the other kind.

Two levels of identity. `work` is a kernel or operator by name, which one may count and sum. `twin` is narrower: rows
that should take the same time, so that a longer one was slowed. On a device that is name, grid and block; on a CPU,
where the trace tells no sizes, name and place among the step's rows of that name.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, looked_up, rows_by_value
from profkit.model.intervals import Intervals
from profkit.model.names import family_of, short_name
from profkit.model.trace import Kind, SpanKind, Trace
from profkit.timeline import Facts
from profkit.timeline.collectives import arguments_of
from profkit.timeline.cpu import training_threads
from profkit.timeline.host import without_children_ns
from profkit.timeline.steps import edges, steps_in_window
from profkit.units import format_count

COMPILED = "compiled graph (no operators inside)"
OPTIMIZER = "optimizer"
"""The family of kernels that update weights: by their names, or because a range of the optimizer launched them."""
_OF_OPTIMIZER = re.compile(r"^optim\w*(?:[._ :]?step)?$", re.IGNORECASE)
_PRODUCTS = frozenset({"matmul", "attention", "convolution"})


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a row is."""

    name: str
    operator: str
    family: str


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of compute or communication inside the window; columns of equal length.

    `duration_ns` sums to at least `busy_ns`, their union; the excess ran side by side. `other_share` is the share of a
    row under the other kind: of compute under communication, of communication under compute. `blocks` is the grid's
    size, 0 where unknown.
    """

    works: tuple[Work, ...]
    twins: tuple[str, ...]
    work: NDArray[np.int32]
    twin: NDArray[np.int32]
    duration_ns: I64
    other_share: NDArray[np.float64]
    blocks: I64
    busy_ns: int
    hidden_ns: int
    """Of the union, the part under the other kind."""

    def of(self, chosen: Callable[[Work], bool]) -> NDArray[np.bool_]:
        """Which rows are of the chosen works."""
        return np.array([chosen(work) for work in self.works], np.bool_)[self.work]

    def time_ns(self, chosen: Callable[[Work], bool]) -> int:
        """The time of the rows of the chosen works."""
        return int(self.duration_ns[self.of(chosen)].sum())

    @property
    def n_products(self) -> int:
        """Rows that multiply matrices: of families that no compiler fuses away."""
        return int(self.of(lambda work: work.family in _PRODUCTS).sum())


def computation(facts: Facts) -> Rows:
    """The compute rows of the busiest device, or of the CPU's training threads."""
    return _cpu_compute(facts) if facts.cpu is not None else _device_rows(facts, Kind.COMPUTE)


def communication(facts: Facts) -> Rows:
    """The collectives of the busiest device, or the communication ranges of a CPU trace."""
    return _cpu_comm(facts) if facts.cpu is not None else _device_rows(facts, Kind.COMM)


def _device_rows(facts: Facts, kind: Kind) -> Rows:
    main = facts.main_device
    assert main is not None  # noqa: S101 - called only with a device
    gpu = facts.trace.gpu
    rows = main.activity.rows[gpu.kind[main.activity.rows] == kind]
    low, high = facts.trace.window_ns
    start, end = np.maximum(gpu.start_ns[rows], low), np.minimum(gpu.end_ns[rows], high)
    keep = end > start
    rows, start, end = rows[keep], start[keep], end[keep]
    works, work = _device_works(facts, rows, kind)
    shape = np.column_stack((work, gpu.grid[rows], gpu.block[rows]))
    kinds, twin = np.unique(shape, axis=0, return_inverse=True)
    twins = tuple(f"{works[code].name} {grid}" for code, *grid in kinds.tolist())
    mine, other = main.activity.compute, main.activity.comm
    if kind == Kind.COMM:
        mine, other = other, mine
    return Rows(
        works=works,
        twins=twins,
        work=work,
        twin=twin.reshape(-1).astype(np.int32),
        duration_ns=end - start,
        other_share=other.covered_ns(start, end) / (end - start),
        blocks=gpu.grid[rows].astype(np.int64).prod(axis=1),
        busy_ns=mine.total_ns,
        hidden_ns=(mine & other).total_ns,
    )


def _device_works(facts: Facts, rows: NDArray[np.intp], kind: Kind) -> tuple[tuple[Work, ...], NDArray[np.int32]]:
    """The distinct works and each row's: kernel with the operator around its launch, collective with its size."""
    trace = facts.trace
    gpu = trace.gpu
    if kind == Kind.COMM:
        second = _same_collective(trace, arguments_of(trace, rows))
    else:
        named = looked_up(trace.ops.name, looked_up(facts.op_of_call, gpu.launch_row[rows]))
        second = _usual_operator(gpu.name[rows], named.astype(np.int64))
    columns = (gpu.name[rows], second, _by_optimizer(trace, rows))
    found, code = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    works = (
        _collective(trace, name, extra) if kind == Kind.COMM else _kernel(trace, name, extra, by_optimizer=bool(third))
        for name, extra, third in found.tolist()
    )
    return tuple(works), code.reshape(-1).astype(np.int32)


def _by_optimizer(trace: Trace, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which device rows a range of the optimizer launched: torch's own, or one that the user named so."""
    spans, calls, launch = trace.spans, trace.calls, trace.gpu.launch_row[rows]
    named = (spans.kind == SpanKind.OTHER) & trace.named(spans.name, _OF_OPTIMIZER)
    own = np.flatnonzero((spans.kind == SpanKind.OPTIMIZER) | named)
    found = np.zeros(rows.size, np.bool_)
    for thread, places in rows_by_value(spans.thread[own]):
        mine = np.flatnonzero((launch >= 0) & (calls.thread[np.maximum(launch, 0)] == thread))
        times = Intervals.of(spans.start_ns[own[places]], spans.end_ns[own[places]])
        found[mine] = times.contains(calls.start_ns[launch[mine]])
    return found


def _usual_operator(name: NDArray[np.int32], operator: I64) -> I64:
    """The operator of each row; where the launch was not recorded (a window cuts some off), its kernel's usual one."""
    known = operator >= 0
    pairs, counts = np.unique(np.stack((name[known], operator[known]), axis=1), axis=0, return_counts=True)
    usual = np.full(int(name.max(initial=0)) + 1, -1, np.int64)
    by_count = np.argsort(counts, kind="stable")
    usual[pairs[by_count, 0]] = pairs[by_count, 1]  # the last write wins: the most frequent
    return np.where(known, operator, usual[name])


def _kernel(trace: Trace, name: int, operator: int, *, by_optimizer: bool) -> Work:
    text = trace.name(name)
    return Work(name=text, operator=trace.name(operator), family=OPTIMIZER if by_optimizer else family_of(text))


def _same_collective(trace: Trace, rows: I64) -> I64:
    """Per row: the first row of its collective, type and sizes in the table; -1 stays -1."""
    table = trace.collectives
    columns = (table.collective, table.dtype, table.in_elements, table.out_elements, table.group_size)
    _, first, same = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    return looked_up(first[same.reshape(-1)], rows)


def _collective(trace: Trace, name: int, row: int) -> Work:
    if row < 0:
        return Work(name=short_name(trace.name(name)), operator="", family="comm")
    table = trace.collectives
    elements = max(int(table.in_elements[row]), int(table.out_elements[row]))
    said = (trace.name(int(table.collective[row])) or short_name(trace.name(name)), trace.name(int(table.dtype[row])))
    size = f"{format_count(elements)} elements" if elements > 0 else ""
    return Work(name=" ".join(filter(None, (*said, size))), operator="", family="comm")


def _cpu_compute(facts: Facts) -> Rows:
    """Operators by their share of the compute set outside the operators inside them; calls of compiled graphs."""
    trace, cpu = facts.trace, facts.cpu
    assert cpu is not None  # noqa: S101 - called only without a device
    low, high = trace.window_ns
    ops = trace.ops.take(np.flatnonzero(np.isin(trace.ops.thread, training_threads(trace))))
    start, end = np.clip(ops.start_ns, low, high), np.clip(ops.end_ns, low, high)
    own = without_children_ns(ops, cpu.compute.covered_ns(start, end))
    rows = np.flatnonzero((ops.end_ns > low) & (ops.start_ns < high) & ~cpu.data.contains(ops.start_ns))
    spans = trace.spans
    graphs = spans.kind == SpanKind.COMPILED
    compiled = Intervals.of(spans.start_ns[graphs], spans.end_ns[graphs])
    inside = (compiled.clip(low, high) - Intervals.of(start, end)) & cpu.compute
    names, code = np.unique(ops.name[rows], return_inverse=True)
    works = [Work(name=trace.name(int(name)), operator="", family=family_of(trace.name(int(name)))) for name in names]
    twins, twin = _places(trace, code, ops.start_ns[rows], [work.name for work in works])
    covered = cpu.comm.covered_ns(start[rows], end[rows]) / np.maximum(end[rows] - start[rows], 1)
    n_extra = int(bool(inside))
    return Rows(
        works=(*works, *[Work(name=COMPILED, operator="", family="other")] * n_extra),
        twins=(*twins, *[COMPILED] * n_extra),
        work=np.append(code, [len(works)] * n_extra).astype(np.int32),
        twin=np.append(twin, [len(twins)] * n_extra).astype(np.int32),
        duration_ns=np.append(own[rows], [inside.total_ns] * n_extra).astype(np.int64),
        other_share=np.append(covered, [0.5] * n_extra),
        blocks=np.zeros(rows.size + n_extra, np.int64),
        busy_ns=cpu.compute.total_ns,
        hidden_ns=(cpu.compute & cpu.comm).total_ns,
    )


def _cpu_comm(facts: Facts) -> Rows:
    trace, cpu = facts.trace, facts.cpu
    assert cpu is not None  # noqa: S101 - called only without a device
    low, high = trace.window_ns
    spans, rows = facts.communication
    start, end = np.maximum(spans.start_ns[rows], low), np.minimum(spans.end_ns[rows], high)
    names, code = np.unique(spans.name[rows], return_inverse=True)
    works = tuple(Work(name=trace.name(int(name)), operator="", family="comm") for name in names)
    twins, twin = _places(trace, code, start, [work.name for work in works])
    return Rows(
        works=works,
        twins=twins,
        work=code.astype(np.int32),
        twin=twin,
        duration_ns=end - start,
        other_share=cpu.compute.covered_ns(start, end) / np.maximum(end - start, 1),
        blocks=np.zeros(rows.size, np.int64),
        busy_ns=cpu.comm.total_ns,
        hidden_ns=(cpu.comm & cpu.compute).total_ns,
    )


def _places(
    trace: Trace, code: NDArray[np.intp], start: I64, names: list[str]
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Each row's place among the rows of its name in its step: `aten::mm 3` is the fourth of each step."""
    step = np.searchsorted(edges(steps_in_window(trace))[0], start, "right")
    order = np.lexsort((start, step, code))
    ordered = np.stack((code[order], step[order]), axis=1)
    begins = np.ones(order.size, np.bool_)
    begins[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    first = np.flatnonzero(begins)
    place = np.empty(order.size, np.int64)
    place[order] = np.arange(order.size) - np.repeat(first, np.diff(np.append(first, order.size)))
    pairs, twin = np.unique(np.stack((code, place), axis=1), axis=0, return_inverse=True)
    return tuple(f"{names[name]} {number}" for name, number in pairs.tolist()), twin.reshape(-1).astype(np.int32)
