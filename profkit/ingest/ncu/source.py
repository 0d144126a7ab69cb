"""Nsight Compute's reports and pages as a source: they know single kernels, and no step.

A file is told by its first megabyte, so that it is sent to the right reader before another is tried.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profkit import files
from profkit.errors import UnsupportedTraceError
from profkit.ingest.kind import How, Part, Source
from profkit.shell import quoted_path

if TYPE_CHECKING:
    from profkit.model.trace import Trace

MAGIC: Final = b"NVR\x00"
_REPORT_SUFFIX: Final = ".ncu-repz"  # zstd, as compressed traces are: nothing but the name tells it
_LOOKED_AT_BYTES: Final = 2**20
"""Chosen: ncu's own ==PROF== lines begin with the program; a page printed from a report begins at once."""
# A CSV header with a launch's columns, the head of a launch on a text page, or ncu's own messages.
_MARKS: Final = re.compile(
    rb'^"[^\r\n]{0,600}Kernel Name",|, Context \d+, Stream \d+|^==(?:PROF|ERROR)==', re.MULTILINE
)
_WORDS: Final = (b'Kernel Name",', b", Context ", b"==PROF==", b"==ERROR==")
"""Marks hold one of them: looked for first, since the pattern takes 40 ms for the megabyte."""


def is_ncu(path: Path, source: str) -> bool:
    """Whether a file is an ncu report, or holds a page that ncu printed; False for what cannot be read."""
    try:
        head = files.read_head(path, _LOOKED_AT_BYTES)
    except (OSError, ValueError):
        return False
    if head.startswith(MAGIC) or Path(source).suffix == _REPORT_SUFFIX:
        return True
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # what PowerShell's > writes
        head = head.decode("utf-16", errors="replace").encode()
    if b"\0" in head or not any(word in head for word in _WORDS):
        return False
    return _MARKS.search(head.removeprefix(codecs.BOM_UTF8)) is not None


def no_trace(source: str) -> UnsupportedTraceError:
    """The refusal of a report where a trace is wanted."""
    return UnsupportedTraceError(
        f"{source} is an ncu report: it holds single kernels, no steps",
        hint=f"profkit kernels {quoted_path(source)}; or triage it together with its trace",
    )


def _read(path: Path, how: How) -> Iterator[Trace]:
    raise no_trace(how.source)


NCU: Final = Source(
    name="ncu",
    tool="ncu",
    part=Part.KERNELS,
    suffixes=(".ncu-rep", ".ncu-repz"),
    is_one=lambda head, path, source: bool(head) and is_ncu(path, source),
    read=_read,
)
