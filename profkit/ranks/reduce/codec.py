"""A rank's summary as bytes and back, for what is kept of finished ranks and for workers of another process."""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.errors import TraceFormatError
from profkit.model.table import Table
from profkit.ranks.reduce.records import (
    BlockRows,
    CollectiveRows,
    LeadRanges,
    NameRows,
    RankFacts,
    RankSummary,
    StepRows,
)

SCHEMA: Final = 9
"""Changes whenever a column does: bytes of another schema are refused, never guessed at."""

MOST_PLAIN_BYTES: Final = 2**30
"""Bytes of a member, decompressed; a hundred thousand collectives take 20 MB."""
_DIGEST_BYTES: Final = 16
_HEADER, _COLUMNS = "header.json", "columns"
TABLES: Final[dict[str, type[Table]]] = {
    "collectives": CollectiveRows,
    "steps": StepRows,
    "ranges": NameRows,
    "lead_ranges": LeadRanges,
    "quiet": LeadRanges,
    "work": NameRows,
    "blocks": BlockRows,
}


class _Header(RankFacts, frozen=True, kw_only=True):
    """What stands before the columns: the type and shape of each, and all that is no column."""

    schema: int
    layout: dict[str, tuple[str, tuple[int, ...]]]


def packed(summary: RankSummary) -> bytes:
    """The summary as a compressed archive of a JSON header and all columns; its digest stands before."""
    columns, layout = [], {}
    for table in TABLES:
        for name, column in getattr(summary, table).columns().items():
            layout[f"{table}.{name}"] = (column.dtype.str, column.shape)
            columns.append(column.tobytes())
    header = msgspec.to_builtins(_Header(schema=SCHEMA, layout=layout, **_facts(summary)))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as members:
        for name, plain in ((_HEADER, json.dumps(header).encode()), (_COLUMNS, b"".join(columns))):
            member = zipfile.ZipInfo(name)  # with no time in it: the same summary gives the same bytes
            member.compress_type = zipfile.ZIP_DEFLATED
            members.writestr(member, plain)
    data = buffer.getvalue()
    return _digest(data) + data


def unpacked(data: bytes) -> RankSummary:
    """The summary back; raises TraceFormatError for anything that `packed` of this version did not write."""
    if data[:_DIGEST_BYTES] != _digest(data[_DIGEST_BYTES:]):
        raise _refused("it is cut or damaged")
    try:
        return _read(data[_DIGEST_BYTES:])
    except TraceFormatError:
        raise
    except Exception as error:  # noqa: BLE001 - what is wrong in an archive shows in many ways
        raise _refused(type(error).__name__) from None


def _read(archive: bytes) -> RankSummary:
    with zipfile.ZipFile(io.BytesIO(archive)) as members:
        told: Any = json.loads(_member(members, _HEADER))
        if told["schema"] != SCHEMA:
            raise _refused(f"schema {told['schema']}, not {SCHEMA}")
        header = msgspec.convert(told, _Header)
        columns = _columns(header.layout, _member(members, _COLUMNS))
    tables: dict[str, Any] = {
        table: kind(**{name: columns[f"{table}.{name}"] for name in kind.__struct_fields__})
        for table, kind in TABLES.items()
    }
    return RankSummary(**_facts(header), **tables)


def _facts(known: RankFacts) -> dict[str, Any]:
    """All that is no table of a summary, or of a header."""
    return {name: getattr(known, name) for name in RankFacts.__struct_fields__}


def _member(members: zipfile.ZipFile, name: str) -> bytes:
    """The bytes of a member, after a look at how many it says it has: it gives no more than that."""
    if members.getinfo(name).file_size > MOST_PLAIN_BYTES:
        raise _refused(f"{name} has more than {MOST_PLAIN_BYTES >> 20} MiB")
    return members.read(name)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _refused(reason: str) -> TraceFormatError:
    return TraceFormatError(
        f"not a rank summary of this version: {reason}", hint="delete it; it is made again from the trace"
    )


def _columns(layout: dict[str, tuple[str, tuple[int, ...]]], payload: bytes) -> dict[str, NDArray[Any]]:
    """The columns; raises ValueError for a shape that has more in it than is there, before it is made."""
    columns, place = {}, 0
    for name, (text, shape) in layout.items():
        dtype, count = np.dtype(text), math.prod(shape)
        if dtype.kind not in "iuf" or any(size < 0 for size in shape) or count * dtype.itemsize > len(payload) - place:
            raise ValueError(name)
        columns[name] = np.frombuffer(payload, dtype, count, place).reshape(shape).copy()
        place += columns[name].nbytes
    return columns
