"""Streams and other sources that are first written to a file of a temporary folder: readers look at them twice."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from select import select
from typing import BinaryIO, Final

from profkit import files
from profkit.errors import TraceFormatError, TraceNotFoundError, UnsupportedTraceError
from profkit.ingest.bytes.bytesource import first_plain_bytes, refuse_other_formats, unreadable

MOST_BYTES: Final = 32 * 2**30
"""Written of one source, and no more than nine tenths of what is free in the temporary folder. Chosen: the profile of a
rank over minutes has a tenth of it."""
_FREE_SHARE: Final = 0.9
_LOOKED_AT_BYTES: Final = 2**20
"""So much of a stream is looked at before more is taken: what can never become a trace need not be waited for."""
_HEARD_S: Final = 0.2
"""After so long a signal is heard at the latest. Chosen: who ends a job does not notice it."""
_HOW_TO_PIPE: Final = "pipe in what torch.profiler wrote: ssh node cat trace.json.gz | profkit triage -"
_MORE_ROOM: Final = "save it as a file and give its name, or set TMPDIR to a folder with more space"


def refuse_no_trace(head: bytes, source: str) -> None:
    """Raise TraceFormatError for the first megabyte of a stream that no reader of traces can make anything of."""
    refuse_other_formats(head, source)
    plain = first_plain_bytes(head)
    if plain.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] not in {b"{", b"["}:
        raise TraceFormatError(f"{source} is not a trace: it does not begin like JSON", hint=_HOW_TO_PIPE)


@contextmanager
def spooled(source: str, refuse: Callable[[bytes, str], None] = refuse_no_trace) -> Iterator[Path]:
    """A path for a source; a stream ("-", a named pipe) is copied to a file, since a retry must reread it.

    `refuse` is called with the first megabyte of a stream that has more, and raises if it can come to nothing.
    """
    path = Path(source)
    if source != "-":
        _refuse_missing(path)
        if not path.is_fifo():
            yield path
            return
    shown = "standard input" if source == "-" else source
    with files.temporary_folder("stream") as folder:
        spool = folder / "stream"
        with _pipe(source, shown) as pipe:
            write_spool(_looked_at(pipe, shown, refuse), spool, shown)
        yield spool


def write_spool(chunks: Iterable[bytes], spool: Path, source: str) -> None:
    """Write what a source gives to a file of a temporary folder; raises UnsupportedTraceError for more than it takes.

    Raises TraceNotFoundError where it cannot be read or written.
    """
    most = most_spooled(spool.parent)
    n_bytes = 0
    try:
        with spool.open("xb") as file:
            for chunk in chunks:
                n_bytes += len(chunk)
                if n_bytes > most:
                    raise too_much(source, most)
                file.write(chunk)
    except OSError as error:  # no room after all, a pipe that broke
        reason = (error.strerror or "unreadable").lower()
        raise TraceNotFoundError(f"{source}: {reason}, after {n_bytes:,} bytes", hint=_MORE_ROOM) from None


def most_spooled(folder: Path) -> int:
    """How much of one source may be written to a temporary folder."""
    return min(MOST_BYTES, int(_FREE_SHARE * files.free_bytes(folder)))


def too_much(source: str, most_bytes: int) -> UnsupportedTraceError:
    """The refusal of a source that would fill the temporary folder."""
    return UnsupportedTraceError(
        f"{source} has more than {files.size_of(most_bytes)}, the limit of the temporary folder for one source",
        hint=_MORE_ROOM,
    )


@contextmanager
def _pipe(source: str, shown: str) -> Iterator[BinaryIO]:
    """Standard input or a named pipe; raises TraceNotFoundError for what nobody writes a trace to."""
    if source == "-":
        kind = _kind_of_stdin()
        if kind:
            raise TraceNotFoundError(f"{shown} is {kind}, not a trace", hint=_HOW_TO_PIPE)
        yield sys.stdin.buffer
        return
    try:
        pipe = files.open_pipe(source)
    except OSError as error:
        raise unreadable(shown, error) from None
    with pipe:
        yield pipe


def _kind_of_stdin() -> str:
    """What standard input is where no trace can come from it, "" where one can."""
    if sys.stdin is None:
        return "closed"
    try:
        descriptor = sys.stdin.fileno()
        if not stat.S_ISCHR(os.fstat(descriptor).st_mode):
            return ""
    except (AttributeError, OSError, ValueError):  # replaced by who calls us as a library
        return ""
    return "a terminal" if os.isatty(descriptor) else "a device"


def _looked_at(pipe: BinaryIO, shown: str, refuse: Callable[[bytes, str], None]) -> Iterator[bytes]:
    """What comes from a pipe, after a look at its beginning where there is much."""
    chunks = _chunks(pipe)
    head = b""
    while len(head) < _LOOKED_AT_BYTES and (chunk := next(chunks, b"")):
        head += chunk
    if len(head) >= _LOOKED_AT_BYTES:
        refuse(head[:_LOOKED_AT_BYTES], shown)
    yield head
    yield from chunks


def _chunks(pipe: BinaryIO) -> Iterator[bytes]:
    """What comes, as it comes; between two looks signals are heard.

    Python's handler of a signal that arrives right before a read, or in another thread, runs after that read: a job
    that is told to end would wait for its writer.
    """
    try:
        waited = [pipe.fileno()]
        select(waited, [], [], 0)
    except (AttributeError, OSError, ValueError):  # no file, or a system that waits for sockets alone
        waited = []
    read = getattr(pipe, "read1", pipe.read)
    while True:
        while waited and not select(waited, [], [], _HEARD_S)[0]:
            pass
        if not (chunk := read(_LOOKED_AT_BYTES)):
            return
        yield chunk


def _refuse_missing(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise TraceNotFoundError(
            f"{path}: no such file", hint="give a .json or .json.gz that torch.profiler wrote"
        ) from None
    except (OSError, ValueError) as error:  # a name too long or with a NUL, a folder one may not look into
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise TraceNotFoundError(f"{path}: {reason}", hint="check the path") from None
    if stat.S_ISDIR(mode):
        raise TraceNotFoundError(f"{path} is a folder", hint="give the trace files in it")
    kind = files.kind_of(mode)
    if kind and not stat.S_ISFIFO(mode):
        raise TraceNotFoundError(f"{path}: {kind}", hint="give a .json or .json.gz that torch.profiler wrote")
