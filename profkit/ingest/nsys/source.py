"""Nsight Systems' exports and reports as a source: what they hold, how they are recorded again, how they are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profkit import files
from profkit.errors import ProfkitError
from profkit.ingest.bytes.bytesource import GZIP_MAGIC, read_chunks
from profkit.ingest.bytes.foreign import SQLITE_MAGIC
from profkit.ingest.kind import How, Part, Source

if TYPE_CHECKING:
    from profkit.model.trace import Trace, Traits

FORMAT: Final = "nsys"
TOOL: Final = "nsys"
STEP_SOURCE: Final = "NVTX"


_STEADY: Final = "profkit nsys --warmup-steps 5 --steps 12"
RECAPTURE: Final = f"{_STEADY} --also waits"
RECAPTURE_LOST: Final = f"{_STEADY} --trace cuda-sw,nvtx,osrt"
"""Where nsys recorded launches and nothing on the device: from Blackwell on, `cuda` is the tracing by hardware, which
fails on some systems."""
_RECAPTURE_LOST_BEFORE: Final = f"{_STEADY} --trace cuda,nvtx,osrt"
_BY_HARDWARE_SINCE: Final = (2025, 6)
"""The version of nsys in which `cuda` became the tracing by hardware: older ones do not know `cuda-sw`."""
RECAPTURE_CPU: Final = "profkit nsys --whole --also waits"
"""Of a job without a GPU: nothing opens the range of its steps."""


def recapture_lost(version: str) -> str:
    """How an export of this version of nsys is recorded again whose kernels are lost."""
    numbers = re.match(r"(\d{4})\.(\d{1,3})", version)
    is_new = numbers is not None and (int(numbers[1]), int(numbers[2])) >= _BY_HARDWARE_SINCE
    return RECAPTURE_LOST if is_new else _RECAPTURE_LOST_BEFORE


def is_lost(recapture: str) -> bool:
    """Whether that is how an export is recorded again whose kernels are lost."""
    return recapture in {RECAPTURE_LOST, _RECAPTURE_LOST_BEFORE}


def traits(recapture: str = RECAPTURE) -> Traits:
    """What nsys exports hold; `recapture` is how this one is better recorded again."""
    from profkit.model.trace import Traits

    return Traits(
        format=FORMAT,
        tool=TOOL,
        step_source=STEP_SOURCE,
        step_marks="NVTX ranges of steps",
        has_host_calls=True,
        is_system_wide=True,
        recapture=recapture,
        how_to_mark_steps="open an NVTX range around every iteration: torch.cuda.nvtx.range('step 7')",
        how_to_mark_input="wrap the code that fetches a batch in torch.cuda.nvtx.range('data_loader')",
        how_to_have_operators=(
            "record it with torch.profiler: profkit capture -- COMMAND"
            if recapture == RECAPTURE_CPU  # emit_nvtx needs CUDA
            else "run the job under torch.autograd.profiler.emit_nvtx()"
        ),
        how_to_be_steady=(
            "record again: a window of steady steps, each in an NVTX range named step N, well before the job's end"
        ),
    )


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
