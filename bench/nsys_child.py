"""One reading of an nsys export in a process of its own: profkit's, or a bare SELECT of the same columns."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import Any

from profkit.ingest.nsys import fetch
from profkit.ingest.nsys.reader import read_export
from profkit.ingest.nsys.sqlite import CHUNK_ROWS
from profkit.model.trace import Trace


def read(export: Path) -> int:
    """Give how many device rows profkit's reader finds; as in a triage, a trace is gone before the next one is made."""
    return sum(map(_n_rows, read_export(export, export.name)))


def _n_rows(trace: Trace) -> int:
    return len(trace.gpu)


def bare(export: Path, small: Path) -> int:
    """Give how many rows the reader's statements select; they are fetched, and forgotten.

    The statements are those of a reading of `small`, the export that the large one repeats.
    """
    n_rows = 0
    with sqlite3.connect(f"file:{export}?mode=ro", uri=True) as database:
        database.text_factory = bytes
        for statement in _statements(small):
            cursor = database.execute(statement)
            cursor.arraysize = CHUNK_ROWS
            while rows := cursor.fetchmany():
                n_rows += len(rows)
    return n_rows


def _statements(export: Path) -> list[str]:
    """Give the SELECTs of columns that the reader sends for an export."""
    statements: list[str] = []
    fetch.available = lambda: None  # type: ignore[assignment]  # those of the compiled library cannot be listened to
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(statements.append)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]
    try:
        read(export)
    finally:
        sqlite3.connect = connect
    return [text for text in dict.fromkeys(statements) if text.startswith("SELECT") and "sqlite_master" not in text]


if __name__ == "__main__":
    way, *paths = sys.argv[1:]
    print({"read": read, "bare": bare}[way](*map(Path, paths)))
