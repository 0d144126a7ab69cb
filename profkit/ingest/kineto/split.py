"""JSON text of any layout to whole array elements, in bounded memory.

Two ways to cut, one result. *Quick* (`parallel_reader`): cut before the last `, {` that follows a `}`; right for
everything a profiler writes, and checked by the decoder, since `[` + cut + `]` is valid JSON if and only if the cut is
between two elements. *Exact*, here: find every bracket outside strings with vectorised scans and cut where the depth
returns to the array's level; half as fast, never wrong. A reader tries quick first and starts over with exact when a
piece does not decode.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.errors import TraceError, TraceFormatError, TruncatedTraceError
from profkit.ingest.bytes.foreign import foreign_json

MAX_ELEMENT_BYTES: Final = 8 * 2**20
"""One event, or the metadata before or after the events, may not be larger (the largest seen is 0.4 MB): the exact cut
needs up to 40 bytes per byte of it."""

# Possessive: a plain (?:[^"\\]|\\.)* keeps 120 bytes per character of a string for going back.
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\]]', re.DOTALL)
_ARRAY_START: Final = re.compile(rb"\s*:\s*\[")
SPACE: Final = b" \t\r\n"
_OPEN, _CLOSE, _COMMA, _QUOTE = 1, 2, 3, 4
_CLASSES: Final = bytes(
    {0x7B: _OPEN, 0x5B: _OPEN, 0x7D: _CLOSE, 0x5D: _CLOSE, 0x2C: _COMMA, 0x22: _QUOTE}.get(byte, 0)
    for byte in range(256)
)
_SHIFTS: Final = np.array([0, 1, -1, 0, 0], np.int8)

Places = NDArray[np.intp]


class Document(msgspec.Struct):
    """What surrounds the events: `head` up to the array's `[`, `tail` from its `]` on."""

    head: bytes = b""
    tail: bytes = b""
    is_list: bool = False
    is_truncated: bool = False
    n_bytes: int = 0


def pieces(chunks: Iterator[bytes], document: Document, *, source: str) -> Iterator[bytes]:
    """JSON arrays of whole elements, cut exactly; fill `document` on the way.

    Raises TraceFormatError and TruncatedTraceError.
    """
    yield from _exact(skip_to_array(chunks, document, source), chunks, document, source)


def skip_to_array(chunks: Iterator[bytes], document: Document, source: str) -> bytes:
    """The text behind the array's `[` in the first chunks; fill `document.head`.

    Raises TraceFormatError and TruncatedTraceError.
    """
    buffer = b""
    for chunk in chunks:
        document.n_bytes += len(chunk)
        buffer = (buffer + chunk).lstrip(b"\xef\xbb\xbf" + SPACE) if not buffer.strip() else buffer + chunk
        if not buffer:
            continue
        if buffer[:1] == b"[":
            document.is_list = True
            return buffer[1:]
        if buffer[:1] != b"{":
            raise not_a_trace(source, buffer)
        start = _find_array(buffer)
        if start >= 0:
            document.head = buffer[:start]
            return buffer[start + 1 :]
        if len(buffer) > MAX_ELEMENT_BYTES:
            raise TraceFormatError(
                f"{source}: no traceEvents in the first {len(buffer):,} bytes",
                hint="this JSON is not a trace of torch.profiler",
            )
    raise _no_array(buffer, source)


def not_a_trace(source: str, buffer: bytes) -> TraceFormatError:
    """The error for content that cannot be a trace, with its first characters."""
    shown = buffer[:24].decode("utf-8", "replace").replace("\n", " ")
    return TraceFormatError(
        f"{source} is not a trace: expected JSON, but it begins with {shown!r}",
        hint="pass the .json or .json.gz that torch.profiler wrote, or a folder of them",
    )


def _no_array(buffer: bytes, source: str) -> TraceError:
    if not buffer.strip():
        return TraceFormatError(f"{source} is empty", hint="the profiler wrote nothing; was it stopped before export?")
    if depths(buffer)[1] > 0:
        return TruncatedTraceError(
            f"{source} ends before its first event (byte {len(buffer):,})",
            hint="the export is incomplete; record again",
        )
    known = foreign_json(buffer, source)
    if known is not None:
        return TraceFormatError(f"{source} is not a trace: it is {known.what}", hint=known.hint)
    return TraceFormatError(
        f"{source} is JSON but not a trace: no traceEvents array",
        hint="pass the file that torch.profiler's export_chrome_trace wrote (execution traces are another format)",
    )


def _find_array(buffer: bytes) -> int:
    """The position of the `[` of the top-level key traceEvents, or -1."""
    if b'"traceEvents"' not in buffer:
        return -1
    depth = 0
    for token in _TOKEN.finditer(buffer):
        first = buffer[token.start()]
        if first == 0x22:
            if depth == 1 and token[0] == b'"traceEvents"':
                array = _ARRAY_START.match(buffer, token.end())
                if array is not None:
                    return array.end() - 1
            continue
        depth += 1 if first in b"{[" else -1
    return -1


def _array(elements: bytes) -> bytes:
    return b"".join((b"[", elements, b"]"))  # one copy of the text


def _exact(buffer: bytes, chunks: Iterator[bytes], document: Document, source: str) -> Iterator[bytes]:
    is_first = True
    while True:
        end, close = _exact_cut(buffer)
        if close >= 0:
            last = _without_comma(buffer[:close], is_first)
            if last.strip(SPACE):
                yield _array(last)
            document.tail = buffer[close:]
            for chunk in chunks:
                document.n_bytes += len(chunk)
                document.tail += chunk
                _refuse_giant(document.tail, source)
            return
        if end:
            whole = _without_comma(buffer[:end], is_first)
            yield _array(whole)
            buffer, is_first = buffer[end:], False
        _refuse_giant(buffer, source)
        more = _at_least(chunks, min(max(len(buffer), 1), MAX_ELEMENT_BYTES // 4))
        if not more:
            document.is_truncated = True
            document.tail = buffer
            return
        document.n_bytes += len(more)
        buffer += more


def _without_comma(elements: bytes, is_first: bool) -> bytes:
    """Drop the comma that joins elements to those before; what lacks one is left for the decoder to refuse."""
    stripped = elements.lstrip(SPACE)
    if is_first or not stripped:
        return elements
    return stripped[1:] if stripped[:1] == b"," else b"," + stripped


def _at_least(chunks: Iterator[bytes], n_bytes: int) -> bytes:
    """At least as many bytes as asked for: a growing element is then rescanned a logarithmic number of times."""
    parts: list[bytes] = []
    while sum(map(len, parts)) < n_bytes and (chunk := next(chunks, b"")):
        parts.append(chunk)
    return b"".join(parts)


def _exact_cut(buffer: bytes) -> tuple[int, int]:
    """(End of the last whole element, position of the array's own `]` or -1), by bracket depth outside strings."""
    places, kinds, depth = _structure(buffer)
    closed = np.flatnonzero(depth < 0)
    stop = int(closed[0]) if closed.size else depth.size
    ends = np.flatnonzero((depth[:stop] == 0) & (kinds[:stop] == _CLOSE))
    end = int(places[ends[-1]]) + 1 if ends.size else 0
    return end, int(places[stop]) if closed.size else -1


def _structure(text: bytes) -> tuple[Places, NDArray[np.uint8], NDArray[np.int32]]:
    """The places of brackets and commas outside strings, what each is, and how deep the text is after it."""
    classes = np.frombuffer(text.translate(_CLASSES), np.uint8)
    places = np.flatnonzero(classes != 0)
    kinds = classes[places]
    is_quote = kinds == _QUOTE
    if b"\\" in text:
        is_quote[is_quote] = ~_is_escaped(np.frombuffer(text, np.uint8), places[is_quote])
    in_string = np.bitwise_xor.accumulate(is_quote.view(np.uint8))
    outside = (in_string == 0) & (kinds != _QUOTE)
    places, kinds = places[outside], kinds[outside]
    return places, kinds, np.cumsum(_SHIFTS[kinds], dtype=np.int32)


def _is_escaped(text: NDArray[np.uint8], quotes: Places) -> NDArray[np.bool_]:
    """Tell, for each quote, whether an odd run of backslashes stands before it."""
    is_escaped: NDArray[np.bool_] = (quotes > 0) & (text[quotes - 1] == 0x5C)
    doubtful = quotes[is_escaped]
    if doubtful.size:
        other = np.flatnonzero(text != 0x5C)  # the run begins after the last other byte
        previous = np.searchsorted(other, doubtful) - 1
        run_start = np.where(previous >= 0, other[previous], -1)
        is_escaped[is_escaped] = (doubtful - run_start - 1) % 2 == 1
    return is_escaped


def depths(text: bytes) -> tuple[int, int]:
    """How deeply JSON text is nested, and how many brackets are open at its end."""
    _, _, depth = _structure(text)
    return (int(depth.max()), int(depth[-1])) if depth.size else (0, 0)


def count_members(array: bytes) -> NDArray[np.intp]:
    """For each object of a JSON array: how many members its text has (at least 1), repeated keys included."""
    _, kinds, depth = _structure(array)
    is_start = (kinds == _OPEN) & (depth == 2)
    row = np.cumsum(is_start)[(kinds == _COMMA) & (depth == 2)] - 1
    return np.bincount(row, minlength=int(is_start.sum())) + 1


def elements(array: bytes) -> list[bytes]:
    """The elements of a JSON array one by one, by brackets and commas alone: one bad one spoils no other."""
    places, kinds, depth = _structure(array)
    cuts = places[(depth == 1) & ((kinds == _CLOSE) | (kinds == _COMMA))] + 1
    edges = [1, *cuts.tolist(), len(array) - 1]
    between = (array[start:end].strip(b"," + SPACE) for start, end in pairwise(edges))
    return [piece for piece in between if piece]


def _refuse_giant(buffer: bytes, source: str) -> None:
    if len(buffer) > MAX_ELEMENT_BYTES:
        raise TraceFormatError(
            f"{source}: one element is larger than {MAX_ELEMENT_BYTES // 2**20} MB",
            hint="no profiler writes such an event; check that this is a trace",
        )
