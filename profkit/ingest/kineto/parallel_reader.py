"""The quick way through a whole file of the usual layout, alone or shared by several threads or processes.

Threads share it where the compiled scanner reads the file: one decompresses and cuts, the others scan, and the first
helps them where it is ahead. Python's own way needs processes. Each reads and cuts the whole file and decodes the
pieces it is first to claim: reading is a fifth of that work, and no text has to travel between processes, only columns,
a fifteenth of it.

Cut is at a text that looks like a cut; see `split`. Text is copied once, into room that is used again: a block of such
a size, once freed, goes back to the system, and to have its pages made anew costs more than to decompress what stands
in it.
"""

from __future__ import annotations

import gc
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import msgspec

from profkit.ingest.assemble.raw import Batch
from profkit.ingest.bytes import bytesource
from profkit.ingest.bytes.bytesource import Progress
from profkit.ingest.kineto import scanner
from profkit.ingest.kineto.split import MAX_ELEMENT_BYTES, SPACE, Document, skip_to_array

if TYPE_CHECKING:
    from concurrent.futures import Future
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

PART_BYTES: Final = 2**18
"""The most to decompress at a time: what is copied from there is in cache still. Chosen by trial: less of it costs the
decompressor more, and so does more."""
_SPARE_BYTES: Final = 2**16
_MOST_BRACES: Final = 10_000
"""So many objects inside one event are looked back over for the quick cut; the exact one has no such limit."""


class NotAsUsualError(Exception):
    """The quick cut does not fit this file; the exact one will, or says what is wrong."""


class Rooms:
    """Room for the text of pieces of some `n_bytes`; what is given back, by any thread, is used again."""

    def __init__(self, n_bytes: int) -> None:
        self.piece_bytes = n_bytes
        self.part_bytes = -(-n_bytes // -(-n_bytes // PART_BYTES))
        self._room_bytes = n_bytes + 2 * self.part_bytes + _SPARE_BYTES
        self._free: deque[bytearray] = deque()

    def taken(self) -> bytearray:
        """Room for a piece, for the caller alone."""
        try:
            return self._free.pop()
        except IndexError:
            return bytearray(self._room_bytes)

    def give_back(self, piece: memoryview) -> None:
        """Take the room of a piece that nobody reads any more."""
        room = piece.obj
        if isinstance(room, bytearray) and len(room) == self._room_bytes:
            self._free.append(room)


def quick_pieces(chunks: Iterator[bytes], document: Document, *, source: str, rooms: Rooms) -> Iterator[memoryview]:
    """JSON arrays of whole elements; fill `document` on the way. A piece is the reader's until it gives its room back.

    The last elements are left in `document.tail`, with `]` and what follows it, for the decoder to take apart. Raises
    NotAsUsualError, TraceFormatError and TruncatedTraceError.
    """
    room, end = _begun(rooms.taken(), memoryview(skip_to_array(chunks, document, source)))
    for chunk in chunks:  # one ahead of what is cut, for the last one is not
        document.n_bytes += len(chunk)
        if end > rooms.piece_bytes:
            cut = _last_boundary(room, end)
            if cut > 0:
                piece = memoryview(room)
                room, end = _begun(rooms.taken(), piece[room.index(b",", cut) + 1 : end])
                piece[cut] = 0x5D
                yield piece[: cut + 1]
            elif end > MAX_ELEMENT_BYTES:
                raise NotAsUsualError
        room, end = _with(room, end, chunk)
    document.tail = bytes(memoryview(room)[1:end])


def _begun(room: bytearray, text: memoryview) -> tuple[bytearray, int]:
    """Room that begins with `[` and a text, and where that ends."""
    room[0] = 0x5B
    return _with(room, 1, text)


def _with(room: bytearray, end: int, text: bytes | memoryview) -> tuple[bytearray, int]:
    """Room with a text behind what it holds, larger room where it must be, and where that ends."""
    stop = end + len(text)
    if stop >= len(room):  # of an element that is larger than a piece
        larger = bytearray(2 * stop)
        larger[:end] = memoryview(room)[:end]
        room = larger
    memoryview(room)[end:stop] = text
    return room, stop


def _last_boundary(text: bytearray, end: int) -> int:
    """The end of the last `}` before `end` that is followed by a comma and a `{`, or 0."""
    position = end
    for _ in range(_MOST_BRACES):
        position = text.rfind(b"{", 0, position)
        if position <= 0:
            break
        before = _without_space(text, position)
        if before and text[before - 1] == 0x2C:
            before = _without_space(text, before - 1)
            if before and text[before - 1] == 0x7D:
                return before
    return 0


def _without_space(text: bytearray, end: int) -> int:
    """Where the text before `end` ends without the spaces, of which there may be 64."""
    start = max(0, end - 64)
    return start + len(text[start:end].rstrip(SPACE))


_LONGEST_CLAIM_S: Final = 30
"""A claim takes a microsecond; a machine that swaps may stop a process for seconds in the middle of one."""
_AHEAD: Final = 3
"""Pieces that wait for each thread that scans: enough that none stands idle while the first decompresses the next."""


class Decode(Protocol):
    """`decode_batch`, with or without the search for repeated keys."""

    def __call__(self, array: bytes | memoryview) -> Batch:
        """The columns of a JSON array of whole events; raises BadEventError."""


class Task(msgspec.Struct, frozen=True):
    """How to read the file; travels to other processes."""

    path: Path
    source: str
    decode: Decode
    chunk_bytes: int
    """How much text to decode at a time."""


def read_quick(
    task: Task, *, jobs: int, progress: Progress | None, meanwhile: Callable[[], object] | None = None
) -> tuple[list[Batch], Document]:
    """The batches of the whole file, in order, and what surrounds the events, decoded by `jobs` threads or processes.

    Raises BadEventError and NotAsUsualError.

    `meanwhile` is called once, while the others decode, if there are any.
    """
    document = Document()
    if jobs == 1:
        batches = [batch for _, batch in _decoded(task, document, count(), progress)]
    elif _is_scanned(task):
        batches = _by_threads(task, document, progress, jobs - 1, meanwhile)
    else:
        with _Workers(task, jobs) as workers:
            if meanwhile is not None:
                meanwhile()
            batches = _shared(task, document, workers, progress)
    last, document.tail = _take_apart(document)
    batches.append(task.decode(last))
    return batches, document


def _decoded(
    task: Task, document: Document, claims: Iterator[int], progress: Progress | None
) -> Iterator[tuple[int, Batch]]:
    """The claimed pieces of a file with their places, decoded; fill `document` on the way."""
    claimed = next(claims)
    rooms = Rooms(task.chunk_bytes)
    for place, array in enumerate(_arrays(task, document, progress, rooms)):
        if place == claimed:
            yield place, task.decode(array)
            claimed = next(claims)
        rooms.give_back(array)


def _arrays(task: Task, document: Document, progress: Progress | None, rooms: Rooms) -> Iterator[memoryview]:
    """The pieces of a file in order; fill `document` on the way."""
    path, source = task.path, task.source
    chunks = bytesource.read_chunks(path, source=source, chunk_bytes=rooms.part_bytes, progress=progress)
    return quick_pieces(chunks, document, source=source, rooms=rooms)


def _is_scanned(task: Task) -> bool:
    """Whether the compiled scanner takes the first piece, and so, as a rule, all; Python's way holds its lock."""
    first = next(_arrays(task, Document(), None, Rooms(task.chunk_bytes)), b"")
    return scanner.decode(first, unique_keys=False) is not None


def _by_threads(
    task: Task,
    document: Document,
    progress: Progress | None,
    n_others: int,
    meanwhile: Callable[[], object] | None,
) -> list[Batch]:
    """The pieces decoded by this thread, which also makes them, and by `n_others` others; in their order."""
    from concurrent.futures import ThreadPoolExecutor  # 10 ms that a small trace need not pay

    rooms = Rooms(task.chunk_bytes)

    def decoded(array: memoryview) -> Batch:
        batch = task.decode(array)
        rooms.give_back(array)
        return batch

    batches: list[Batch | Future[Batch]] = []
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(n_others) as pool:
        try:
            for array in _arrays(task, document, progress, rooms):
                while waiting and waiting[0].done():
                    waiting.popleft()
                if len(waiting) < _AHEAD * n_others:
                    waiting.append(pool.submit(decoded, array))
                    batches.append(waiting[-1])
                    continue
                if meanwhile is not None:
                    meanwhile()
                    meanwhile = None
                batches.append(decoded(array))
            if meanwhile is not None:
                meanwhile()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [batch if isinstance(batch, Batch) else batch.result() for batch in batches]


def _shared(task: Task, document: Document, workers: _Workers, progress: Progress | None) -> list[Batch]:
    by_place: dict[int, Batch] = {}
    for place, batch in _decoded(task, document, workers.claims, progress):
        by_place[place] = batch
        by_place.update(workers.received())  # now and then, or they stop at a full pipe
    by_place.update(workers.rest())
    return [by_place[place] for place in sorted(by_place)]


class _Claims:
    """The next piece that nobody has claimed, over all processes that hold this."""

    def __init__(self, shared: Any) -> None:
        self._shared = shared  # a multiprocessing.Value

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> int:
        lock = self._shared.get_lock()
        if not lock.acquire(timeout=_LONGEST_CLAIM_S):
            raise NotAsUsualError  # a worker died with the lock: the exact way needs none
        try:
            claimed: int = self._shared.value
            self._shared.value = claimed + 1
        finally:
            lock.release()
        return claimed


class _Workers:
    """Processes that decode their share of a file and send it batch by batch, so that none holds it all."""

    def __init__(self, task: Task, jobs: int) -> None:
        from multiprocessing import get_context  # 10 ms that a small trace need not pay

        context: Any = get_context(_start_method())
        self.claims = _Claims(context.Value("q", 0))
        self._processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        for _ in range(1, jobs):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_send_share, args=(sender, task, self.claims), daemon=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 counts numpy's idle threads
                process.start()
            sender.close()
            self._processes.append(process)
            self._pipes.append(receiver)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            if error is not None:
                process.terminate()
            process.join()

    def received(self) -> Iterator[tuple[int, Batch]]:
        """What has come, with its places; raises what a worker raised."""
        for pipe in self._pipes:
            while not pipe.closed and pipe.poll():
                yield from _message(pipe)

    def rest(self) -> Iterator[tuple[int, Batch]]:
        """Wait for the rest and give it, with its places; raises what a worker raised."""
        for pipe in self._pipes:
            while not pipe.closed:
                yield from _message(pipe)


def _message(pipe: Connection) -> Iterator[tuple[int, Batch]]:
    """A worker's next batch; close the pipe after its last."""
    try:
        message = pipe.recv()
    except EOFError:
        raise NotAsUsualError from None  # a worker died: the exact way needs none
    if isinstance(message, Exception):
        raise message
    if message is None:
        pipe.close()
    else:
        yield message


def _send_share(sender: Connection, task: Task, claims: Iterator[int]) -> None:
    """Decode a share in a process of its own and send it: places with batches, then None; or the error."""
    gc.disable()
    try:
        for placed in _decoded(task, Document(), claims, None):
            sender.send(placed)
        sender.send(None)
    except BrokenPipeError:  # the other side has given up
        pass
    except Exception as error:  # noqa: BLE001 - to be raised where it is understood
        sender.send(error)


def _start_method() -> str:
    """Fork where it is safe, which saves a worker its imports: no thread of ours, no torch, and Linux."""
    is_safe = sys.platform == "linux" and threading.active_count() == 1 and "torch" not in sys.modules
    return "fork" if is_safe else "spawn"


def _take_apart(document: Document) -> tuple[bytes, bytes]:
    """(The last elements as an array, what follows the array) of a quick reading's tail."""
    prefix = b"[" if document.is_list else b'{"traceEvents":['
    text = prefix + document.tail
    if document.is_list:
        return text.rstrip(), b""
    try:
        top = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise NotAsUsualError from None
    array = bytes(top["traceEvents"])
    start = len(prefix) - 1
    if text[start : start + len(array)] != array:
        raise NotAsUsualError  # a second traceEvents after the first
    return array, text[start + len(array) :]
