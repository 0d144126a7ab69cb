"""Traces at URLs (`s3://`, `gs://`, `https://`, ...) through fsspec, which is imported when one is seen.

No store is waited for without end, whatever it is: a thread beside does what it is asked for, and is left to itself
when that takes too long. What it gives is bounded as any stream is (`profkit.ingest.bytes.spool`).

A URL is fetched as it was given, and shown, in errors too, without the secrets in it (`shown_url`).
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from profkit import files
from profkit.errors import MissingCapabilityError, ProfkitError, TraceNotFoundError
from profkit.ingest.bytes.spool import most_spooled, too_much
from profkit.redact import redacted_text, shown_url

T = TypeVar("T")


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a store may take: to answer a question, to give the least that counts as getting on, to give all.

    Chosen: a kilobyte a second is what a modem gave.
    """

    answer_s: float = 120.0
    stall_s: float = 30.0
    least_bytes: int = 32 * 1024
    """In every `stall_s`; the environment variable PROFKIT_URL_STALL_S gives it more time."""
    whole_s: float = 6 * 3600.0


PATIENCE: Final = Patience()
_BETWEEN_LOOKS_S: Final = 0.2
_MOST_LISTED_BYTES: Final = 64 * 2**20
"""Of a web page with links: a hundred thousand files take 10 MB."""


def patience() -> Patience:
    """How long stores may take here."""
    with suppress(KeyError, ValueError):
        told = float(os.environ["PROFKIT_URL_STALL_S"])
        if told > 0:
            return replace(PATIENCE, stall_s=told)
    return PATIENCE


def listed(url: str, suffixes: tuple[str, ...]) -> list[str]:
    """The URLs of the files behind one: of a folder all of them at any depth, of a pattern what it matches.

    On the web, what ends in one of the suffixes is a file: to ask would be to fetch it, in search of links. Raises
    TraceNotFoundError, and MissingCapabilityError where fsspec or the package of the protocol is missing.
    """
    return _answered(url, lambda: _listed(url, suffixes))


def _listed(url: str, suffixes: tuple[str, ...]) -> list[str]:
    system, path = _opened(url)
    if any(char in path for char in "*?["):
        found = _matching(system, path, is_web=_is_web(url))
    elif _is_web(url) and (urlsplit(url).path.endswith(suffixes) or not system.isdir(path)):
        return [url]
    else:  # of an object alone it finds that; to ask a store first would list a folder of thousands twice
        found = system.find(path)
        if not found or found == [path]:
            return [url]
    return [str(system.unstrip_protocol(name)) for name in sorted(found)]


def _matching(system: Any, pattern: str, *, is_web: bool) -> list[str]:
    """The objects that a pattern names. A store tells with the names which are folders; the web, when it is asked."""
    if is_web:
        return [name for name in system.glob(pattern) if system.isfile(name)]
    return [name for name, told in system.glob(pattern, detail=True).items() if told["type"] == "file"]


_MARKS: Final = ("ETag", "Content-MD5", "Digest", "Last-Modified")


def identity(url: str) -> bytes | None:
    """What the store says of an object (size, tag or time of change): another if the object is another.

    None where a web server says nothing that changes with it: fsspec takes what lies behind an address for unchanging.
    """
    return _answered(url, lambda: _identity(url))


def _identity(url: str) -> bytes | None:
    system, path = _opened(url)
    info = system.info(path)
    tag = info.get("ETag") or info.get("etag")
    if "http" not in system.protocol:
        # not fsspec's key, in S3 one of a listing and another of the object itself, though these say the same
        return repr((path, info.get("size"), str(tag).strip('"'))).encode() if tag else system.ukey(path).encode()
    marks = [str(info[name]) for name in _MARKS if name in info]
    return repr((path, info.get("size"), marks)).encode() if marks else None


@contextmanager
def fetched(url: str, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """An object as a file of a temporary folder: readers look at a file more than once. It keeps a known suffix."""
    with files.temporary_folder("url") as folder:
        local = folder / f"object{_suffix(url, suffixes)}"
        _fetch(url, local)
        try:
            yield local
        except ProfkitError as error:
            error.message = error.message.replace(str(local), shown_url(url))
            error.hint = error.hint.replace(str(local), shown_url(url))
            raise


def _suffix(url: str, suffixes: tuple[str, ...]) -> str:
    """How an object's name ends, if in one of the suffixes; nothing else of the name becomes one here."""
    return next((suffix for suffix in suffixes if urlsplit(url).path.endswith(suffix)), "")


def _fetch(url: str, local: Path) -> None:
    """Copy an object; raises TraceNotFoundError where it does not come, UnsupportedTraceError where it has no end."""
    bounds, most = patience(), most_spooled(local.parent)
    counting = _counting(url, most)

    def copy() -> None:
        system, path = _opened(url)
        counting.absolute_update(0)
        system.get_file(path, str(local), callback=counting)

    begun = looked = time.monotonic()
    n_before = 0

    def look() -> None:
        nonlocal looked, n_before
        now, n_bytes = time.monotonic(), _n_written(local)
        if n_bytes > most:
            raise too_much(shown_url(url), most)
        if now - begun > bounds.whole_s:
            raise _late(f"{shown_url(url)} was not complete after {bounds.whole_s:g} s")
        if max(n_bytes, counting.value) - n_before >= bounds.least_bytes:
            looked, n_before = now, max(n_bytes, counting.value)
        elif now - looked > bounds.stall_s:
            raise _late(f"{shown_url(url)} sent fewer than {bounds.least_bytes:,} bytes in {bounds.stall_s:g} s")

    try:
        _watched(lambda: _tried(url, copy), look)
    finally:
        counting.is_over = True


def _n_written(local: Path) -> int:
    """What is there of a file: not every store counts."""
    try:
        return local.stat().st_size
    except OSError:
        return 0


def _counting(url: str, most: int) -> Any:
    """What fsspec tells of the bytes it copies, which ends a copy that is too large or that nobody waits for."""
    callback: Any = _fsspec(url, "fsspec.callbacks").Callback

    class Counting(callback):  # type: ignore[misc]
        is_over = False

        def set_size(self, size: int | None) -> None:
            if size is not None and size > most:
                raise too_much(shown_url(url), most)
            super().set_size(size)

        def relative_update(self, inc: int = 1) -> None:
            super().relative_update(inc)
            if self.is_over or self.value > most:
                raise too_much(shown_url(url), most)

    return Counting()


def _answered(url: str, ask: Callable[[], T]) -> T:
    """What a store says; raises TraceNotFoundError if it says nothing."""
    begun, most_s = time.monotonic(), patience().answer_s

    def look() -> None:
        if time.monotonic() - begun > most_s:
            raise _late(f"{shown_url(url)}: no answer within {most_s:g} s")

    return _watched(lambda: _tried(url, ask), look)


_WAITS_S: Final = (0.5, 2.0)
"""Before a store that was busy is asked again; what it is built on may have asked more often by then."""
_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_BUSY_ERRNO: Final = frozenset({errno.EBUSY, getattr(errno, "EREMOTEIO", errno.EIO)})
"""What s3fs makes of 503 and 500."""


def _tried(url: str, act: Callable[[], T]) -> T:
    """What a call gives, of a store that is busy at the third time; what it raises is one line."""
    for wait_s in _WAITS_S:
        try:
            with _told(url):
                return act()
        except ProfkitError as error:
            if not _is_busy(error.__context__):  # what the store itself raised, see `_told`
                raise
        time.sleep(wait_s)
    with _told(url):
        return act()


def _is_busy(error: BaseException | None) -> bool:
    """Whether what a store raised may pass: its server says so, and not that the object is not there or not ours."""
    told = getattr(error, "status", None), getattr(error, "errno", None)
    return told[0] in _BUSY or told[1] in _BUSY_ERRNO


def _watched(act: Callable[[], T], look: Callable[[], None]) -> T:
    """What a call gives that may never come back; `look` is called meanwhile, and raises when it is enough."""
    told: list[tuple[T | None, BaseException | None]] = []

    def run() -> None:
        try:
            told.append((act(), None))
        except BaseException as error:  # noqa: BLE001 - raised below
            told.append((None, error))

    thread = Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(_BETWEEN_LOOKS_S)
        if not told:
            look()
    value, error = told[0]
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


def _late(message: str) -> TraceNotFoundError:
    return TraceNotFoundError(message, hint="download it yourself, or wait longer: PROFKIT_URL_STALL_S=600 profkit ...")


def _is_web(url: str) -> bool:
    return urlsplit(url).scheme in {"http", "https"}


@cache
def _web_options() -> dict[str, Any]:
    """What fsspec is told of web servers: aiohttp's own bound of five minutes for all would cut large traces."""
    import aiohttp

    class Response(aiohttp.ClientResponse):
        """An answer whose text has a bound: a page that lists a folder is read at once."""

        async def read(self) -> bytes:
            if self._body is None:
                parts, n_bytes = [], 0
                while part := await self.content.readany():
                    parts.append(part)
                    n_bytes += len(part)
                    if n_bytes > _MOST_LISTED_BYTES:
                        self.close()
                        raise OSError(f"more than {files.size_of(_MOST_LISTED_BYTES)} of listing")
                self._body = b"".join(parts)
            return self._body

    wait_s = 2 * patience().stall_s  # what is left behind ends too
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=wait_s, sock_read=wait_s)
    return {"client_kwargs": {"timeout": timeout, "response_class": Response}}


def _fsspec(url: str, name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise MissingCapabilityError(
            f"{shown_url(url)} is a URL, which needs fsspec", hint="pip install 'profkit[remote]'"
        ) from None


def _opened(url: str) -> tuple[Any, str]:
    core = _fsspec(url, "fsspec.core")
    try:
        system, path = core.url_to_fs(url, **(_web_options() if _is_web(url) else {}))
    except ImportError as error:  # fsspec names the package of the protocol
        raise MissingCapabilityError(
            f"{shown_url(url)}: {error}", hint="pip install s3fs, gcsfs or adlfs, as it says"
        ) from None
    return system, str(path)


@contextmanager
def _told(url: str) -> Iterator[None]:
    """Turn what a store raises, which is of any kind, into one line."""
    try:
        yield
    except ProfkitError:
        raise
    except FileNotFoundError:
        raise TraceNotFoundError(f"{shown_url(url)}: no such object", hint="check the URL") from None
    except Exception as error:  # noqa: BLE001 - each store has its own exceptions
        said = str(error).partition("\n")[0].replace(url, shown_url(url))
        reason = redacted_text(said) or "no reason given"
        raise TraceNotFoundError(
            f"{shown_url(url)}: {type(error).__name__}: {reason}", hint="check the URL, the network and the credentials"
        ) from None
