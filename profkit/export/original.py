"""The events of a trace file as they stand, streamed: text in, text out, and never the whole file in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from profkit.errors import TraceFormatError
from profkit.export.place import OWN_CATEGORY
from profkit.ingest.bytes import bytesource
from profkit.ingest.bytes.bytesource import Progress
from profkit.ingest.kineto import split
from profkit.redact import redacted, redacted_names

CHUNK_BYTES: Final = 2**20
_NAMES: Final = re.compile(rb'"name"\s*:\s*"([^"\\]*+(?:\\.[^"\\]*+)*+)"')
_OWN: Final = OWN_CATEGORY.encode()
_NOTHING: Final = msgspec.Raw(b"null")
_EVENTS: Final = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])

RawEvent = dict[str, msgspec.Raw]
"""An event with each value as the file writes it."""
Change = Callable[[list[RawEvent]], list[RawEvent]]
"""What is made of the events of a piece."""


class Original:
    """The events of one file; `metadata` holds what stands around them, without secrets, once all have been taken."""

    def __init__(self, path: Path, source: str, *, lenient: bool = False, progress: Progress | None = None) -> None:
        self.metadata: dict[str, Any] = {}
        self._path, self._source = path, source
        self._lenient, self._progress = lenient, progress
        self._clean: set[bytes] = set()

    def pieces(self, change: Change | None = None) -> Iterator[bytes]:
        """Pieces of whole events, joined by commas; without `change` the very text of the file.

        Names that hold a secret lose it, and rows that an earlier export added are left out. Raises TraceFormatError.
        """
        document = split.Document()
        chunks = bytesource.read_chunks(
            self._path,
            source=self._source,
            chunk_bytes=CHUNK_BYTES,
            progress=self._progress,
            lenient=self._lenient,
        )
        for array in split.pieces(chunks, document, source=self._source):
            is_clean = self._is_clean(array)
            if change is None and is_clean and _OWN not in array:
                yield array[1:-1]
                continue
            events = [event for event in self._decoded(array) if bytes(event.get("cat", b"")) != b'"%s"' % _OWN]
            if not is_clean:
                for event in events:
                    _clean(event)
            events = events if change is None else change(events)
            if events:
                yield joined(events)
        self.metadata = _surroundings(document)

    def _is_clean(self, array: bytes) -> bool:
        """Whether no name in a piece holds a secret; each distinct name is looked at once."""
        new = set(_NAMES.findall(array)) - self._clean
        if not new:
            return True
        texts = [text.decode(errors="replace") for text in new]
        if list(redacted_names(texts)) != texts:
            return False
        self._clean |= new
        return True

    def _decoded(self, array: bytes) -> list[RawEvent]:
        try:
            return _EVENTS.decode(array)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            if not self._lenient:
                raise TraceFormatError(f"{self._source}: an event cannot be read ({error})") from None
        whole = []
        for text in split.elements(array):
            try:
                whole += _EVENTS.decode(b"[" + text + b"]")
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                continue  # the report on this file says how many there are
        return whole


def joined(events: list[RawEvent]) -> bytes:
    """Events as text, joined by commas."""
    return msgspec.json.encode(events)[1:-1]


def _clean(event: RawEvent) -> None:
    """Take secrets out of the name and the arguments of an event whose piece holds some."""
    name = value_of(event.get("name", _NOTHING))
    if isinstance(name, str):
        (clean,) = redacted_names((name,))
        if clean != name:
            event["name"] = text_of(clean)
    if "args" in event:
        args, n_taken = redacted(value_of(event["args"]))
        if n_taken or args is None:
            event["args"] = text_of(args or {})


def value_of(text: bytes | msgspec.Raw) -> Any:
    """The value of a JSON text with numbers of any size; None for one that Python does not read."""
    try:
        return json.loads(bytes(text))
    except (ValueError, RecursionError):
        return None


def text_of(value: Any) -> msgspec.Raw:
    """A value as JSON, also a text with half a character in it."""
    return msgspec.Raw(json.dumps(value).encode())


def _surroundings(document: split.Document) -> dict[str, Any]:
    """The keys around the events, without secrets; of a damaged file those that can be read."""
    if document.is_list:
        return {}
    for tail in (document.tail[1:], b"}"):
        top = value_of(document.head + b"null" + tail)
        if isinstance(top, dict):
            clean: dict[str, Any] = redacted(top)[0]
            return {key: value for key, value in clean.items() if key != "traceEvents" and _is_plain(value)}
    return {}


def _is_plain(value: Any) -> bool:
    """Whether a value can be written as JSON: no NaN, no half a character."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return True
