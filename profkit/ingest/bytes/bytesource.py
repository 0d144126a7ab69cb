"""Files as chunks of plain bytes: gzip, zstd or nothing, told by their first bytes, never by their name."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import msgspec
from isal import isal_zlib

from profkit import files
from profkit.errors import (
    MissingCapabilityError,
    TraceFormatError,
    TraceNotFoundError,
    TruncatedTraceError,
)
from profkit.ingest.bytes.foreign import foreign
from profkit.shell import quoted_path

# Real traces expand 8 to 40 times; a repeated one 1000 times is a bomb, or not worth the wait.
MAX_EXPANSION: Final = 300  # chosen: ten times what the reference traces need
FREE_EXPANSION_BYTES: Final = 512 * 2**20  # small files may expand as they like up to here

_HEAD_BYTES: Final = 4096  # in which a file of another kind shows itself
_GZIP_WBITS: Final = 31
_GZIP_LEVEL: Final = 2
"""Of isal's 0 to 3. Measured on 62 MB of trace: 0.09 s for 6.0 MB; level 3 takes four times as long for 4 % less."""
_COMPRESSED_BYTES: Final = 256 * 1024
_PLAIN_BYTES: Final = 64 * 1024  # of a damaged stream that is read leniently, so much before the damage may be lost

_DAMAGED: Final[Any] = (zlib.error, isal_zlib.IsalError, OSError)

GZIP_MAGIC: Final = b"\x1f\x8b"
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"


class Progress(msgspec.Struct):
    """Where the reading stands; `on_bytes` is called with compressed bytes read so far and the file's size."""

    on_bytes: Callable[[int, int], None] | None = None

    def tell(self, n_read: int, n_total: int) -> None:
        """Report bytes read."""
        if self.on_bytes is not None:
            self.on_bytes(n_read, n_total)


def read_chunks(
    path: Path, *, source: str, chunk_bytes: int, progress: Progress | None = None, lenient: bool = False
) -> Iterator[bytes]:
    """The plain bytes of a file in chunks of at most `chunk_bytes`.

    Raises TraceFormatError for what cannot be a trace, TruncatedTraceError where a compressed stream is cut (in
    `lenient` reading the bytes before the cut are all there is), MissingCapabilityError for zstd without a decoder.
    """
    try:
        with files.open_file(path) as raw:
            yield from _decompressed(raw, source, chunk_bytes, progress or Progress(), lenient)
    except OSError as error:  # permission, a socket, a file that went away
        raise unreadable(source, error) from None


def unreadable(source: str, error: OSError) -> TraceNotFoundError:
    """What the system says of a file as one line."""
    reason = (error.strerror or "unreadable").lower()
    return TraceNotFoundError(f"{source}: {reason}", hint="check what it is, its owner and its mode")


def _decompressed(raw: BinaryIO, source: str, chunk_bytes: int, progress: Progress, lenient: bool) -> Iterator[bytes]:
    head = raw.read(_HEAD_BYTES)
    raw.seek(0)
    refuse_other_formats(head, source)
    n_total = path_size(raw)
    stream = _open_stream(raw, head, source, lenient=lenient)
    n_plain = 0
    while True:
        try:
            chunk = stream.read(chunk_bytes)
        except EOFError:
            if lenient:
                return
            raise TruncatedTraceError(
                f"{source} ends early (compressed stream cut at byte {raw.tell():,})",
                hint="--lenient analyses the whole events before the cut and says so in the report",
            ) from None
        except _DAMAGED as error:
            if lenient:
                return
            raise TraceFormatError(
                f"{source}: broken compressed data near byte {raw.tell():,} ({error})",
                hint="copy the file again; --lenient analyses the whole events before the damage",
            ) from None
        if not chunk:
            return
        n_plain += len(chunk)
        _refuse_bomb(n_plain, raw.tell(), source)
        progress.tell(raw.tell(), n_total)
        yield chunk


def path_size(raw: BinaryIO) -> int:
    """The size of an open file in bytes, leaving its position at the start."""
    raw.seek(0, 2)
    size = raw.tell()
    raw.seek(0)
    return size


def refuse_other_formats(head: bytes, source: str) -> None:
    """Raise TraceFormatError for what begins like a file of another kind."""
    known = foreign(head, source)
    if known is not None:
        raise TraceFormatError(f"{source} is not a trace: it is {known.what}", hint=known.hint)


def first_plain_bytes(head: bytes) -> bytes:
    """Where a stream begins, decompressed; of what cannot be told so early, the beginning of some JSON."""
    unknown = b"{"
    if not head.startswith(GZIP_MAGIC):
        return unknown if head.startswith(_ZSTD_MAGIC) else head
    try:
        plain: bytes = isal_zlib.decompressobj(wbits=_GZIP_WBITS).decompress(head, _PLAIN_BYTES)
    except _DAMAGED:  # the reader says where
        return unknown
    return plain or unknown


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes, none at the end."""


class _Compressed:
    """A compressed stream; a `lenient` one that is cut or damaged gives what comes before, then raises."""

    def __init__(self, *, lenient: bool) -> None:
        self._lenient = lenient
        self._damage: Exception | None = None

    def read(self, size: int) -> bytes:
        """Up to `size` plain bytes, none at the end."""
        if not self._lenient:
            return self._part(size)  # as it comes: to join small parts is to copy the whole text once more
        if self._damage is not None:
            raise self._damage
        parts: list[bytes] = []
        wanted = size
        while wanted > 0:
            try:
                part = self._part(min(wanted, _PLAIN_BYTES))
            except (EOFError, *_DAMAGED) as damage:
                self._damage = damage
                if parts:
                    break  # only the piece with the damage in it is lost; the next call tells of it
                raise
            if not part:
                break
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)

    def _part(self, size: int) -> bytes:
        """Up to `size` plain bytes, none only at the end; raises EOFError at a cut, or one of `_DAMAGED`."""
        raise NotImplementedError


class _GzipStream(_Compressed):
    """Gzip members one after the other."""

    def __init__(self, raw: BinaryIO, *, lenient: bool) -> None:
        super().__init__(lenient=lenient)
        self._raw = raw
        self._inflate = isal_zlib.decompressobj(wbits=_GZIP_WBITS)
        self._pending = b""

    def _part(self, size: int) -> bytes:
        while True:
            if not self._pending:
                self._pending = self._raw.read(_COMPRESSED_BYTES)
            if self._inflate.eof:  # another member, or the zeros that tapes are padded with
                self._pending = self._pending.lstrip(b"\0")
                if not self._pending:
                    return b""
                self._inflate = isal_zlib.decompressobj(wbits=_GZIP_WBITS)
            is_dry = not self._pending
            part: bytes = self._inflate.decompress(self._pending, size)
            self._pending = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            if part:
                return part
            if is_dry and not self._inflate.eof:
                raise EOFError


class _ZstdStream(_Compressed):
    """Zstd frames one after the other, by a module of Python's own or its backport; windows of up to 128 MiB."""

    def __init__(self, module: Any, raw: BinaryIO, *, lenient: bool) -> None:
        super().__init__(lenient=lenient)
        self._file = module.open(raw, "rb")
        self._error = module.ZstdError

    def _part(self, size: int) -> bytes:
        try:
            part: bytes = self._file.read1(size)
        except self._error as error:
            raise OSError(str(error)) from None
        return part


def _open_stream(raw: BinaryIO, head: bytes, source: str, *, lenient: bool) -> _Stream:
    if head.startswith(GZIP_MAGIC):
        return _GzipStream(raw, lenient=lenient)
    if head.startswith(_ZSTD_MAGIC):
        return _open_zstd(raw, source, lenient=lenient)
    return raw


def _open_zstd(raw: BinaryIO, source: str, *, lenient: bool) -> _ZstdStream:
    for name in ("compression.zstd", "backports.zstd"):  # Python 3.14 has the first, its backport the second
        try:
            return _ZstdStream(importlib.import_module(name), raw, lenient=lenient)
        except ImportError:
            continue
    raise MissingCapabilityError(
        f"{source} is zstd-compressed but this Python has no zstd decoder",
        hint=f"pip install backports.zstd, or: zstd -dc {quoted_path(source)} | profkit triage -",
    )


def _refuse_bomb(n_plain: int, n_read: int, source: str) -> None:
    if n_plain > FREE_EXPANSION_BYTES and n_plain > MAX_EXPANSION * max(n_read, 1):
        raise TraceFormatError(
            f"{source} expands to more than {MAX_EXPANSION} times its {n_read:,} compressed bytes",
            hint="a profiler does not write such a file; decompress it yourself if you trust it",
        )


def gzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Chunks that profkit writes as one gzip member; the same bytes for the same chunks."""
    deflate = isal_zlib.compressobj(level=_GZIP_LEVEL, wbits=_GZIP_WBITS)
    for chunk in chunks:
        packed: bytes = deflate.compress(chunk)
        if packed:
            yield packed
    yield deflate.flush()
