"""The records of a CSV, TSV or JSON file: heading to text, whatever they mean."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from profkit import files
from profkit.errors import TraceFormatError, TraceNotFoundError
from profkit.ingest.texts import LONGEST_LABEL
from profkit.redact import redacted_cell, redacted_text

MAX_BYTES: Final = 64 * 2**20
ROW_KEYS: Final = ("rows", "runs", "results", "data", "cases")
"""Where the rows of a JSON object may lie."""

Cells = Mapping[str, str]


def read_records(file: Path) -> list[tuple[int, Cells]]:
    """Line (of JSON: number of the record) and cells of each row; raises TraceNotFoundError, TraceFormatError."""
    text = _text(file)
    records = _json_records(text, file.name) if file.suffix.lower() == ".json" else _csv_records(text, file.name)
    return [
        (line, {redacted_text(name): redacted_cell(name, cell) for name, cell in cells.items()})
        for line, cells in records
    ]


def _text(file: Path) -> str:
    try:
        return files.read_small(file, MAX_BYTES).decode("utf-8-sig")
    except FileNotFoundError:
        raise TraceNotFoundError(f"there is no file {file}") from None
    except files.TooLargeError:
        most = files.size_of(MAX_BYTES)
        raise TraceFormatError(f"{file.name} has more than {most}: too large for a table of runs") from None
    except OSError as error:
        raise TraceNotFoundError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise TraceFormatError(f"{file.name} is not text: byte {error.start} is not UTF-8") from None


def _csv_records(text: str, source: str) -> list[tuple[int, Cells]]:
    if "\0" in text:
        raise TraceFormatError(f"{source} is not text: it holds NUL bytes")
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        lines = [(reader.line_num, cells) for cells in reader if any(cell.strip() for cell in cells)]
    except csv.Error as error:
        raise TraceFormatError(f"{source} is not CSV: {error}") from None
    if len(lines) < 2:
        raise TraceFormatError(f"{source} has no rows below its headings", hint="a line of headings, then one per run")
    names = [name.strip() for name in lines[0][1]]
    _refuse_long(names, source)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TraceFormatError(f"{source} has several columns named {twice[0]!r}")
    for line, cells in lines[1:]:
        if len(cells) != len(names):
            raise TraceFormatError(f"{source} line {line} has {len(cells)} cells, the headings are {len(names)}")
    return [(line, dict(zip(names, cells, strict=True))) for line, cells in lines[1:]]


def _refuse_long(names: Iterable[str], source: str) -> None:
    """Raise TraceFormatError for what is no heading; what one means is looked for with patterns."""
    long = next((name for name in names if len(name) > LONGEST_LABEL), None)
    if long is not None:
        raise TraceFormatError(f"{source} has a heading of {len(long):,} characters: {long[:40]!r}...")


def _json_records(text: str, source: str) -> list[tuple[int, Cells]]:
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceFormatError(f"{source} is not JSON: {error}") from None
    if isinstance(document, dict):
        document = next((document[key] for key in ROW_KEYS if isinstance(document.get(key), list)), None)
    if not isinstance(document, list) or not document or not all(isinstance(row, dict) for row in document):
        raise TraceFormatError(
            f"{source} is not a table of runs", hint='a list of objects, one per run, or {"runs": [...]}'
        )
    for row in document:
        _refuse_long(row, source)
    return [(number, {str(key): _cell(value) for key, value in row.items()}) for number, row in enumerate(document, 1)]


def _cell(value: object) -> str:
    """A JSON value as a cell; what is nested is no cell."""
    return "" if value is None or isinstance(value, (list, dict)) else str(value)
