"""A rank's summary as bytes and back, for a cache beside the traces and for workers of another process."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any, Final

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from profkit.errors import TraceFormatError
from profkit.model.table import Table
from profkit.ranks.records import BlockRows, CollectiveRows, Group, LeadRanges, NameRows, RankSummary, StepRows

SCHEMA: Final = 4
"""Changes whenever a column does: bytes of another schema are refused, never guessed at."""

_DIGEST_BYTES: Final = 16
_TABLES: Final[dict[str, type[Table]]] = {
    "collectives": CollectiveRows,
    "steps": StepRows,
    "ranges": NameRows,
    "lead_ranges": LeadRanges,
    "work": NameRows,
    "blocks": BlockRows,
}
_VALUES: Final = (
    "rank",
    "world_size",
    "source",
    "host",
    "origin_unix_ns",
    "window_ns",
    "step_source",
    "strings",
    "is_cpu",
)


def packed(summary: RankSummary) -> bytes:
    """Give the summary as a compressed npz of two members, a JSON header and all columns; its digest stands before."""
    columns, layout = [], {}
    for table in _TABLES:
        for name, column in getattr(summary, table).columns().items():
            layout[f"{table}.{name}"] = (column.dtype.str, list(column.shape))
            columns.append(column.tobytes())
    values = {name: getattr(summary, name) for name in _VALUES}
    header = {
        "schema": SCHEMA,
        "layout": layout,
        "groups": [asdict(group) for group in summary.groups],
        **values,
    }
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        header=np.frombuffer(json.dumps(header).encode(), np.uint8),
        columns=np.frombuffer(b"".join(columns), np.uint8),
    )
    data = buffer.getvalue()
    return _digest(data) + data


def unpacked(data: bytes) -> RankSummary:
    """Give the summary back; raises TraceFormatError for anything that `packed` of this version did not write."""
    if data[:_DIGEST_BYTES] != _digest(data[_DIGEST_BYTES:]):
        raise _refused("it is cut or damaged")
    with np.load(io.BytesIO(data[_DIGEST_BYTES:]), allow_pickle=False) as members:
        header = json.loads(members["header"].tobytes())
        payload = members["columns"].tobytes()
    if header["schema"] != SCHEMA:
        raise _refused(f"schema {header['schema']}, not {SCHEMA}")
    columns = _columns(header["layout"], payload)
    tables: dict[str, Any] = {
        table: kind(**{name: columns[f"{table}.{name}"] for name in kind.__struct_fields__})
        for table, kind in _TABLES.items()
    }
    values = {name: header[name] for name in _VALUES}
    values["strings"], values["window_ns"] = tuple(values["strings"]), tuple(values["window_ns"])
    groups = tuple(Group(**{**group, "ranks": tuple(group["ranks"])}) for group in header["groups"])
    return RankSummary(groups=groups, **values, **tables)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _refused(reason: str) -> TraceFormatError:
    return TraceFormatError(
        f"not a rank summary of this version: {reason}", hint="delete it; it is made again from the trace"
    )


def _columns(layout: dict[str, tuple[str, list[int]]], payload: bytes) -> dict[str, NDArray[Any]]:
    columns, place = {}, 0
    for name, (dtype, shape) in layout.items():
        count = int(np.prod(shape))
        columns[name] = np.frombuffer(payload, np.dtype(dtype), count, place).reshape(shape).copy()
        place += columns[name].nbytes
    return columns
