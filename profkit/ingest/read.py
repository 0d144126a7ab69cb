"""A source of any kind to traces: torch.profiler's JSON gives one, an nsys export one for each process.

Kinds are told by the first bytes, never by the name. A reader is imported when a file of its kind is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from profkit import files
from profkit.errors import ProfkitError, UnsupportedTraceError, each_blamed
from profkit.ingest.bytes.bytesource import GZIP_MAGIC, SQLITE_MAGIC, Progress, read_chunks
from profkit.ingest.discover import is_url
from profkit.ingest.kineto.reader import read_trace
from profkit.ingest.ncu.sniff import is_ncu
from profkit.redact import shown_url
from profkit.shell import quoted_path

if TYPE_CHECKING:
    from profkit.model.trace import Trace

_NSYS_REPORT_MAGIC: Final = b"NVIDIA Tegra Profiler Report"  # of .nsys-rep, and of .qdrep before 2021.4
_CHUNK_BYTES: Final = 2**20


class Tool(StrEnum):
    """What wrote a source."""

    KINETO = "torch.profiler"
    NSYS = "nsys"
    NCU = "ncu"


def tool_of(source: str) -> Tool:
    """Give what wrote a source, by its content; what nobody knows is torch.profiler's, whose reader refuses it.

    Standard input and pipes are torch.profiler's: they can be read only once.
    """
    path = Path(source)
    head = _head(path)
    if head.startswith((SQLITE_MAGIC, _NSYS_REPORT_MAGIC)):
        return Tool.NSYS
    if head.startswith(GZIP_MAGIC):
        return Tool.NSYS if _is_compressed_database(path, source) else Tool.KINETO
    return Tool.NCU if head and is_ncu(path, source) else Tool.KINETO


@each_blamed("reading it")
def read_traces(
    source: str,
    *,
    lenient: bool = False,
    jobs: int = 1,
    progress: Progress | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Iterator[Trace]:
    """Give the traces of a source, in the order of ranks; raises TraceError and MissingCapabilityError.

    `lenient`, `jobs` and `meanwhile` are for JSON (see `read_trace`). An nsys report is exported first, into a
    temporary folder, where nsys is there.
    """
    if is_url(source):
        yield from _read_remote(source, lenient=lenient, jobs=jobs, progress=progress)
        return
    path = Path(source)
    head = _head(path)
    if head.startswith(SQLITE_MAGIC):
        from profkit.ingest.nsys.reader import read_export

        yield from read_export(path, source, progress=progress)
    elif head.startswith(_NSYS_REPORT_MAGIC):
        from profkit.ingest.nsys.reader import read_export
        from profkit.ingest.nsys.report import exported

        with exported(path, source) as sqlite:
            yield from read_export(sqlite, source, progress=progress)
    elif head.startswith(GZIP_MAGIC) and _is_compressed_database(path, source):
        from profkit.ingest.nsys.reader import read_export

        with _decompressed(path, source, progress) as sqlite:
            yield from read_export(sqlite, source, progress=progress)
    elif head and is_ncu(path, source):
        raise UnsupportedTraceError(
            f"{source} is an ncu report: it knows single kernels, and no step",
            hint=f"profkit kernels {quoted_path(source)}; or triage it together with the trace that it belongs to",
        )
    else:
        yield read_trace(source, lenient=lenient, jobs=jobs, progress=progress, meanwhile=meanwhile)


def _read_remote(url: str, *, lenient: bool, jobs: int, progress: Progress | None) -> Iterator[Trace]:
    from profkit.ingest.bytes.remote import fetched

    with fetched(url) as local:
        for trace in read_traces(str(local), lenient=lenient, jobs=jobs, progress=progress):
            yield replace(trace, meta=replace(trace.meta, source=shown_url(url)))


def _head(path: Path) -> bytes:
    """Give the first bytes of a regular file, none of anything else: a pipe can be read only once."""
    try:
        return files.read_head(path, 64)
    except (OSError, ValueError):  # the reader of traces says what is wrong with it
        return b""


def _is_compressed_database(path: Path, source: str) -> bool:
    try:
        first = next(iter(read_chunks(path, source=source, chunk_bytes=len(SQLITE_MAGIC))), b"")
    except ProfkitError:  # damaged; the reader of traces says where
        return False
    return first == SQLITE_MAGIC


@contextmanager
def _decompressed(path: Path, source: str, progress: Progress | None) -> Iterator[Path]:
    """Give a gzipped file as a plain one, in a temporary folder: SQLite must jump about in it."""
    from profkit.ingest.bytes.spool import write_spool

    with files.temporary_folder("nsys") as folder:
        plain = folder / "export.sqlite"
        write_spool(read_chunks(path, source=source, chunk_bytes=_CHUNK_BYTES, progress=progress), plain, source)
        yield plain
