"""Tables of a trace and of a report: columns with names in full, times in ns, one row for each thing that happened.

They are written as CSV or as parquet.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.errors import MissingCapabilityError
from profkit.export.place import touching
from profkit.model.budget import label
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.tracks import Tracks, WorkRow
from profkit.model.finding import Finding
from profkit.model.table import NO_ROW
from profkit.model.trace import CallKind, Kind, SpanKind, Trace

Columns = dict[str, list[Any]]
"""Columns of one length by name; None is what the trace does not say."""

OF_TRACES: Final = ("gpu", "ops", "calls", "spans", "steps")
OF_REPORTS: Final = ("budget", "findings", "work")
_NAMED: Final = ("name", "op", "shape", "module", "line")
"""Columns of the table of work whose rows have numbers of names."""
_MEASURED: Final = ("metric", "value", "unit")
_ROWS_AT_A_TIME: Final = 10_000
_FORMULA: Final = tuple("=+-@\t\r\n＝＋－＠")
"""How text begins that a spreadsheet takes for a formula (OWASP, CSV injection)."""
_FLOATS: Final = frozenset(("share", "confidence", "value", "flops", "bytes"))
"""Columns of numbers that need not be whole; all others that are no text are int64."""
_TEXTS: Final = frozenset(
    [
        *("kind", "operator", "pid", "tid", "thread", "input_dims", "input_types", "device_kind", "part", "label"),
        *("id", "title", "severity", "metric", "unit", "fix", "where", *_NAMED),
    ]
)


def together(tables: Iterable[Columns]) -> Columns:
    """Tables of the same columns, one below the other."""
    out: Columns = {}
    for table in tables:
        for name, column in table.items():
            out.setdefault(name, []).extend(column)
    return out


def of_trace(
    trace: Trace, name: str, *, rank: int | None, shift_ns: int = 0, window_ns: tuple[int, int] | None = None
) -> Columns:
    """One of `OF_TRACES`: the rows that touch the window, ns; times since the trace's origin, shifted."""
    if name == "steps":
        return _steps(trace, rank, shift_ns, window_ns)
    rows: Any = getattr(trace, name)
    at = touching(rows.start_ns, rows.end_ns, window_ns)
    start, end = rows.start_ns[at] + shift_ns, rows.end_ns[at] + shift_ns
    return {
        "rank": [rank] * at.size,
        "start_ns": start.tolist(),
        "end_ns": end.tolist(),
        "duration_ns": (end - start).tolist(),
        "name": _texts(trace, rows.name[at]),
        **_FURTHER[name](trace, rows, at),
    }


def _texts(trace: Trace, codes: NDArray[Any]) -> list[str]:
    return [trace.strings[code] if code >= 0 else "" for code in codes.tolist()]


def _told(values: NDArray[Any], absent: int = -1) -> list[int | None]:
    return [None if value == absent else value for value in values.tolist()]


def _threads(trace: Trace, codes: NDArray[Any]) -> Columns:
    threads = [trace.threads[code] for code in codes.tolist()]
    return {
        "pid": [thread.pid for thread in threads],
        "tid": [thread.tid for thread in threads],
        "thread": [thread.name for thread in threads],
    }


def _gpu(trace: Trace, gpu: Any, at: NDArray[np.intp]) -> Columns:
    launch = gpu.launch_row[at]
    known = launch != NO_ROW
    lag = np.zeros(at.size, np.int64)
    lag[known] = gpu.start_ns[at[known]] - trace.calls.start_ns[launch[known]]
    grid, block = gpu.grid[at], gpu.block[at]
    return {
        "kind": [Kind(kind).name.lower() for kind in gpu.kind[at].tolist()],
        "device": gpu.device[at].tolist(),
        "stream": gpu.stream[at].tolist(),
        "operator": _operators(trace, gpu.external_id[at]),
        "correlation": _told(gpu.correlation[at]),
        "launch_to_start_ns": [
            value if is_known else None for value, is_known in zip(lag.tolist(), known, strict=True)
        ],
        "bytes": _told(gpu.n_bytes[at]),
        **{f"grid_{axis}": _told(grid[:, place], 0) for place, axis in enumerate("xyz")},
        **{f"block_{axis}": _told(block[:, place], 0) for place, axis in enumerate("xyz")},
        "graph_node": _told(gpu.graph_node[at], 0),
    }


def _operators(trace: Trace, external_ids: NDArray[Any]) -> list[str]:
    """The operators that launched device rows, by the number that both carry; "" where the trace does not say."""
    ids = trace.ops.external_id
    order = np.argsort(ids, kind="stable")
    if order.size == 0:
        return [""] * external_ids.size
    place = np.minimum(np.searchsorted(ids[order], external_ids), order.size - 1)
    row = order[place]
    codes = np.where((ids[row] == external_ids) & (external_ids > 0), trace.ops.name[row], -1)
    return _texts(trace, codes)


def _ops(trace: Trace, ops: Any, at: NDArray[np.intp]) -> Columns:
    known = [trace.signatures[code] if code >= 0 else None for code in ops.signature[at].tolist()]
    return {
        **_threads(trace, ops.thread[at]),
        "input_dims": ["" if one is None else str([list(dims) for dims in one.dims]) for one in known],
        "input_types": ["" if one is None else str(list(one.types)) for one in known],
        "external_id": _told(ops.external_id[at]),
        "sequence": _told(ops.sequence[at]),
    }


def _calls(trace: Trace, calls: Any, at: NDArray[np.intp]) -> Columns:
    return {
        "kind": [CallKind(kind).name.lower() for kind in calls.kind[at].tolist()],
        **_threads(trace, calls.thread[at]),
        "correlation": _told(calls.correlation[at]),
        "external_id": _told(calls.external_id[at]),
    }


def _spans(trace: Trace, spans: Any, at: NDArray[np.intp]) -> Columns:
    return {
        "kind": [SpanKind(kind).name.lower() for kind in spans.kind[at].tolist()],
        **_threads(trace, spans.thread[at]),
    }


_FURTHER: Final[dict[str, Callable[[Trace, Any, NDArray[np.intp]], Columns]]] = {
    "gpu": _gpu,
    "ops": _ops,
    "calls": _calls,
    "spans": _spans,
}
"""The columns that one table has and others do not."""


def _steps(trace: Trace, rank: int | None, shift_ns: int, window_ns: tuple[int, int] | None) -> Columns:
    low, high = window_ns or (-(2**63), 2**63)
    steps = [step for step in trace.steps if step.start_ns < high and step.end_ns > low]
    return _columns(
        ("rank", "index", "number", "start_ns", "end_ns", "duration_ns"),
        [
            (rank, step.index, step.number, step.start_ns + shift_ns, step.end_ns + shift_ns, step.duration_ns)
            for step in steps
        ],
    )


def _columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> Columns:
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def budget(reports: Sequence[RankReport]) -> Columns:
    """The parts of each device's window: ns, which add up to it, and shares."""
    rows = [
        (
            *(rank.rank, device.device, device.kind, name, label(name, is_cpu=device.kind == "cpu")),
            *(ns, device.budget.fraction(name), device.budget.window_ns),
        )
        for rank in reports
        for device in rank.devices
        for name, ns in device.budget.parts.items()
    ]
    return _columns(("rank", "device", "device_kind", "part", "label", "ns", "share", "window_ns"), rows)


def findings(found: Sequence[Finding]) -> Columns:
    """What the report found, in its order; `saves_ns` is per step, and an upper bound."""
    names = ("rank", "id", "title", "severity", "confidence", "share", "saves_ns", *_MEASURED, "fix", "where")
    rows = [
        (
            *(one.rank, one.id, one.title, one.severity.value, one.confidence, one.fraction, one.recoverable_ns),
            *(getattr(one.measure, name) for name in _MEASURED),
            *(one.fix, one.places[0].words if one.places else ""),
        )
        for one in found
    ]
    return _columns(names, rows)


def work(drawn: Sequence[Tracks]) -> Columns:
    """Kernels and operators by name, shape and place in the code, the most time-consuming of each rank first."""
    rows = [(tracks, row) for tracks in drawn for row in tracks.work]
    return {
        "rank": [tracks.rank for tracks, _ in rows],
        "kind": [row.kind for _, row in rows],
        **{name: [_name(tracks, row, name) for tracks, row in rows] for name in _NAMED},
        **{name: [getattr(row, name) for _, row in rows] for name in ("n", "total_ns", "self_ns", "max_ns", "flops")},
        "bytes": [row.n_bytes for _, row in rows],
    }


def _name(tracks: Tracks, row: WorkRow, field: str) -> str:
    code: int = getattr(row, field)
    return tracks.names[code] if code >= 0 else ""


def csv_of(columns: Columns) -> Iterator[bytes]:
    """Pieces of CSV text: UTF-8, a heading, quotes where RFC 4180 asks for them; what is not known is empty.

    Text that a spreadsheet would run as a formula has an apostrophe before it, as spreadsheets themselves mark text.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    values = list(columns.values())
    n = len(values[0]) if values else 0
    for first in range(0, max(n, 1), _ROWS_AT_A_TIME):
        part = [column[first : first + _ROWS_AT_A_TIME] for column in values]
        writer.writerows(zip(*map(_harmless, part), strict=True))
        yield text.getvalue().encode(errors="replace")
        text.seek(0)
        text.truncate()


def _harmless(column: list[Any]) -> list[Any]:
    return [f"'{cell}" if isinstance(cell, str) and cell.startswith(_FORMULA) else cell for cell in column]


def parquet_of(columns: Columns) -> bytes:
    """A parquet file; texts are stored once each, and None is null. Raises MissingCapabilityError without pyarrow."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingCapabilityError(
            "parquet needs pyarrow", hint="pip install 'profkit[parquet]', or write a .csv"
        ) from None
    arrays = {name: _array(pa, name, column) for name, column in columns.items()}
    sink = io.BytesIO()
    pq.write_table(pa.table(arrays), sink)
    return sink.getvalue()


def _array(pa: Any, name: str, column: list[Any]) -> Any:
    if name in _TEXTS:
        plain = [None if cell is None else cell.encode(errors="replace").decode() for cell in column]
        return pa.array(plain, pa.string()).dictionary_encode()
    return pa.array(column, pa.float64() if name in _FLOATS else pa.int64())
