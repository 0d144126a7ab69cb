"""Which launch of a kernel stands for all: for a profiler that counts launches of a function, not names."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct
from profkit.model.names import function_name
from profkit.model.table import NO_ROW
from profkit.model.trace import Kind, Trace
from profkit.timeline.steps import step_of


class LaunchOrder:
    """The compute kernels of one device in the order of their launches; `typical` answers for a name's code."""

    def __init__(self, trace: Trace, device: int) -> None:
        gpu = trace.gpu
        rows = np.flatnonzero((gpu.kind == Kind.COMPUTE) & (gpu.device == device))
        asked = asked_ns(trace, rows)
        order = np.argsort(asked, kind="stable")
        asked, rows = asked[order], rows[order]
        self._step = step_of(asked, trace.steps)
        self._name = gpu.name[rows]
        self._duration = gpu.end_ns[rows] - gpu.start_ns[rows]
        functions: dict[str, int] = {}
        codes = distinct(self._name)
        function_of = np.full(int(codes.max(initial=-1)) + 1, -1, np.int32)
        for code in codes:
            function_of[code] = functions.setdefault(function_name(trace.name(int(code))), len(functions))
        self._function = function_of[self._name]

    def typical(self, code: int) -> int | None:
        """How many launches of the same function come before, in its step, the launch of median duration.

        None for a name that no step launches.
        """
        own = np.flatnonzero((self._name == code) & (self._step >= 0))
        if own.size == 0:
            return None
        middle = own[np.argsort(self._duration[own], kind="stable")[own.size // 2]]
        before = slice(0, int(middle))
        alike = (self._function[before] == self._function[middle]) & (self._step[before] == self._step[middle])
        return int(np.count_nonzero(alike))


def asked_ns(trace: Trace, rows: NDArray[np.intp]) -> I64:
    """When the host asked for each device row: the start of its launch, its own where that is unknown."""
    gpu = trace.gpu
    asked = gpu.start_ns[rows].copy()
    has_call = gpu.launch_row[rows] != NO_ROW
    asked[has_call] = trace.calls.start_ns[gpu.launch_row[rows][has_call]]
    return asked
