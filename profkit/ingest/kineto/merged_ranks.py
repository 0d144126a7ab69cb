"""One file with the events of several ranks: split by rank where each event says whose it is, refused where none does.

Tools that merge the traces of a job for a viewer write `args.rank` into each event. Read as one process, such a file
shows one host with many devices, and no rank waits for another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np

from profkit.errors import ProfkitError, TraceFormatError, UnsupportedTraceError
from profkit.ingest.assemble.raw import RawTrace
from profkit.ingest.bytes import bytesource
from profkit.ingest.kineto import split
from profkit.ingest.kineto.batch import decode_batch
from profkit.ingest.kineto.columns import TABLE_OF_CATEGORY
from profkit.ingest.kineto.events import BadEventError
from profkit.ingest.kineto.source import traits
from profkit.ingest.numbers import MAX_RANKS, whole

if TYPE_CHECKING:
    from profkit.model.trace import Trace

OF_RANKS: Final = "profkit_of_ranks"
"""The key under which `profkit export` keeps what its ranks' files said each for itself, by rank."""
_RANKED: Final = re.compile(rb'"rank"\s*:\s*"?(\d+)')  # begins with a text: found ten times as fast as after [{,]
_BEFORE_KEY: Final = (b"{", b",")
_BLANKS: Final = 256
"""Bytes before a key that are looked at. Chosen: more than any writer indents."""
_LOOK_BYTES: Final = 2**20
_LEAST_RANKED: Final = 8
"""Mentions of a rank in the first megabyte from which a file is looked into: metadata has one or two. Chosen."""
_MOST_BYTES: Final = 2**29
"""Plain bytes of a file that is split: all of them are held at once. Chosen: four ranks of 100 MB, and room."""
_CHUNK_BYTES: Final = 2**20
_PER_BATCH: Final = 20_000
_SIDES: Final = {"kernels": "device", "copies": "device", "ops": "host", "calls": "host"}
"""Which side of a rank the rows of a table are."""
_LEAST_LAUNCHES: Final = 20
"""Launches of a process from which it counts as one that trains. Chosen."""


class _Args(msgspec.Struct, gc=False):
    rank: Any = None


class _Owner(msgspec.Struct, gc=False):
    """What says whose an event is."""

    pid: int | str | None = None
    cat: str | None = None
    args: _Args | None = None


_OWNERS: Final = msgspec.json.Decoder(list[_Owner])


def may_be_merged(path: Path, source: str) -> bool:
    """Whether a file speaks of several ranks, event by event; what cannot be read is for the reader to say.

    Where the first megabyte hardly speaks of ranks no more is read.
    """
    n_found = n_bytes = 0
    ranks: set[bytes] = set()
    with suppress(ProfkitError):
        for chunk in bytesource.read_chunks(path, source=source, chunk_bytes=_CHUNK_BYTES):
            found = [match[1] for match in _RANKED.finditer(chunk) if _is_key(chunk, match.start())]
            n_found, n_bytes = n_found + len(found), n_bytes + len(chunk)
            ranks.update(found)
            if n_bytes >= _LOOK_BYTES and (n_found < _LEAST_RANKED or len(ranks) > 1):
                break
    return n_found >= _LEAST_RANKED and len(ranks) > 1


def _is_key(text: bytes, place: int) -> bool:
    return text[max(place - _BLANKS, 0) : place].rstrip()[-1:] in _BEFORE_KEY


def traces_by_rank(path: Path, source: str) -> Iterator[Trace]:
    """A trace for each rank of a merged file, in order; none where all events are of one rank or the file is damaged.

    Raises UnsupportedTraceError for one that is too large to be split here.
    """
    from profkit.ingest.assemble.build import build_trace

    found = _by_rank(path, source)
    if found is None:
        return
    metadata, texts, n_lost = found
    n_here = len(texts)
    size = max(n_here, whole(_distributed(metadata).get("world_size"), 1, MAX_RANKS) or 0, max(texts) + 1)
    for rank in sorted(texts):
        events = texts.pop(rank)
        told = {**_distributed(metadata), "rank": rank, "world_size": size}
        own = {**metadata, **_said_alone(metadata, rank), "distributedInfo": told}
        raw = RawTrace(source, traits(), n_in_source=n_here, metadata=own)
        raw.n_bytes = sum(map(len, events))
        for first in range(0, len(events), _PER_BATCH):
            raw.batches.append(decode_batch(b"[" + b",".join(events[first : first + _PER_BATCH]) + b"]"))
        if n_lost:
            raw.warn("ranks.unknown", f"{n_lost:,} events of the merged file name no rank: left out", count=n_lost)
        yield build_trace(raw)


def _distributed(metadata: dict[str, Any]) -> dict[str, Any]:
    told = metadata.get("distributedInfo")
    return told if isinstance(told, dict) else {}


def _said_alone(metadata: dict[str, Any], rank: int) -> dict[str, Any]:
    """What stood around the events of this rank alone, in a file of `profkit export`."""
    of_ranks = metadata.get(OF_RANKS)
    told = of_ranks.get(str(rank)) if isinstance(of_ranks, dict) else None
    return told if isinstance(told, dict) else {}


def _by_rank(path: Path, source: str) -> tuple[dict[str, Any], dict[int, list[bytes]], int] | None:
    """The metadata, each rank's events as text, and how many events are nobody's; None where there is one rank."""
    texts: list[bytes] = []
    owners: list[_Owner] = []
    document = split.Document()
    chunks = bytesource.read_chunks(path, source=source, chunk_bytes=_CHUNK_BYTES)
    try:
        for array in split.pieces(_bounded(chunks, source), document, source=source):
            texts += split.elements(array)
            owners += _OWNERS.decode(array)
    except (msgspec.MsgspecError, BadEventError, TraceFormatError):
        return None  # damaged: the usual reader says where
    said = [whole(owner.args.rank if owner.args is not None else None, 0, MAX_RANKS - 1) for owner in owners]
    if len(texts) != len(owners) or len({rank for rank in said if rank is not None}) < 2:
        return None
    of_process = _of_processes(owners, said)
    whose = [of_process.get(owner.pid) if rank is None else rank for owner, rank in zip(owners, said, strict=True)]
    if not _are_told_apart(owners, whose, source):
        return None
    by_rank: dict[int, list[bytes]] = {}
    for text, rank in zip(texts, whose, strict=True):
        if rank is not None:
            by_rank.setdefault(rank, []).append(text)
    return _metadata(document), by_rank, whose.count(None)


def _are_told_apart(owners: list[_Owner], whose: list[int | None], source: str) -> bool:
    """Whether host and device of some rank are known; not where only ranges of the script speak of ranks.

    Raises UnsupportedTraceError where the events of one side alone say which rank they are of.
    """
    told: dict[int, set[str]] = {}
    lost: set[str] = set()
    for owner, rank in zip(owners, whose, strict=True):
        side = _SIDES.get(TABLE_OF_CATEGORY.get(owner.cat or "", ""))
        if side is not None:
            (lost if rank is None else told.setdefault(rank, set())).add(side)
    sides = set().union(*told.values())
    if not sides:
        return not lost
    if any(lost <= one for one in told.values()):
        return True
    absent = " and ".join(sorted(lost - sides or lost))
    raise UnsupportedTraceError(
        f"{source} holds the events of several ranks (args.rank), but its {absent} rows do not say which rank they are"
        " of",
        hint="give the files from before they were merged, one per rank; profkit triages a folder of them together",
    )


def _bounded(chunks: Iterator[bytes], source: str) -> Iterator[bytes]:
    n_bytes = 0
    for chunk in chunks:
        n_bytes += len(chunk)
        if n_bytes > _MOST_BYTES:
            raise UnsupportedTraceError(
                f"{source} holds the events of several ranks (args.rank) and more than {_MOST_BYTES >> 20} MiB of text",
                hint="give the files from before they were merged, one per rank",
            )
        yield chunk


def _of_processes(owners: list[_Owner], said: list[int | None]) -> dict[Any, int]:
    """The rank of each process whose events, as far as they say, are of one rank."""
    ranks: dict[Any, set[int]] = {}
    for owner, rank in zip(owners, said, strict=True):
        if rank is not None and owner.pid is not None:
            ranks.setdefault(owner.pid, set()).add(rank)
    return {pid: next(iter(found)) for pid, found in ranks.items() if len(found) == 1}


def _metadata(document: split.Document) -> dict[str, Any]:
    """What stands around the events; nothing where it cannot be read."""
    if document.is_list:
        return {}
    with suppress(ValueError, msgspec.MsgspecError, RecursionError):
        top: dict[str, Any] = msgspec.json.decode(document.head + b"null" + document.tail[1:])
        top.pop("traceEvents", None)
        return top
    return {}


def refuse_several_processes(trace: Trace) -> None:
    """Raise UnsupportedTraceError where several processes launch on several devices: ranks without their numbers."""
    from profkit.model.arrays import distinct, is_one_of
    from profkit.model.trace import CallKind

    calls = trace.calls
    devices = distinct(trace.gpu.device)
    if devices.size < 2 or len({thread.pid for thread in trace.threads}) < 2:
        return
    launching = calls.thread[is_one_of(calls.kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH))]
    counts = np.bincount(launching, minlength=len(trace.threads))
    of_process: dict[str, int] = {}
    for thread, count in zip(trace.threads, counts.tolist(), strict=True):
        of_process[thread.pid] = of_process.get(thread.pid, 0) + count
    training = [pid for pid, count in of_process.items() if count >= _LEAST_LAUNCHES]
    if len(training) > 1:
        raise UnsupportedTraceError(
            f"{trace.meta.source} holds {len(training)} processes ({', '.join(training[:4])}) that launch work on"
            f" {devices.size} devices: several ranks in one file, and its events do not say which rank they are of",
            hint="give the files from before they were merged, one per rank; profkit triages a folder of them together",
        )
