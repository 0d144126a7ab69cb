"""Which launch of a kernel stands for all: for a profiler that counts launches of a function, not names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from profkit.model.arrays import I64, Bool, distinct, is_one_of, of_rows, order_of, place_among
from profkit.model.names import function_name
from profkit.model.table import NO_ROW
from profkit.model.trace import Kind, Trace
from profkit.timeline.steps import EDGES_ON_DEVICE, step_of

_LONG_AGO: Final = -(2**62)
MOST_TYPED: Final = 60
"""Characters of a kernel's name in a command. Chosen: the line can still be read."""
_HEAD: Final = 24
"""Characters that stand in front in any case (chosen: they tell a reader which kernel it is)."""


def shortened(names: Collection[str]) -> dict[str, str]:
    """For each function of kernels with more than `MOST_TYPED` characters a regular expression that finds it alone."""
    if not any(len(name) > MOST_TYPED for name in names):
        return {}
    functions = {function_name(name) for name in names}
    return {one: _found_alone(one, functions - {one}) for one in functions if len(one) > MOST_TYPED}


def _found_alone(function: str, others: Collection[str]) -> str:
    """By its first characters, else by these and its last ones; names hold letters, digits and _ alone."""
    head = function[:_HEAD]
    alike = tuple(other for other in others if other.startswith(head))
    for length in range(_HEAD, MOST_TYPED + 1):
        if not any(other.startswith(function[:length]) for other in alike):
            return f"^{function[:length]}"
    for length in range(1, MOST_TYPED - _HEAD + 1):
        if not any(other.endswith(function[-length:]) for other in alike):
            return f"^{head}.*{function[-length:]}$"
    return f"^{function}$"


class Typical(msgspec.Struct, frozen=True, kw_only=True):
    """One launch of a kernel. `before`: launches of the same function before it in its step; without steps, in all."""

    before: int
    duration_ns: int


class LaunchOrder:
    """The compute kernels of one device in the order of their launches; `typical` answers for a name's code."""

    def __init__(self, trace: Trace, device: int) -> None:
        gpu = trace.gpu
        self._trace = trace
        self._rows = np.flatnonzero((gpu.kind == Kind.COMPUTE) & (gpu.device == device))
        self._function = {
            int(code): function_name(trace.name(int(code))) for code in distinct(gpu.name[self._rows]).tolist()
        }

    def typical(self, code: int) -> Typical | None:
        """The launch of a name that has half of its time passed, in order of length; None for a name without any.

        Not the median launch: where most are short and one is long, the long one has the time. Where the trace has
        steps, a name that no step launches has none.
        """
        trace, gpu = self._trace, self._trace.gpu
        alike = [other for other, function in self._function.items() if function == self._function.get(code)]
        rows = self._rows[is_one_of(gpu.name[self._rows], alike)]
        rows = rows[order_of(asked_ns(trace, rows))]
        step = step_of(placed_ns(trace, rows), trace.steps)
        own = np.flatnonzero((gpu.name[rows] == code) & ((step >= 0) | (not trace.steps)))
        if own.size == 0:
            return None
        duration = gpu.end_ns[rows[own]] - gpu.start_ns[rows[own]]
        by_length = order_of(duration)
        passed = np.cumsum(duration[by_length])
        chosen = int(by_length[np.searchsorted(passed, (passed[-1] + 1) // 2)])
        launch = int(own[chosen])
        before = int(np.count_nonzero(step[:launch] == step[launch]))
        return Typical(before=before, duration_ns=int(duration[chosen]))


def before_capture(trace: Trace, rows: NDArray[np.intp]) -> Bool:
    """Which device rows were launched before the capture began: no call has their number, and all numbers are higher.

    Launches are numbered as they are made; a row whose call was lost on the way has a number among the others.
    """
    is_before: Bool = of_rows(trace.gpu.launch_row, rows) == NO_ROW
    if is_before.any():
        numbers = trace.calls.correlation[trace.calls.correlation > 0]
        number = trace.gpu.correlation[rows]
        first = int(numbers.min()) if numbers.size else 0
        is_before &= (number > 0) & (number < first)
    return is_before


def behind_ns(trace: Trace, device: int, at_ns: ArrayLike) -> I64:
    """How long after each of these times a device ends what had been launched by then, int64 ns, 0 where it has."""
    gpu = trace.gpu
    at = np.asarray(at_ns, np.int64)
    rows = np.flatnonzero(gpu.device == device)
    before = rows[before_capture(trace, rows)]
    linked = of_rows(rows, np.flatnonzero(of_rows(gpu.launch_row, rows) != NO_ROW))
    order = order_of(at)
    first = place_among(at[order], trace.calls.start_ns[of_rows(gpu.launch_row, linked)], after=True)
    ends = np.full(at.size + 1, gpu.end_ns[before].max(initial=_LONG_AGO))
    np.maximum.at(ends, first, of_rows(gpu.end_ns, linked))  # of what was launched between two of the times
    behind = np.empty(at.size, np.int64)
    behind[order] = np.maximum(np.maximum.accumulate(ends)[:-1] - at[order], 0)
    return behind


def asked_ns(trace: Trace, rows: NDArray[np.intp]) -> I64:
    """When the host asked for each device row: the start of its launch, its own where that is unknown."""
    gpu = trace.gpu
    asked = gpu.start_ns[rows].copy()
    has_call = gpu.launch_row[rows] != NO_ROW
    asked[has_call] = trace.calls.start_ns[gpu.launch_row[rows][has_call]]
    return asked


def placed_ns(trace: Trace, rows: NDArray[np.intp]) -> I64:
    """The time by which a device row belongs to a step: when the host asked for it, or its own start (int64 ns).

    A row belongs to the step that asked for it, since it may run in the next; where steps begin with a kernel, to the
    one it starts in.
    """
    return trace.gpu.start_ns[rows] if trace.step_source in EDGES_ON_DEVICE else asked_ns(trace, rows)
