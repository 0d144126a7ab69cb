"""Who asked for a collective, and the arguments it was called with: told once, for the budget and for all ranks."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, Bool
from profkit.model.table import NO_ROW
from profkit.model.trace import I32, Trace

_REQUEST: Final = "c10d::"
_CALLS: Final = (_REQUEST, "_c10d_functional::", "c10d_functional::", "record_param_comms")


def is_request(trace: Trace, names: I32) -> Bool:
    """Whether each name is the operator that stands for one collective; a functional one calls it in its turn."""
    return _begins(trace, names, _REQUEST)


def is_call(trace: Trace, names: I32) -> Bool:
    """Whether each name is an operator around a request, or its record: queueing and waiting, never compute."""
    return _begins(trace, names, _CALLS)


def _begins(trace: Trace, names: I32, prefix: str | tuple[str, ...]) -> Bool:
    return np.array([name.startswith(prefix) for name in trace.strings], np.bool_)[names]


def arguments_of(trace: Trace, rows: NDArray[np.intp]) -> I64:
    """The row in `Trace.collectives` of each device row, `NO_ROW` where the trace has no arguments."""
    table = trace.collectives.gpu_row
    if table.size == 0:
        return np.full(rows.size, NO_ROW, np.int64)
    place = np.minimum(np.searchsorted(table, rows), table.size - 1)
    return np.where(table[place] == rows, place, NO_ROW)
