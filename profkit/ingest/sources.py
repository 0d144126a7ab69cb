"""The registry of sources: one line for each kind of file that profkit reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from profkit import files
from profkit.ingest.kind import Part, Source
from profkit.ingest.kineto.source import KINETO
from profkit.ingest.ncu.source import NCU
from profkit.ingest.nsys.source import NSYS

SOURCES: Final[tuple[Source, ...]] = (
    NSYS,
    NCU,
    KINETO,  # the last: what nobody knows is JSON until its reader refuses it
)
"""In the order in which they are asked whether a file is theirs."""

TRACE_SUFFIXES: Final = tuple(suffix for kind in SOURCES if kind.part is not Part.KERNELS for suffix in kind.suffixes)
"""How files with steps in them are called."""
SUFFIXES: Final = tuple(suffix for kind in SOURCES for suffix in kind.suffixes)
_HEAD_BYTES: Final = 64


def source_of(path: Path, shown: str) -> Source:
    """The kind of a file, told by its content and never by its name alone; raises nothing.

    Standard input and pipes are JSON: they can be read only once.
    """
    head = _head(path)
    return next(kind for kind in SOURCES if kind.is_one(head, path, shown))


def _head(path: Path) -> bytes:
    """The first bytes of a regular file, none of anything else: a pipe can be read only once."""
    try:
        return files.read_head(path, _HEAD_BYTES)
    except (OSError, ValueError):  # the reader of traces says what is wrong with it
        return b""
