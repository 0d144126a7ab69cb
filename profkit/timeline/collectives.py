"""Who asked for a collective, and the arguments it was called with: told once, for the budget and for all ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import names
from profkit.model.arrays import I64, Bool, distinct_codes, looked_up
from profkit.model.intervals import Intervals
from profkit.model.table import NO_ROW
from profkit.model.trace import I32, CpuOps, GpuWork, Kind, RuntimeCalls, Trace
from profkit.redact.later import later
from profkit.timeline.host import enclosing_op

_REQUEST: Final = "c10d::"
_CALLS: Final = (_REQUEST, "_c10d_functional::", "c10d_functional::", "record_param_comms")
_DTYPE_BYTES: Final = (
    (later(r"float8|fp8|byte|char|bool|u?int8"), 1),
    (later(r"bfloat16|half|u?int16|short|float16"), 2),
    (later(r"complexdouble|complex128"), 16),
    (later(r"double|long|u?int64|float64|complexfloat|complex64"), 8),
    (later(r"float|int"), 4),
)
_MOST_ELEMENTS: Final = 2**58
"""So that bytes fit int64, whatever a file claims."""
UNKNOWN: Final = -1
"""Elements or bytes the trace does not tell."""


def element_bytes(dtype: str) -> int:
    """The bytes of one element as c10d spells its type ("Float", "BFloat16"); `UNKNOWN` for other words."""
    lowered = dtype.lower()
    return next((size for pattern, size in _DTYPE_BYTES if pattern.search(lowered)), UNKNOWN)


def bytes_of(trace: Trace, rows: NDArray[np.intp]) -> I64:
    """What each device row moves, the larger of what goes in and comes out, bytes; `UNKNOWN` where that is not told."""
    table, place = trace.collectives, arguments_of(trace, rows)
    widths = np.full(len(trace.strings) + 1, UNKNOWN, np.int64)  # the last is for "no string"
    for code in distinct_codes(table.dtype):
        widths[code] = element_bytes(trace.name(int(code)))
    width = widths[table.dtype]
    elements = np.minimum(np.maximum(table.in_elements, table.out_elements), _MOST_ELEMENTS)
    told = np.where((elements >= 0) & (width > 0), elements * width, UNKNOWN)
    return looked_up(told, place, UNKNOWN)


def is_request(trace: Trace, names: I32) -> Bool:
    """Whether each name is the operator that stands for one collective; a functional one calls it in its turn."""
    return trace.named(names, _REQUEST)


def is_call(trace: Trace, names: I32) -> Bool:
    """Whether each name is an operator around a request, or its record: queueing and waiting, never compute."""
    return trace.named(names, _CALLS)


def arguments_of(trace: Trace, rows: NDArray[np.intp]) -> I64:
    """The row in `Trace.collectives` of each device row, `NO_ROW` where the trace has no arguments."""
    table = trace.collectives.gpu_row
    if table.size == 0:
        return np.full(rows.size, NO_ROW, np.int64)
    place = np.minimum(np.searchsorted(table, rows), table.size - 1)
    return np.where(table[place] == rows, place, NO_ROW)


def asked_by_name(
    gpu: GpuWork, calls: RuntimeCalls, ops: CpuOps, strings: tuple[str, ...], *, world_size: int | None
) -> NDArray[np.intp]:
    """The compute rows of `gpu` that are communication by the innermost operator around their launch.

    The innermost alone: what an all-to-all asks of another operator (a product, a sort) is that operator's. A node that
    moves tokens counts where the job is known to have several ranks, and none does in a job of one.
    """
    if len(ops) == 0 or len(calls) == 0 or world_size == 1:
        return np.empty(0, np.intp)
    asking, tokens = (_named(ops.name, strings, told) for told in (names.is_asking, names.is_of_tokens))
    if world_size is None and not (gpu.kind == Kind.COMM).any():
        tokens[:] = False
    chosen = np.flatnonzero((asking | tokens)[ops.name])
    if chosen.size == 0:
        return np.empty(0, np.intp)
    during = Intervals.of_rows(ops, chosen)
    rows = np.flatnonzero((gpu.kind == Kind.COMPUTE) & (gpu.launch_row >= 0) & (gpu.graph_node == 0))
    at = calls.start_ns[gpu.launch_row[rows]]
    is_near = during.contains(at)
    rows, at = rows[is_near], at[is_near]
    near = ops.take(np.flatnonzero(during.contains(ops.start_ns)))
    inside = enclosing_op(near, calls.thread[gpu.launch_row[rows]], at)
    rows, operator = rows[inside >= 0], near.name[inside[inside >= 0]]
    may = _named(gpu.name[rows], strings, names.may_be_asked)
    crosses = _named(gpu.name[rows], strings, partial(names.may_be_asked, of_tokens=True))
    return rows[(asking[operator] & may[gpu.name[rows]]) | (tokens[operator] & crosses[gpu.name[rows]])]


def _named(codes: I32, strings: tuple[str, ...], told: Callable[[str], bool]) -> Bool:
    """What is told by a name, per code, once for each that occurs; bool, [len(strings)]."""
    table = np.zeros(len(strings), np.bool_)
    for code in distinct_codes(codes):
        table[code] = told(strings[code])
    return table
