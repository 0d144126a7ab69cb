"""Nsight Systems' exports and reports as a source: one trace for each process that trains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profkit import files
from profkit.errors import ProfkitError
from profkit.ingest.bytes.bytesource import GZIP_MAGIC, read_chunks
from profkit.ingest.bytes.foreign import SQLITE_MAGIC
from profkit.ingest.kind import How, Part, Source
from profkit.ingest.nsys.traits import FORMAT, STEP_SOURCE, TOOL

if TYPE_CHECKING:
    from profkit.model.trace import Trace

_REPORT_MAGIC: Final = b"NVIDIA Tegra Profiler Report"  # of .nsys-rep, and of .qdrep before 2021.4
_CHUNK_BYTES: Final = 2**20


def _is_one(head: bytes, path: Path, source: str) -> bool:
    if head.startswith((SQLITE_MAGIC, _REPORT_MAGIC)):
        return True
    return head.startswith(GZIP_MAGIC) and _is_compressed_database(path, source)


def _is_compressed_database(path: Path, source: str) -> bool:
    try:
        first = next(iter(read_chunks(path, source=source, chunk_bytes=len(SQLITE_MAGIC))), b"")
    except ProfkitError:  # damaged; the reader of traces says where
        return False
    return first == SQLITE_MAGIC


def _read(path: Path, how: How) -> Iterator[Trace]:
    from profkit.ingest.nsys.reader import read_export
    from profkit.ingest.nsys.session import command_beside

    with _database(path, how) as sqlite:
        yield from read_export(sqlite, how.source, progress=how.progress, recorded=command_beside(path))


@contextmanager
def _database(path: Path, how: How) -> Iterator[Path]:
    """The file as a plain SQLite database: a report is exported first, into a temporary folder."""
    head = files.read_head(path, len(_REPORT_MAGIC))
    if head.startswith(_REPORT_MAGIC):
        from profkit.ingest.nsys.report import exported

        with exported(path, how.source) as sqlite:
            yield sqlite
    elif head.startswith(GZIP_MAGIC):
        with _decompressed(path, how) as sqlite:
            yield sqlite
    else:
        yield path


@contextmanager
def _decompressed(path: Path, how: How) -> Iterator[Path]:
    """A gzipped database as a plain one, in a temporary folder: SQLite must jump about in it."""
    from profkit.ingest.bytes.spool import write_spool

    with files.temporary_folder("nsys") as folder:
        plain = folder / "export.sqlite"
        chunks = read_chunks(path, source=how.source, chunk_bytes=_CHUNK_BYTES, progress=how.progress)
        write_spool(chunks, plain, how.source)
        yield plain


NSYS: Final = Source(
    name=FORMAT,
    tool=TOOL,
    part=Part.TIMELINE,
    step_source=STEP_SOURCE,
    suffixes=(".sqlite", ".sqlite.gz", ".nsys-rep"),
    is_one=_is_one,
    read=_read,
)
