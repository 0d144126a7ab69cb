"""A report as it was written by `-f json`, read again to be asked about its numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from profkit.errors import TraceNotFoundError
from profkit.files import read_small
from profkit.render.json.recomputed import read_document

MOST_BYTES: Final = 256 * 2**20
"""Of a report: one on thousands of ranks takes some tens of MB."""
KINDS: Final = ("triage", "compare", "where")
"""The documents whose numbers have ids."""


def text_of(path: Path, hint: str) -> bytes:
    """What is in the file of a report; raises TraceNotFoundError."""
    try:
        return read_small(path, MOST_BYTES)
    except OSError as error:
        raise TraceNotFoundError(f"cannot read {path}: {error.strerror}", hint=hint) from None


def read_report(path: Path) -> dict[str, Any]:
    """The plain values of a report of triage, compare or where; raises TraceNotFoundError, TraceFormatError."""
    text = text_of(path, "profkit triage TRACE -f json -o report.json writes one")
    return read_document(text, str(path), *(f"profkit.{kind}/1" for kind in KINDS), use="has numbers with ids")
