"""Tables of a trace as pandas DataFrames that can be read: names instead of codes, durations, steps, threads."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from msgspec.structs import fields
from numpy.typing import NDArray

from profkit.errors import UsageError
from profkit.model.arrays import looked_up
from profkit.model.table import Table
from profkit.model.trace import CallKind, Kind, SpanKind, Trace

if TYPE_CHECKING:
    import pandas as pd

TABLES: Final = (*(each.name for each in fields(Trace) if Table in getattr(each.type, "__mro__", ())), "steps")
"""The names that `Trace.to_pandas` takes: the tables of a trace, and its steps."""
_STRINGS: Final = frozenset({"name", "collective", "dtype", "group_name", "group_ranks", "module", "caller"})
"""Columns whose numbers stand for the trace's strings."""
_KINDS: Final[Mapping[str, type[IntEnum]]] = {"gpu": Kind, "calls": CallKind}
_ABSENT: Final = frozenset(
    {
        "launch_row",
        "external_id",
        "n_bytes",
        "sequence",
        "forward_thread",
        "frame_id",
        "parent_id",
        "module_id",
        "address",
        "allocated_bytes",
        "reserved_bytes",
        "peer",
        "seq",
    }
)
"""Columns in which -1 says that the trace does not have it. (In `memory`, a negative `n_bytes` is a free.)"""
_OF_DEVICE: Final = ("start_ns", "end_ns", "name", "device", "stream")


def frame_of(trace: Trace, table: str) -> pd.DataFrame:
    """One table of a trace as a DataFrame; raises UsageError for a name that is none of `TABLES`."""
    import pandas as pd

    if table not in TABLES:
        raise UsageError(f"a trace has no table {table!r}", hint=f"one of {', '.join(TABLES)}")
    if table == "steps":
        steps = trace.steps
        return pd.DataFrame(
            {
                "step": [step.index for step in steps],
                "number": [step.number for step in steps],
                "start_ns": np.array([step.start_ns for step in steps], np.int64),
                "end_ns": np.array([step.end_ns for step in steps], np.int64),
                "duration_ns": np.array([step.duration_ns for step in steps], np.int64),
            }
        )
    rows: Table = getattr(trace, table)
    columns: dict[str, Any] = dict(rows.columns())
    if table == "collectives":  # their times and places are those of their device rows
        gpu = trace.gpu.take(trace.collectives.gpu_row)
        columns = {name: getattr(gpu, name) for name in _OF_DEVICE} | columns
    shown: dict[str, Any] = {}
    for name, column in columns.items():
        shown |= _shown(trace, table, name, column)
        if name == "end_ns":
            shown["duration_ns"] = column - columns["start_ns"]
            shown["step"] = _steps(trace, columns["start_ns"])
    return pd.DataFrame(shown)


def _shown(trace: Trace, table: str, name: str, column: NDArray[Any]) -> dict[str, Any]:
    """One column as people read it, under its name; a thread has two."""
    if name in _STRINGS:
        return {name: _decoded(trace.strings, column)}
    if name == "kind":
        kinds = _KINDS.get(table, SpanKind)
        return {name: _decoded([kind.name.lower() for kind in sorted(kinds)], column)}
    if name == "thread":
        ids, names = [one.tid for one in trace.threads], [one.name for one in trace.threads]
        return {name: _decoded(ids, column), "thread_name": _decoded(names, column)}
    if name == "signature":
        dims = [None if one is None else one.dims for one in trace.signatures]
        return {"shapes": _decoded(dims, column, absent=None)}
    if column.ndim > 1:
        return {name: _objects([tuple(row) for row in column.tolist()])}
    if name in _ABSENT and not (table == "memory" and name == "n_bytes"):
        import pandas as pd

        return {name: pd.arrays.IntegerArray(column.astype(np.int64), column < 0)}
    return {name: column}


def _decoded(values: Any, codes: NDArray[Any], *, absent: object = "") -> NDArray[Any]:
    """The value behind each code; `absent` for -1."""
    known = _objects([*values, absent])
    return known[np.where(codes < 0, len(known) - 1, codes)]


def _objects(values: list[Any]) -> NDArray[Any]:
    """Values as an array of objects, of which a tuple is one."""
    array = np.empty(len(values), object)
    for place, value in enumerate(values):
        array[place] = value
    return array


def _steps(trace: Trace, start_ns: NDArray[np.int64]) -> Any:
    """The index of the step in which each row begins; absent outside of all."""
    import pandas as pd

    starts = np.array([step.start_ns for step in trace.steps], np.int64)
    ends = np.array([step.end_ns for step in trace.steps], np.int64)
    place = np.searchsorted(starts, start_ns, side="right") - 1
    return pd.arrays.IntegerArray(place.astype(np.int64), (place < 0) | (start_ns >= looked_up(ends, place)))
