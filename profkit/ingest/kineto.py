"""torch.profiler (Kineto) traces: a file of any size to batches of columns, then to a `Trace`."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NoReturn

from profkit.errors import TraceFormatError, TruncatedTraceError
from profkit.ingest import bytesource, split
from profkit.ingest.batch import Batch, decode_batch
from profkit.ingest.build import build_trace
from profkit.ingest.bytesource import Progress
from profkit.ingest.events import BadEventError
from profkit.ingest.quick import Decode, Task, read_quick
from profkit.ingest.split import Document, NotAsUsualError
from profkit.model.trace import Trace, TraceWarning

CHUNK_BYTES: Final = 2**20
"""Plain bytes decoded at a time: large enough to drown numpy's cost per call, small enough to stay in cache."""
UNIQUE_KEYS_UP_TO_BYTES: Final = 2**18
"""Files (as they lie on disk) up to here are also searched for keys that stand twice in an event; beyond, the search
would cost a twentieth of the reading, and the last one counts."""


@dataclass
class RawTrace:
    """What the reading of one file gives, before it becomes a `Trace`."""

    source: str
    batches: list[Batch] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    n_bytes: int = 0
    warnings: list[TraceWarning] = field(default_factory=list)

    @property
    def n_events(self) -> int:
        """Whole events read."""
        return sum(batch.n_events for batch in self.batches)


def read_trace(
    source: str,
    *,
    lenient: bool = False,
    jobs: int = 1,
    chunk_bytes: int | None = None,
    progress: Progress | None = None,
) -> Trace:
    """Give the `Trace` of a Kineto file ("-" for standard input).

    `lenient` keeps what is whole of a damaged file and says so in `Trace.warnings`; `jobs` decodes in that many
    processes. Raises TraceError (what, where) and MissingCapabilityError.
    """
    with bytesource.spooled(source) as path, _collector_paused():
        shown = "standard input" if source == "-" else source
        raw = read_raw(path, shown, lenient=lenient, jobs=jobs, chunk_bytes=chunk_bytes, progress=progress)
        return build_trace(raw)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Decoding makes millions of objects that hold no cycles; the collector would walk them again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_raw(
    path: Path,
    source: str,
    *,
    lenient: bool = False,
    jobs: int = 1,
    chunk_bytes: int | None = None,
    progress: Progress | None = None,
) -> RawTrace:
    """Give the batches and metadata of a file: quickly if it is whole and laid out as usual, else exactly."""
    decode = partial(decode_batch, unique_keys=path.stat().st_size <= UNIQUE_KEYS_UP_TO_BYTES)
    task = Task(path, source, decode, chunk_bytes or CHUNK_BYTES)
    try:
        return _read_quick(task, jobs=jobs, progress=progress)
    except (BadEventError, NotAsUsualError):
        pass  # damaged, or brackets where none are expected: the exact way says which
    except TruncatedTraceError:
        if not lenient:
            n_whole = _read_exact(task, lenient=True, progress=progress).n_events
            _raise_cut(task, n_whole)
    return _read_exact(task, lenient=lenient, progress=progress)


def _read_quick(task: Task, *, jobs: int, progress: Progress | None) -> RawTrace:
    share = read_quick(task, jobs=jobs, progress=progress)
    metadata = _metadata(share.head, share.tail, task.source)
    return RawTrace(task.source, batches=share.batches, metadata=metadata, n_bytes=share.n_bytes)


def _metadata(head: bytes, tail: bytes, source: str) -> dict[str, Any]:
    """Give the top-level keys around the events; raises TraceFormatError if they are not JSON or stand there twice."""
    if not head:
        return {}
    try:
        top: dict[str, Any] = json.loads(
            head + b"null" + tail, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant
        )
    except RecursionError:
        raise TraceFormatError(f"{source}: metadata is nested too deeply") from None
    except (ValueError, UnicodeDecodeError) as error:
        raise TraceFormatError(f"{source}: broken metadata beside the events ({error})") from None
    top.pop("traceEvents", None)
    return top


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {twice[:60]!r} stands there twice")
    return dict(pairs)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _read_exact(task: Task, *, lenient: bool, progress: Progress | None) -> RawTrace:
    source, decode = task.source, task.decode
    document = Document()
    chunks = bytesource.read_chunks(
        task.path, source=source, chunk_bytes=task.chunk_bytes, progress=progress, lenient=lenient
    )
    raw = RawTrace(source)
    n_bad = 0
    for array in split.pieces(chunks, document, source=source, exact=True):
        try:
            raw.batches.append(decode(array))
        except BadEventError as error:
            n_bad += _salvage(array, raw, decode, error, lenient)
    raw.n_bytes = document.n_bytes
    if n_bad:
        raw.warnings.append(
            TraceWarning(
                id="events.unreadable", message=f"{n_bad:,} events could not be read and were left out", count=n_bad
            )
        )
    if document.is_truncated:
        _note_cut(raw, document, lenient)
    elif not document.is_list:
        try:
            raw.metadata = _metadata(document.head, document.tail[1:], source)
        except TraceFormatError as error:
            if not lenient:
                raise
            raw.warnings.append(TraceWarning(id="metadata.unreadable", message=error.message))
    elif document.tail[1:].strip() and not lenient:
        raise TraceFormatError(f"{source}: {document.tail[1:25]!r} follows the end of the trace")
    return raw


def _salvage(array: bytes, raw: RawTrace, decode: Decode, error: BadEventError, lenient: bool) -> int:
    """Find the bad events of an array one by one: keep the good ones if lenient, else say which is the first bad."""
    n_before = raw.n_events
    n_bad = 0
    good: list[bytes] = []
    for row, text in enumerate(split.elements(array)):
        try:
            decode(b"[" + text + b"]")
            good.append(text)
        except BadEventError as bad:
            if not lenient:
                raise TraceFormatError(
                    f"{raw.source}: event {n_before + row + 1:,}: {bad}",
                    hint="--lenient leaves out such events and says so in the report",
                ) from None
            n_bad += 1
    if n_bad == 0:  # every element is whole, what joins them is not
        raise TraceFormatError(f"{raw.source}: not JSON after event {n_before:,}: {error}")
    raw.batches.append(decode(b"[" + b",".join(good) + b"]"))
    return n_bad


def _note_cut(raw: RawTrace, document: Document, lenient: bool) -> None:
    n_whole = raw.n_events
    if not lenient:
        raise _cut_error(raw.source, n_whole, f"at byte {document.n_bytes:,}")
    raw.warnings.append(
        TraceWarning(
            id="trace.truncated",
            message=f"the file is cut after event {n_whole:,}; what follows is missing from every number here",
            count=n_whole,
        )
    )


def _raise_cut(task: Task, n_whole: int) -> NoReturn:
    """Say where a compressed stream is cut, with the number of events before the cut."""
    source = task.source
    try:
        for _ in bytesource.read_chunks(task.path, source=source, chunk_bytes=task.chunk_bytes):
            pass
    except TruncatedTraceError as error:
        raise _cut_error(source, n_whole, error.message.partition("(")[2].rstrip(")")) from None
    raise _cut_error(source, n_whole, "before the first event")


def _cut_error(source: str, n_whole: int, where: str) -> TruncatedTraceError:
    return TruncatedTraceError(
        f"{source} ends inside event {n_whole + 1:,} ({where})",
        hint=f"--lenient analyses the {n_whole:,} whole events and says so in the report",
        n_whole_events=n_whole,
    )
