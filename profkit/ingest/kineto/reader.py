"""torch.profiler (Kineto) traces: a file of any size to batches of columns, then to a `Trace`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final, NoReturn

from profkit.allocator import collector_paused
from profkit.errors import TraceFormatError, TruncatedTraceError
from profkit.ingest.assemble.raw import RawTrace
from profkit.ingest.bytes import bytesource
from profkit.ingest.bytes.bytesource import Progress
from profkit.ingest.bytes.spool import spooled
from profkit.ingest.kineto import scanner, split
from profkit.ingest.kineto.batch import decode_batch
from profkit.ingest.kineto.events import BadEventError
from profkit.ingest.kineto.parallel_reader import Decode, NotAsUsualError, Task, read_quick
from profkit.ingest.kineto.source import traits
from profkit.ingest.kineto.split import Document

if TYPE_CHECKING:  # what a trace is made of is loaded while other processes decode it
    from profkit.model.trace import Trace

CHUNK_BYTES: Final = 3 * 2**17
"""Plain bytes decoded at a time: large enough to drown numpy's cost per call, small enough to stay in cache. Chosen by
trial on the trace of `make bench-large`."""
SCANNED_CHUNK_BYTES: Final = 2**21
"""The same for the compiled scanner, which has a cost per batch in Python and none per event."""
UNIQUE_KEYS_UP_TO_BYTES: Final = 2**18
"""Files (as they lie on disk) up to here are also searched for keys that stand twice in an event; beyond, the last one
counts. The search takes twice as long as the decoding itself; to count even one key in the text takes a fifth of it."""
_PARTS: Final = 16
MOST_NESTED: Final = 100
"""Metadata nested more deeply (the deepest seen is 6) is refused before Python's own limit is met somewhere inside."""


def read_trace(
    source: str | PathLike[str],
    *,
    lenient: bool = False,
    jobs: int = 1,
    chunk_bytes: int | None = None,
    progress: Progress | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Trace:
    """The `Trace` of a Kineto file ("-" for standard input).

        profkit.read_trace("trace.json.gz").to_pandas("gpu")

    `lenient` keeps what is whole of a damaged file and says so in `Trace.warnings`; `jobs` decodes in that many
    processes; `meanwhile` is called while the others decode (imports, say). Raises TraceError (what, where) and
    MissingCapabilityError.
    """
    source = fspath(source)
    with spooled(source) as path, collector_paused():
        shown = "standard input" if source == "-" else source
        decode = partial(decode_batch, unique_keys=path.stat().st_size <= UNIQUE_KEYS_UP_TO_BYTES)
        task = Task(path, shown, decode, chunk_bytes or _chunk_bytes())
        raw = _read(task, lenient=lenient, jobs=jobs, progress=progress, meanwhile=partial(_load_build, meanwhile))
        from profkit.ingest.assemble.build import build_trace

        return build_trace(raw)


def _chunk_bytes() -> int:
    return SCANNED_CHUNK_BYTES if scanner.is_used() else CHUNK_BYTES


def _load_build(meanwhile: Callable[[], object] | None) -> None:
    """Import the stage after reading, then call the caller's hook."""
    import_module("profkit.ingest.assemble.build")
    if meanwhile is not None:
        meanwhile()


def _read(
    task: Task, *, lenient: bool, jobs: int, progress: Progress | None, meanwhile: Callable[[], object] | None
) -> RawTrace:
    """The batches and metadata of a file: quickly if it is whole and laid out as usual, else exactly."""
    try:
        return _read_quick(task, jobs=jobs, progress=progress, meanwhile=meanwhile)
    except (BadEventError, NotAsUsualError):
        pass  # damaged, or brackets where none are expected: the exact way says which
    except TraceFormatError:
        if not lenient:
            raise
    except TruncatedTraceError:
        if not lenient:
            n_whole = _read_exact(task, lenient=True, progress=progress).n_events
            _raise_cut(task, n_whole)
    return _read_exact(task, lenient=lenient, progress=progress)


def _read_quick(
    task: Task, *, jobs: int, progress: Progress | None, meanwhile: Callable[[], object] | None = None
) -> RawTrace:
    batches, document = read_quick(task, jobs=jobs, progress=progress, meanwhile=meanwhile)
    metadata = _metadata(document.head, document.tail, task.source)
    return RawTrace(task.source, traits(), batches=batches, metadata=metadata, n_bytes=document.n_bytes)


def _metadata(head: bytes, tail: bytes, source: str) -> dict[str, Any]:
    """The top-level keys around the events; raises TraceFormatError if they are not JSON or stand there twice."""
    if not head:
        return {}
    text = head + b"null" + tail
    if split.depths(text)[0] > MOST_NESTED:
        raise TraceFormatError(f"{source}: metadata is nested too deeply")
    try:
        top: dict[str, Any] = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
        json.dumps(top, ensure_ascii=False, allow_nan=False).encode()  # refuses lone surrogates and 1e999
    except (ValueError, UnicodeDecodeError) as error:
        raise TraceFormatError(f"{source}: broken metadata beside the events ({error})") from None
    top.pop("traceEvents", None)
    return top


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {twice[:60]!r} appears twice")
    return dict(pairs)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _read_exact(task: Task, *, lenient: bool, progress: Progress | None) -> RawTrace:
    source, decode = task.source, task.decode
    document = Document()
    chunks = bytesource.read_chunks(
        task.path, source=source, chunk_bytes=task.chunk_bytes, progress=progress, lenient=lenient
    )
    raw = RawTrace(source, traits())
    n_bad = 0
    for array in split.pieces(chunks, document, source=source):
        try:
            raw.batches.append(decode(array))
        except BadEventError as error:
            n_bad += _salvage(array, raw, decode, error, lenient)
    raw.n_bytes = document.n_bytes
    if n_bad:
        raw.warn("events.unreadable", f"{n_bad:,} events could not be read and were left out", count=n_bad)
    if document.is_truncated:
        _note_cut(raw, f"inside event {raw.n_events + 1:,} (at byte {document.n_bytes:,})", lenient)
    _read_surroundings(raw, document, lenient)
    return raw


def _read_surroundings(raw: RawTrace, document: Document, lenient: bool) -> None:
    """Read what surrounds the events into `raw.metadata`: of a damaged file, if lenient, what stands before them."""
    head, tail = document.head, document.tail[1:]
    if document.is_list:
        if tail.strip() and not document.is_truncated and not lenient:
            raise TraceFormatError(f"{raw.source}: {tail[:24]!r} follows the end of the trace")
        return
    if not document.is_truncated:
        try:
            raw.metadata = _metadata(head, tail, raw.source)
            return
        except TraceFormatError as error:
            if split.depths(head + b"null" + tail)[1] > 0:
                _note_cut(raw, f"after its last event, {raw.n_events:,} (at byte {document.n_bytes:,})", lenient)
            elif not lenient:
                raise
            else:
                raw.warn("metadata.unreadable", error.message)
    with suppress(TraceFormatError):
        raw.metadata = _metadata(head, b"}", raw.source)


def _salvage(array: bytes, raw: RawTrace, decode: Decode, error: BadEventError, lenient: bool) -> int:
    """Find the bad events of an array: keep the good ones if lenient, else say which is the first bad."""
    n_before = raw.n_events
    texts = split.elements(array)
    bad_rows = set()
    for row, bad in _bad_events(texts, decode):
        if not lenient:
            raise TraceFormatError(
                f"{raw.source}: event {n_before + row + 1:,}: {bad}",
                hint="--lenient leaves out such events and says so in the report",
            )
        bad_rows.add(row)
    n_bad = len(bad_rows)
    good = [text for row, text in enumerate(texts) if row not in bad_rows]
    raw.batches.append(decode(b"[" + b",".join(good) + b"]"))
    if n_bad == 0:  # every element is whole, what joins them is not
        message = f"between events {n_before + 1:,} and {raw.n_events:,} a comma is missing or one too many ({error})"
        if not lenient:
            raise TraceFormatError(f"{raw.source}: {message}", hint="--lenient reads the events anyway")
        raw.warn("events.separators", message)
    return n_bad


def _bad_events(texts: list[bytes], decode: Decode, first_row: int = 0) -> Iterator[tuple[int, BadEventError]]:
    """The place and the error of each bad event, in order: a part that decodes holds none."""
    size = max(len(texts) // _PARTS, 1)
    for start in range(0, len(texts), size):
        part = texts[start : start + size]
        try:
            decode(b"[" + b",".join(part) + b"]")
        except BadEventError as error:
            if len(part) == 1:
                yield first_row + start, error
            else:
                yield from _bad_events(part, decode, first_row + start)


def _note_cut(raw: RawTrace, where: str, lenient: bool) -> None:
    n_whole = raw.n_events
    if not lenient:
        raise _cut_error(raw.source, n_whole, where)
    message = f"the file is cut after event {n_whole:,}; what follows is missing from all numbers"
    raw.warn("trace.truncated", message, count=n_whole)


def _raise_cut(task: Task, n_whole: int) -> NoReturn:
    """Say where a compressed stream is cut, with the number of events before the cut."""
    source = task.source
    try:
        for _ in bytesource.read_chunks(task.path, source=source, chunk_bytes=task.chunk_bytes):
            pass
    except TruncatedTraceError as error:
        where = error.message.partition("(")[2].rstrip(")")
        raise _cut_error(source, n_whole, f"inside event {n_whole + 1:,} ({where})") from None
    raise _cut_error(source, n_whole, "before the first event")


def _cut_error(source: str, n_whole: int, where: str) -> TruncatedTraceError:
    return TruncatedTraceError(
        f"{source} ends {where}",
        hint=f"--lenient analyses the {n_whole:,} whole events and says so in the report",
        n_whole_events=n_whole,
    )
