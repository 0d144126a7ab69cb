"""Groups of events to columns, one function per table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from itertools import chain
from operator import attrgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.ingest.decimals import DecimalError, numbers_to_ns, us_to_ns
from profkit.ingest.events import ABSENT, COMM_OP, COUNTED, EMBEDDING, Args, BadEventError, Event, Groups, RareArgs

Columns = dict[str, NDArray[Any]]

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

_COPY_CATEGORIES: Final = {"gpu_memcpy", "Memcpy", "gpu_memset", "Memset"}


_EMBEDDED_DIMS: Final = re.compile(rb"\[\s*\[([0-9, ]+)\]\s*,\s*\[([0-9, ]+)\]")  # of its table, of its indices
_COUNTED_KINDS: Final = {f"profkit.{kind}": kind for kind in ("tokens", "padded_tokens", "samples")}
_MOST_DIGITS: Final = 20  # as many as 2^64 has; Python refuses to read more than 4,300
_MOST_US: Final = (2**63 - 1) // 1000
_INT32: Final = np.iinfo(np.int32)


class Codes(dict[Any, int]):
    """Gives the same small integer for the same value: 0, 1, 2... in order of first sight."""

    def __missing__(self, value: Any) -> int:
        code = self[value] = len(self)
        return code


def rows_by_table(groups: Groups) -> dict[str, list[Event]]:
    """Give the events of each table; what belongs to none (arrows, counters, markers of the profiler) is left out."""
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


_HOST: Final = ("ops", "calls", "spans", "python", "overhead")
_DEVICE: Final = ("kernels", "copies", "device_spans", "sync_rows", "mtia")


def shared_columns(tables: dict[str, list[Event]], strings: Codes, threads: Codes) -> dict[str, Columns]:
    """Give what all ranges have (times, name, on the host the thread) by table: read in one go, then cut by table.

    One go, because a batch is small: a call of numpy costs as much as reading a field of twenty events.
    """
    host = [table for table in _HOST if table in tables]
    order = [*host, *(table for table in _DEVICE if table in tables)]
    rows = list(chain.from_iterable(tables[table] for table in order))
    columns = _times(rows) | {"name": _names(rows, strings)}
    n_host = sum(len(tables[table]) for table in host)
    thread = _threads(rows[:n_host], threads)
    shared: dict[str, Columns] = {}
    first = 0
    for table in order:
        last = first + len(tables[table])
        shared[table] = {name: column[first:last].copy() for name, column in columns.items()}
        if last <= n_host:
            shared[table]["thread"] = thread[first:last].copy()
        first = last
    return shared


def _times(rows: list[Event]) -> Columns:
    start = _starts(rows)
    duration = _durations(rows)
    if duration.size and int(duration.min()) < 0:
        row = int(np.argmax(duration < 0))
        raise _bad(rows[row], f"negative dur {_text_of_dur(rows[row])}")
    with np.errstate(over="ignore"):
        end = start + duration
    if (end < start).any():
        row = int(np.argmax(end < start))
        raise _bad(rows[row], f"dur {_text_of_dur(rows[row])} overflows int64 nanoseconds")
    return {"start_ns": start, "end_ns": end}


def _text_of_dur(event: Event) -> str:
    duration: Any = event.dur
    if isinstance(duration, int | float):
        raise InexactError  # the text says it as it was written
    return bytes(duration).decode()


class InexactError(Exception):
    """A time that was read as a number may have lost a nanosecond, or is out of range: it must be read as text."""


def _starts(rows: list[Event]) -> NDArray[np.int64]:
    """Give `ts` in ns: of text, of whole numbers or of float64, as the first event has it (then all have)."""
    first: Any = rows[0].ts if rows else None
    if isinstance(first, int):
        return _whole(map(attrgetter("ts"), rows), len(rows))
    if isinstance(first, float):
        return _exact(map(attrgetter("ts"), rows), len(rows))
    return _parse(rows, attrgetter("ts"), "ts")


def _durations(rows: list[Event]) -> NDArray[np.int64]:
    first: Any = rows[0].dur if rows else None
    if isinstance(first, int | float):
        return _exact(map(attrgetter("dur"), rows), len(rows))
    return _parse(rows, attrgetter("dur"), "dur")


def _whole(numbers_us: Iterable[int], n: int) -> NDArray[np.int64]:
    try:
        numbers = np.fromiter(numbers_us, np.int64, n)
    except OverflowError:
        raise InexactError from None
    if int(numbers.max()) >= _MOST_US or int(numbers.min()) <= -_MOST_US:
        raise InexactError
    return numbers * 1000


def _exact(numbers_us: Iterable[float], n: int) -> NDArray[np.int64]:
    times = numbers_to_ns(np.fromiter(numbers_us, np.float64, n))
    if times is None:
        raise InexactError
    return times


def _parse(rows: list[Event], column: Callable[[Event], Any], field_name: str) -> NDArray[np.int64]:
    try:
        return us_to_ns(list(map(column, rows)))
    except DecimalError as error:
        raise _bad(rows[error.row], f"{field_name} {error}") from None


def _bad(event: Event, message: str) -> BadEventError:
    return BadEventError(f"{message} in event {str(event.name)[:60]!r}")


def _names(rows: list[Event], strings: Codes) -> NDArray[np.int32]:
    try:
        return _coded(map(attrgetter("name"), rows), strings, len(rows))
    except TypeError:
        raise BadEventError("name is not text") from None


def _coded(values: Iterable[Any], codes: Codes, n: int) -> NDArray[np.int32]:
    return np.fromiter(map(codes.__getitem__, values), np.int32, n)


def _threads(rows: list[Event], threads: Codes) -> NDArray[np.int32]:
    return _coded(map(attrgetter("pid", "tid"), rows), threads, len(rows))


_NO_ARGS = Args()


def _args(rows: list[Event]) -> list[Any]:
    args = list(map(attrgetter("args"), rows))
    return args if all(args) else [arg or _NO_ARGS for arg in args]


def _integers(args: list[Any], name: str, absent: int = ABSENT) -> NDArray[np.int64]:
    values = map(attrgetter(name), args)
    try:
        return np.fromiter(values, np.int64, len(args))
    except (TypeError, ValueError, OverflowError):  # null, text, a float or beyond int64 somewhere: one by one
        return np.array([_integer(getattr(arg, name), absent) for arg in args], np.int64)


def _integer(value: object, absent: int) -> int:
    """Give a whole number, also from text ("stream 7"); `absent` for anything else."""
    try:
        number = int(value)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        digits = "".join(re.findall("[0-9]", value)) if isinstance(value, str) else ""
        number = int(digits[:_MOST_DIGITS]) if digits else absent
    if not -(2**63) <= number < 2**63:
        return int(np.uint64(number % 2**64).astype(np.int64))  # unsigned 64-bit ids wrap, as they do in C
    return int(number)


def _external_ids(args: list[Any]) -> NDArray[np.int64]:
    ids = _integers(args, "external_id")
    if ids.size and int(ids.min()) < 0:
        old = _integers(args, "old_external_id")
        ids = np.where(ids < 0, old, ids)
    return ids


def _nothing_more(rows: list[Event]) -> Columns:
    return {}


def _ops(rows: list[Event]) -> Columns:
    return {"external_id": _external_ids(_args(rows))}


def _calls(rows: list[Event]) -> Columns:
    args = _args(rows)
    return {"external_id": _external_ids(args), "correlation": _integers(args, "correlation")}


def _lanes(rows: list[Event], args: list[Any]) -> Columns:
    """Device and stream from the arguments; where they are missing, from pid and tid ("stream 7")."""
    device, stream = _integers(args, "device"), _integers(args, "stream")
    if device.size and int(device.min()) < 0:
        pid = np.array([_integer(event.pid, ABSENT) for event in rows], np.int64)
        device = np.where(device < 0, pid, device)
    if stream.size and int(stream.min()) < 0:
        tid = np.array([_integer(event.tid, ABSENT) for event in rows], np.int64)
        stream = np.where(stream < 0, tid, stream)
    if device.size and not (_INT32.min <= int(device.min()) and int(device.max()) <= _INT32.max):
        row = int(np.argmax((device < _INT32.min) | (device > _INT32.max)))
        raise _bad(rows[row], f"device {device[row]} is no device number")
    return {"device": device.astype(np.int32), "stream": stream}


def _device_spans(rows: list[Event]) -> Columns:
    return _lanes(rows, _args(rows))


def _copies(rows: list[Event]) -> Columns:
    return _device_work(rows, _args(rows))


def _device_work(rows: list[Event], args: list[Any]) -> Columns:
    n = len(rows)
    return _lanes(rows, args) | {
        "correlation": _integers(args, "correlation"),
        "external_id": _external_ids(args),
        "n_bytes": _integers(args, "n_bytes"),
        "graph_node": _integers(args, "graph_node", 0),
        "grid": np.zeros((n, 3), np.int32),
        "block": np.zeros((n, 3), np.int32),
        "is_copy": np.ones(n, np.bool_),
    }


def _kernels(rows: list[Event]) -> Columns:
    args = _args(rows)
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
    """Give three sizes from `[x, y, z]` or the text `"[x, y, z]"`; zeros for anything else."""
    sizes = re.findall("[0-9]+", value) if isinstance(value, str) else value
    if not isinstance(sizes, list) or len(sizes) != 3:
        return [0, 0, 0]
    return [min(max(_integer(size, 0), 0), _INT32.max) for size in sizes]


def kernel_collectives(rows: list[Event], strings: Codes) -> Columns:
    """The arguments of the kernels that are collectives; `kernel` is their place among the batch's kernels."""
    args = _args(rows)
    places = [place for place, arg in enumerate(args) if arg.has_collective and arg.collective]
    arguments = _collective_arguments([args[place] for place in places], strings)
    return {"kernel": np.array(places, np.int64)} | arguments


def operator_collectives(rows: list[Event], strings: Codes) -> Columns:
    """The arguments of operators that announce a collective."""
    args = [event.args for event in rows if event.name == COMM_OP and event.args and event.args.has_collective]
    return {"external_id": _external_ids(args)} | _collective_arguments(args, strings)


def _collective_arguments(args: list[Any], strings: Codes) -> Columns:
    target = _integers(args, "target_rank")
    return {
        "collective": _optional_strings([arg.collective for arg in args], strings),
        "dtype": _optional_strings([arg.dtype for arg in args], strings),
        "in_elements": _integers(args, "in_elements"),
        "out_elements": _integers(args, "out_elements"),
        "group_size": _integers(args, "group_size"),
        "group_name": _optional_strings([arg.group_name for arg in args], strings),
        "group_ranks": _optional_strings([_raw_text(arg.group_ranks) for arg in args], strings),
        "seq": _integers(args, "seq"),
        "peer": np.where(target >= 0, target, _integers(args, "source_rank")),
    }


def _raw_text(value: Any) -> str | None:
    try:
        return bytes(value).decode() or None
    except UnicodeDecodeError:
        raise BadEventError("Process Group Ranks is not text") from None


def _optional_strings(values: list[Any], strings: Codes) -> NDArray[np.int32]:
    return np.array([ABSENT if value is None else strings[text_of(value)] for value in values], np.int32)


def _memory(rows: list[Event]) -> Columns:
    args = _args(rows)
    return {
        "start_ns": _starts(rows),
        "n_bytes": _integers(args, "memory_bytes"),
        "allocated_bytes": _integers(args, "allocated"),
        "reserved_bytes": _integers(args, "reserved"),
        "device_type": _integers(args, "device_type"),
        "device": _integers(args, "device_id"),
    }


EXTRACTORS: Final[dict[str, Callable[[list[Event]], Columns]]] = {
    "kernels": _kernels,
    "copies": _copies,
    "ops": _ops,
    "calls": _calls,
    "spans": _nothing_more,
    "python": _nothing_more,
    "overhead": _nothing_more,
    "device_spans": _device_spans,
    "sync_rows": _device_spans,
    "mtia": _device_spans,
    "memory": _memory,
}
"""What each table has beside `shared_columns` (of memory events: all there is)."""


def flows(groups: Groups, threads: Codes) -> Columns:
    """Give the forward-to-backward arrows; {} if there are none."""
    rows = [event for ph in ("s", "f") for event in groups.get(("fwdbwd", ph), ())]
    if not rows:
        return {}
    return {
        "start_ns": _starts(rows),
        "flow_id": np.array([_integer(event.id, ABSENT) for event in rows], np.int64),
        "thread": _threads(rows, threads),
        "is_start": np.array([event.ph == "s" for event in rows], np.int8),
    }


def counted_work(groups: Groups, strings: Codes) -> Columns:
    """Give what a script told of its steps, a row for each step and kind of work; {} if it told nothing."""
    rows, values = [], []
    for event in groups.get(COUNTED, ()):
        value = getattr(event.args, _COUNTED_KINDS.get(str(event.name), ""), None)
        if isinstance(value, int | float):
            rows.append(event)
            values.append(float(value))
    if not rows:
        return {}
    return {
        "start_ns": _starts(rows),
        "name": np.array([strings[_COUNTED_KINDS[str(event.name)]] for event in rows], np.int32),
        "value": np.array(values, np.float64),
    }


def embeddings(rows: list[Event], strings: Codes) -> Columns:
    """Give how many indices each embedding among these operators looked up, named by its table; {} without shapes."""
    from profkit.model.trace import EMBEDDED  # loaded after the reading, but for traces with shapes

    found, names, values = [], [], []
    for event in rows:
        dims = _EMBEDDED_DIMS.match(getattr(event.args, "input_dims", b"")) if event.name == EMBEDDING else None
        if dims is not None:
            found.append(event)
            names.append(strings[f"{EMBEDDED}{dims[1].decode()}"])
            sizes = [int(size[:_MOST_DIGITS]) for size in re.findall(rb"[0-9]+", dims[2])]
            values.append(float(min(math.prod(sizes), 2**53)))
    if not found:
        return {}
    return {"start_ns": _starts(found), "name": np.array(names, np.int32), "value": np.array(values, np.float64)}


def thread_names(groups: Groups) -> dict[tuple[str, str], str]:
    """Give the names of threads by (pid, tid)."""
    return {
        (text_of(event.pid), text_of(event.tid)): text_of(event.args.label)
        for event in groups.get(("", "M"), ())
        if event.name == "thread_name" and isinstance(event.args, RareArgs) and event.args.label
    }


def text_of(value: object) -> str:
    """Give an id or a label as text, "" for none."""
    return "" if value is None else str(value)
