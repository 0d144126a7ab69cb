"""Columns as the bytes of a CSV or a parquet file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any, Final

from profkit.errors import MissingCapabilityError
from profkit.export.tables import Columns

_ROWS_AT_A_TIME: Final = 10_000
_FORMULA: Final = tuple("=+-@\t\r\n＝＋－＠")
"""How text begins that a spreadsheet takes for a formula (OWASP, CSV injection)."""
_FLOATS: Final = frozenset(("share", "confidence", "value", "flops", "bytes"))
"""Columns of numbers that need not be whole; all others that are no text are int64."""
_TEXTS: Final = frozenset(
    [
        *(
            "name",
            "kind",
            "operator",
            "pid",
            "tid",
            "thread",
            "input_dims",
            "input_types",
            "device_kind",
            "part",
            "label",
        ),
        *("id", "title", "severity", "metric", "unit", "fix", "where", "op", "shape", "module", "line"),
    ]
)


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
