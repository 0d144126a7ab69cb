"""Traces at URLs (`s3://`, `gs://`, `https://`, ...) through fsspec, which is imported when one is seen.

A URL is fetched as it was given, and shown, in errors too, without the secrets in it (`shown_url`).
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Final

from profkit.errors import MissingCapabilityError, ProfkitError, TraceNotFoundError
from profkit.redact import redacted_text, shown_url


def listed(url: str) -> list[str]:
    """Give the URLs of the files behind one: of a folder all of them at any depth, of a pattern what it matches.

    Raises TraceNotFoundError, and MissingCapabilityError where fsspec or the package of the protocol is missing.
    """
    with _told(url):
        system, path = _opened(url)
        if any(char in path for char in "*?["):
            found = [name for name in system.glob(path) if system.isfile(name)]
        elif system.isdir(path):
            found = system.find(path)
        else:
            return [url]
        return [str(system.unstrip_protocol(name)) for name in sorted(found)]


_MARKS: Final = ("ETag", "Content-MD5", "Digest", "Last-Modified")


def identity(url: str) -> bytes | None:
    """Give what the store says of an object (size, tag or time of change): another if the object is another.

    None where a web server says nothing that changes with it: fsspec takes what lies behind an address for unchanging.
    """
    with _told(url):
        system, path = _opened(url)
        if "http" not in system.protocol:
            return str(system.ukey(path)).encode()
        info = system.info(path)
        marks = [str(info[name]) for name in _MARKS if name in info]
        return repr((path, info.get("size"), marks)).encode() if marks else None


@contextmanager
def fetched(url: str) -> Iterator[Path]:
    """Give an object as a file of a temporary folder: readers look at a file more than once."""
    with tempfile.TemporaryDirectory(prefix="profkit-url-") as folder:
        local = Path(folder) / (PurePosixPath(shown_url(url)).name[-120:] or "trace")
        with _told(url):
            system, path = _opened(url)
            system.get_file(path, str(local))
        try:
            yield local
        except ProfkitError as error:
            error.message = error.message.replace(str(local), shown_url(url))
            error.hint = error.hint.replace(str(local), shown_url(url))
            raise


def _opened(url: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise MissingCapabilityError(
            f"{shown_url(url)} is a URL, which takes fsspec", hint="pip install 'profkit[remote]'"
        ) from None
    try:
        system, path = url_to_fs(url)
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
