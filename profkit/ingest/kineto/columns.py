"""Groups of events to columns, one function per table."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import chain
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.ingest.assemble.raw import Columns
from profkit.ingest.kineto.arguments import (
    Args,
    CallArgs,
    CopyArgs,
    FrameArgs,
    KernelArgs,
    LaneArgs,
    MemoryArgs,
    OperatorArgs,
)
from profkit.ingest.kineto.events import ABSENT, Event, Groups
from profkit.ingest.kineto.fields import (
    Codes,
    bad_event,
    external_ids,
    integer,
    integers,
    names,
    starts,
    threads_of,
    times,
)
from profkit.ingest.texts import LONGEST_LABEL

TABLE_OF_CATEGORY: Final = {
    **dict.fromkeys(("kernel", "Kernel"), "kernels"),
    **dict.fromkeys(("gpu_memcpy", "Memcpy", "gpu_memset", "Memset"), "copies"),
    **dict.fromkeys(("cpu_op", "Operator"), "ops"),
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "mtia_runtime"), "calls"),
    **dict.fromkeys(("xpu_runtime", "Runtime"), "calls"),
    "user_annotation": "spans",
    "python_function": "python",
    "overhead": "overhead",
    "gpu_user_annotation": "device_spans",
    "cuda_sync": "sync_rows",
    "mtia_ccp_events": "mtia",
}
_AUTOGRAD_PIDS: Final = {"CPU functions", "CUDA functions"}
"""Processes of the autograd profiler's own export, whose events have no categories. Those of others are not torch's."""
_INT32: Final = np.iinfo(np.int32)


def rows_by_table(groups: Groups) -> tuple[dict[str, list[Event]], list[Event]]:
    """The events of each table, and those of groups with some of none (arrows, counters, markers of the profiler)."""
    tables: dict[str, list[Event]] = {}
    others: list[Event] = []
    for (cat, ph), rows in groups.items():
        table, kept = TABLE_OF_CATEGORY.get(cat, "") if ph == "X" else "", rows
        if ph == "i":
            table, kept = "memory", [event for event in rows if event.name == "[memory]"]
        elif ph == "X" and not cat:
            table, kept = "ops", [event for event in rows if event.pid in _AUTOGRAD_PIDS]
        elif not table:
            kept = []
        if kept:
            tables.setdefault(table, []).extend(kept)
        if len(kept) < len(rows):
            others += rows
    return tables, others


_HOST: Final = ("ops", "calls", "spans", "python", "overhead")
_DEVICE: Final = ("kernels", "copies", "device_spans", "sync_rows", "mtia")


def shared_columns(tables: dict[str, list[Event]], strings: Codes, threads: Codes) -> dict[str, Columns]:
    """What all ranges have (times, name, on the host the thread) by table: read in one go, then cut by table.

    One go, because a batch is small and every call of numpy costs, however few the rows.
    """
    host = [table for table in _HOST if table in tables]
    order = [*host, *(table for table in _DEVICE if table in tables)]
    rows = list(chain.from_iterable(tables[table] for table in order))
    columns = times(rows) | {"name": names(rows, strings)}
    n_host = sum(len(tables[table]) for table in host)
    thread = threads_of(rows[:n_host], threads)
    shared: dict[str, Columns] = {}
    first = 0
    for table in order:
        last = first + len(tables[table])
        shared[table] = {name: column[first:last].copy() for name, column in columns.items()}
        if last <= n_host:
            shared[table]["thread"] = thread[first:last].copy()
        first = last
    return shared


def _nothing_more(rows: list[Event], args: list[Any]) -> Columns:
    return {}


def _ops(rows: list[Event], args: list[Any]) -> Columns:
    return {"external_id": external_ids(args)} | _told(args, ("sequence", "forward_thread"))


def _python(rows: list[Event], args: list[Any]) -> Columns:
    return _told(args, ("frame_id", "parent_id", "module_id"))


def _told(args: list[Any], names: tuple[str, ...]) -> Columns:
    """These arguments as whole numbers, without those that no event has."""
    read = {name: integers(args, name) for name in names}
    return {name: column for name, column in read.items() if (column != ABSENT).any()}


def _calls(rows: list[Event], args: list[Any]) -> Columns:
    return {"external_id": external_ids(args), "correlation": integers(args, "correlation")}


def _lanes(rows: list[Event], args: list[Any]) -> Columns:
    """Device and stream from the arguments; where they are missing, from pid and tid ("stream 7")."""
    device, stream = integers(args, "device"), integers(args, "stream")
    if device.size and int(device.min()) < 0:
        pid = np.array([integer(event.pid, ABSENT) for event in rows], np.int64)
        device = np.where(device < 0, pid, device)
    if stream.size and int(stream.min()) < 0:
        tid = np.array([integer(event.tid, ABSENT) for event in rows], np.int64)
        stream = np.where(stream < 0, tid, stream)
    if device.size and not (_INT32.min <= int(device.min()) and int(device.max()) <= _INT32.max):
        row = int(np.argmax((device < _INT32.min) | (device > _INT32.max)))
        raise bad_event(rows[row], f"device {device[row]} is not a device number")
    return {"device": device.astype(np.int32), "stream": stream}


def _device_work(rows: list[Event], args: list[Any]) -> Columns:
    n = len(rows)
    return _lanes(rows, args) | {
        "correlation": integers(args, "correlation"),
        "external_id": external_ids(args),
        "n_bytes": integers(args, "n_bytes"),
        "graph_node": integers(args, "graph_node", 0),
        "grid": np.zeros((n, 3), np.int32),
        "block": np.zeros((n, 3), np.int32),
        "is_copy": np.ones(n, np.bool_),
    }


def _kernels(rows: list[Event], args: list[Any]) -> Columns:
    columns = _device_work(rows, args)
    columns["grid"] = _dimensions([arg.grid for arg in args])
    columns["block"] = _dimensions([arg.block for arg in args])
    columns["is_copy"] = np.zeros(len(rows), np.bool_)
    return columns


def _dimensions(values: list[Any]) -> NDArray[np.int32]:
    try:
        table = np.array(values, np.int64)
        if table.shape == (len(values), 3):
            return np.clip(table, 0, 2**31 - 1).astype(np.int32)
    except (ValueError, TypeError, OverflowError):
        pass
    return np.array([_dimension(value) for value in values], np.int32).reshape(-1, 3)


def _dimension(value: Any) -> list[int]:
    """Three sizes from `[x, y, z]` or the text `"[x, y, z]"`; zeros for anything else."""
    sizes = re.findall("[0-9]+", value[:LONGEST_LABEL]) if isinstance(value, str) else value
    if not isinstance(sizes, list) or len(sizes) != 3:
        return [0, 0, 0]
    return [min(max(integer(size, 0), 0), _INT32.max) for size in sizes]


def _memory(rows: list[Event], args: list[Any]) -> Columns:
    return {
        "start_ns": starts(rows),
        "address": integers(args, "address"),
        "n_bytes": integers(args, "memory_bytes"),
        "allocated_bytes": integers(args, "allocated"),
        "reserved_bytes": integers(args, "reserved"),
        "device_type": integers(args, "device_type"),
        "device": integers(args, "device_id"),
    }


EXTRACTORS: Final[dict[str, tuple[type[Args], Callable[[list[Event], list[Any]], Columns]]]] = {
    "kernels": (KernelArgs, _kernels),
    "copies": (CopyArgs, _device_work),
    "ops": (OperatorArgs, _ops),
    "calls": (CallArgs, _calls),
    "spans": (Args, _nothing_more),
    "python": (FrameArgs, _python),
    "overhead": (Args, _nothing_more),
    "device_spans": (LaneArgs, _lanes),
    "sync_rows": (LaneArgs, _lanes),
    "mtia": (LaneArgs, _lanes),
    "memory": (MemoryArgs, _memory),
}
"""The arguments of each table, and what it has of them beside `shared_columns` (of memory events: all there is)."""
