"""JSON events to typed columns: one batch of whole elements at a time, a pure function, so that any process can do it.

Field meanings: Kineto's `output_json.cpp` and `ActivityType.h`; older spellings (capitalised categories, "external id",
"stream 7" as tid) from traces of torch 1.8 on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.ingest.decimals import DecimalError, us_to_ns

Columns = dict[str, NDArray[Any]]
Id = int | str | None
ABSENT: Final = -1

_ZERO = msgspec.Raw(b"0")


class Args(msgspec.Struct, gc=False):
    """The arguments that every event may carry; of any type, since none of them is worth refusing a trace for."""

    external_id: Any = msgspec.field(name="External id", default=ABSENT)
    correlation: Any = ABSENT
    device: Any = ABSENT
    stream: Any = ABSENT
    grid: Any = None
    block: Any = None
    n_bytes: Any = msgspec.field(name="bytes", default=ABSENT)
    graph_node: Any = msgspec.field(name="graph node id", default=0)
    old_external_id: Any = msgspec.field(name="external id", default=ABSENT)
    collective: Any = msgspec.field(name="Collective name", default=None)
    memory_bytes: Any = msgspec.field(name="Bytes", default=0)
    allocated: Any = msgspec.field(name="Total Allocated", default=ABSENT)
    reserved: Any = msgspec.field(name="Total Reserved", default=ABSENT)
    device_type: Any = msgspec.field(name="Device Type", default=0)
    device_id: Any = msgspec.field(name="Device Id", default=ABSENT)


class RareArgs(Args, gc=False):
    """The arguments of metadata rows and collectives: decoded only in batches that hold such rows."""

    dtype: Any = None
    in_elements: Any = msgspec.field(name="In msg nelems", default=ABSENT)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=ABSENT)
    group_size: Any = msgspec.field(name="Group size", default=ABSENT)
    group_name: Any = msgspec.field(name="Process Group Name", default=None)
    group_ranks: msgspec.Raw = msgspec.field(name="Process Group Ranks", default=msgspec.Raw(b""))
    seq: Any = msgspec.field(name="Seq", default=ABSENT)
    label: Any = msgspec.field(name="name", default=None)


class Event(msgspec.Struct, gc=False):
    """One element of traceEvents, as far as profkit reads it."""

    ph: str = ""
    cat: str | None = None
    name: str | int | None = ""
    pid: Id = None
    tid: Id = None
    ts: msgspec.Raw = _ZERO
    dur: msgspec.Raw = _ZERO
    args: Args | None = None
    id: Id = None


class RareEvent(Event, gc=False):
    """The same with every argument profkit knows."""

    args: RareArgs | None = None


Groups = dict[tuple[str, str], list[Event]]

_COMMON = msgspec.json.Decoder(list[Event])
_RARE = msgspec.json.Decoder(list[RareEvent])

DEVICE_CATEGORIES: Final = {
    "kernel": "gpu",
    "Kernel": "gpu",
    "gpu_memcpy": "gpu",
    "Memcpy": "gpu",
    "gpu_memset": "gpu",
    "Memset": "gpu",
}
_TABLE_OF_CATEGORY: Final = {
    **DEVICE_CATEGORIES,
    "cpu_op": "ops",
    "Operator": "ops",
    "cuda_runtime": "calls",
    "cuda_driver": "calls",
    "hip_runtime": "calls",
    "hip_driver": "calls",
    "mtia_runtime": "calls",
    "xpu_runtime": "calls",
    "Runtime": "calls",
    "user_annotation": "spans",
    "python_function": "python",
    "overhead": "overhead",
    "gpu_user_annotation": "device_spans",
    "cuda_sync": "sync_rows",
    "mtia_ccp_events": "mtia",
}
_COMM_OP: Final = "record_param_comms"

_LAUNCH_ARROWS: Final = {"ac2g", "async_cpu_to_gpu", "async_gpu", "async"}
"""Arrows from launch to device row: they only repeat `correlation`, so they are counted and not kept."""

_COPY_CATEGORIES: Final = {"gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}


class BadEventError(ValueError):
    """An event that cannot be read; `row` is its position in the batch, -1 if unknown."""

    def __init__(self, message: str, row: int = -1) -> None:
        super().__init__(message)
        self.row = row


@dataclass
class Batch:
    """Raw columns per table with strings of the batch's own; codes index `strings`, threads index `threads`."""

    n_events: int = 0
    tables: dict[str, Columns] = field(default_factory=dict)
    strings: list[str] = field(default_factory=list)
    threads: list[tuple[str, str]] = field(default_factory=list)
    thread_names: dict[tuple[str, str], str] = field(default_factory=dict)
    categories: dict[str, int] = field(default_factory=dict)


class _Codes(dict[Any, int]):
    """Gives the same small integer for the same value: 0, 1, 2... in order of first sight."""

    def __missing__(self, value: Any) -> int:
        code = self[value] = len(self)
        return code


def decode_batch(array: bytes, *, unique_keys: bool = False) -> Batch:
    """Give the columns of a JSON array of whole events; raises BadEventError.

    `unique_keys` also refuses an event in which a key stands twice; otherwise the last one counts, as in any reader.
    """
    events = _decode(_COMMON, array)
    if unique_keys:
        _refuse_repeated_keys(array, events)
    groups = _grouped(events)
    if _needs_rare_arguments(groups):
        groups = _grouped(_decode(_RARE, array))
    return _batch_of(groups)


_COUNTED_KEYS: Final = ("ph", "cat", "name", "pid", "tid", "ts", "dur")


def _refuse_repeated_keys(array: bytes, events: list[Event]) -> None:
    """Compare how often each key stands in the text with how many events carry it; look closely where they differ."""
    absent = Event()
    for key in _COUNTED_KEYS:
        without = getattr(absent, key)
        n_with = sum(getattr(event, key) is not without for event in events)
        if array.count(b'"%b"' % key.encode()) != n_with:
            json.loads(array, object_pairs_hook=_unique)
            return


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise BadEventError(f"key {twice[:40]!r} stands there twice")
    return dict(pairs)


def _decode(decoder: Any, array: bytes) -> list[Event]:
    try:
        events: list[Event] = decoder.decode(array)
    except RecursionError:
        raise BadEventError("nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BadEventError(_readable(error)) from None
    return events


def _needs_rare_arguments(groups: Groups) -> bool:
    if any(ph == "M" for _, ph in groups):
        return True
    if _COMM_OP in map(attrgetter("name"), groups.get(("cpu_op", "X"), ())):
        return True
    kernels = (event for cat in ("kernel", "Kernel") for event in groups.get((cat, "X"), ()))
    return any(event.args is not None and event.args.collective for event in kernels)


def _readable(error: Exception) -> str:
    return str(error).replace("$[...]", "event").replace("`", "'")


def _batch_of(groups: Groups) -> Batch:
    batch = Batch(n_events=sum(map(len, groups.values())))
    strings, threads = _Codes(), _Codes()
    for (cat, ph), rows in groups.items():
        batch.categories[cat or ph] = batch.categories.get(cat or ph, 0) + len(rows)
    for table, rows in _rows_by_table(groups).items():
        batch.tables[table] = _EXTRACTORS[table](rows, strings, threads)
        if table == "kernels" and any(event.args is not None and event.args.collective for event in rows):
            batch.tables["collectives"] = _collectives(rows, strings)
        if table == "ops" and _COMM_OP in strings:
            batch.tables["comm_ops"] = _comm_ops(rows, strings)
    _flows(groups, batch, threads)
    _thread_names(groups, batch)
    batch.strings = list(strings)
    batch.threads = [(_text(pid), _text(tid)) for pid, tid in threads]
    return batch


class _Appends(dict[str | None, Callable[[Event], None]]):
    """Gives the `append` of a list per category, making the list at first sight."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[str | None, list[Event]] = {}

    def __missing__(self, category: str | None) -> Callable[[Event], None]:
        rows: list[Event] = []
        self.lists[category] = rows
        self[category] = rows.append
        return rows.append


def _grouped(events: list[Event]) -> Groups:
    appends = _Appends()
    for event in events:  # the one loop over events in profkit; everything after it is per group or per column
        appends[event.cat](event)
    groups: Groups = {}
    for cat, rows in appends.lists.items():
        if cat in _LAUNCH_ARROWS:
            groups[cat or "", "s"] = rows
            continue
        phases = set(map(attrgetter("ph"), rows))
        for ph in phases:
            groups[cat or "", ph] = rows if len(phases) == 1 else [event for event in rows if event.ph == ph]
    return groups


def _rows_by_table(groups: Groups) -> dict[str, list[Event]]:
    tables: dict[str, list[Event]] = {}
    for (cat, ph), rows in groups.items():
        if ph == "X":
            table = _TABLE_OF_CATEGORY.get(cat)
            if table is None and not cat:
                table = "ops"  # the autograd profiler's own export has no categories
            if table == "gpu":
                table = "copies" if cat in _COPY_CATEGORIES else "kernels"
        elif ph == "i":
            table = "memory"
        else:
            continue
        kept = [event for event in rows if event.name == "[memory]"] if table == "memory" else rows
        if table is not None and kept:
            tables.setdefault(table, []).extend(kept)
    return tables


def _times(rows: list[Event]) -> Columns:
    start = _parse(rows, attrgetter("ts"), "ts")
    duration = _parse(rows, attrgetter("dur"), "dur")
    if duration.size and int(duration.min()) < 0:
        row = int(np.argmax(duration < 0))
        raise _bad(rows[row], f"negative dur {bytes(rows[row].dur).decode()}")
    with np.errstate(over="ignore"):
        end = start + duration
    if (end < start).any():
        row = int(np.argmax(end < start))
        raise _bad(rows[row], f"dur {bytes(rows[row].dur).decode()} overflows int64 nanoseconds")
    return {"start_ns": start, "end_ns": end}


def _parse(rows: list[Event], column: Callable[[Event], Any], field_name: str) -> NDArray[np.int64]:
    try:
        return us_to_ns(list(map(column, rows)))
    except DecimalError as error:
        raise _bad(rows[error.row], f"{field_name} {error}") from None


def _bad(event: Event, message: str) -> BadEventError:
    return BadEventError(f"{message} in event {str(event.name)[:60]!r}")


def _names(rows: list[Event], strings: _Codes) -> NDArray[np.int32]:
    try:
        return _coded(map(attrgetter("name"), rows), strings, len(rows))
    except TypeError:
        raise BadEventError("name is not text") from None


def _coded(values: Iterable[Any], codes: _Codes, n: int) -> NDArray[np.int32]:
    return np.fromiter(map(codes.__getitem__, values), np.int32, n)


def _threads(rows: list[Event], threads: _Codes) -> NDArray[np.int32]:
    return _coded(map(attrgetter("pid", "tid"), rows), threads, len(rows))


_NO_ARGS = Args()


def _args(rows: list[Event]) -> list[Any]:
    return [event.args or _NO_ARGS for event in rows]


def _integers(args: list[Any], name: str, absent: int = ABSENT) -> NDArray[np.int64]:
    values = map(attrgetter(name), args)
    try:
        return np.fromiter(values, np.int64, len(args))
    except (TypeError, ValueError, OverflowError):  # null, text, a float or beyond int64 somewhere: one by one
        return np.array([_integer(getattr(arg, name), absent) for arg in args], np.int64)


def _integer(value: object, absent: int) -> int:
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        digits = "".join(filter(str.isdigit, str(value)))
        number = int(digits) if digits else absent
    if not -(2**63) <= number < 2**63:
        return int(np.uint64(number % 2**64).astype(np.int64))  # unsigned 64-bit ids wrap, as they do in C
    return int(number)


def _external_ids(args: list[Any]) -> NDArray[np.int64]:
    ids = _integers(args, "external_id")
    if ids.size and int(ids.min()) < 0:
        old = _integers(args, "old_external_id")
        ids = np.where(ids < 0, old, ids)
    return ids


def _spans(rows: list[Event], strings: _Codes, threads: _Codes) -> Columns:
    return _times(rows) | {"name": _names(rows, strings), "thread": _threads(rows, threads)}


def _ops(rows: list[Event], strings: _Codes, threads: _Codes) -> Columns:
    return _spans(rows, strings, threads) | {"external_id": _external_ids(_args(rows))}


def _calls(rows: list[Event], strings: _Codes, threads: _Codes) -> Columns:
    args = _args(rows)
    ids = {"external_id": _external_ids(args), "correlation": _integers(args, "correlation")}
    return _spans(rows, strings, threads) | ids


def _lanes(rows: list[Event], args: list[Any]) -> Columns:
    """Device and stream from the arguments; where they are missing, from pid and tid ("stream 7")."""
    device, stream = _integers(args, "device"), _integers(args, "stream")
    if device.size and int(device.min()) < 0:
        pid = np.array([_integer(event.pid, ABSENT) for event in rows], np.int64)
        device = np.where(device < 0, pid, device)
    if stream.size and int(stream.min()) < 0:
        tid = np.array([_integer(event.tid, ABSENT) for event in rows], np.int64)
        stream = np.where(stream < 0, tid, stream)
    return {"device": device.astype(np.int32), "stream": stream}


def _device_spans(rows: list[Event], strings: _Codes, threads: _Codes) -> Columns:
    return _device_rows(rows, _args(rows), strings)


def _device_rows(rows: list[Event], args: list[Any], strings: _Codes) -> Columns:
    return _times(rows) | {"name": _names(rows, strings)} | _lanes(rows, args)


def _copies(rows: list[Event], strings: _Codes, threads: _Codes) -> Columns:
    return _device_work(rows, _args(rows), strings)


def _device_work(rows: list[Event], args: list[Any], strings: _Codes) -> Columns:
    n = len(rows)
    return _device_rows(rows, args, strings) | {
        "correlation": _integers(args, "correlation"),
        "external_id": _external_ids(args),
        "n_bytes": _integers(args, "n_bytes"),
        "graph_node": _integers(args, "graph_node", 0),
        "grid": np.zeros((n, 3), np.int32),
        "block": np.zeros((n, 3), np.int32),
        "is_copy": np.ones(n, np.bool_),
    }


def _kernels(rows: list[Event], strings: _Codes, threads: _Codes) -> Columns:
    args = _args(rows)
    columns = _device_work(rows, args, strings)
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
    """Give three sizes from `[x, y, z]` or the text `"[x, y, z]"`; zeros for anything else."""
    sizes = re.findall(r"\d+", str(value))
    return [min(int(size), 2**31 - 1) for size in sizes] if len(sizes) == 3 else [0, 0, 0]


def _collectives(rows: list[Event], strings: _Codes) -> Columns:
    """The arguments of the kernels that are collectives; `kernel` is their place among the batch's kernels."""
    places = [place for place, event in enumerate(rows) if isinstance(event.args, RareArgs) and event.args.collective]
    arguments = _collective_arguments([rows[place].args for place in places], strings)
    return {"kernel": np.array(places, np.int64)} | arguments


def _comm_ops(rows: list[Event], strings: _Codes) -> Columns:
    """The arguments of operators that announce a collective."""
    args = [event.args for event in rows if event.name == _COMM_OP and isinstance(event.args, RareArgs)]
    return {"external_id": _external_ids(args)} | _collective_arguments(args, strings)


def _collective_arguments(args: list[Any], strings: _Codes) -> Columns:
    return {
        "collective": _optional_strings([arg.collective for arg in args], strings),
        "dtype": _optional_strings([arg.dtype for arg in args], strings),
        "in_elements": _integers(args, "in_elements"),
        "out_elements": _integers(args, "out_elements"),
        "group_size": _integers(args, "group_size"),
        "group_name": _optional_strings([arg.group_name for arg in args], strings),
        "group_ranks": _optional_strings([bytes(arg.group_ranks).decode() or None for arg in args], strings),
        "seq": _integers(args, "seq"),
    }


def _optional_strings(values: list[Any], strings: _Codes) -> NDArray[np.int32]:
    return np.array([ABSENT if value is None else strings[_text(value)] for value in values], np.int32)


def _memory(rows: list[Event], strings: _Codes, threads: _Codes) -> Columns:
    args = _args(rows)
    return {
        "start_ns": _parse(rows, attrgetter("ts"), "ts"),
        "n_bytes": _integers(args, "memory_bytes"),
        "allocated_bytes": _integers(args, "allocated"),
        "reserved_bytes": _integers(args, "reserved"),
        "device_type": _integers(args, "device_type"),
        "device": _integers(args, "device_id"),
    }


_EXTRACTORS: Final[dict[str, Callable[[list[Event], _Codes, _Codes], Columns]]] = {
    "kernels": _kernels,
    "copies": _copies,
    "ops": _ops,
    "calls": _calls,
    "spans": _spans,
    "python": _spans,
    "overhead": _spans,
    "device_spans": _device_spans,
    "sync_rows": _device_spans,
    "mtia": _device_spans,
    "memory": _memory,
}


def _flows(groups: Groups, batch: Batch, threads: _Codes) -> None:
    """Keep the forward-to-backward arrows."""
    rows = [event for ph in ("s", "f") for event in groups.get(("fwdbwd", ph), ())]
    if rows:
        batch.tables["flows"] = {
            "start_ns": _parse(rows, attrgetter("ts"), "ts"),
            "flow_id": np.array([_integer(event.id, ABSENT) for event in rows], np.int64),
            "thread": _threads(rows, threads),
            "is_start": np.array([event.ph == "s" for event in rows], np.int8),
        }


def _thread_names(groups: Groups, batch: Batch) -> None:
    for event in groups.get(("", "M"), ()):
        if event.name == "thread_name" and isinstance(event.args, RareArgs) and event.args.label:
            batch.thread_names[_text(event.pid), _text(event.tid)] = event.args.label


def _text(value: object) -> str:
    return "" if value is None else str(value)
