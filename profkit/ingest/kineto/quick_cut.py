"""JSON text of the usual layout to whole array elements, cut at a text that looks like a cut; see `split`.

Text is copied once, into room that is used again: a block of such a size, once freed, goes back to the system, and to
have its pages made anew costs more than to decompress what stands in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from profkit.ingest.kineto.split import MAX_ELEMENT_BYTES, SPACE, Document, skip_to_array

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
