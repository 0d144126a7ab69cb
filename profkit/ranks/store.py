"""Finished ranks kept in a folder, so that an interrupted run goes on where it stopped.

A file of it is data, never code: a digest, the key it was made for, and msgpack that is converted field by field. What
is damaged, of another version or of other options is made again. The folder can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from profkit import __version__
from profkit.errors import ProfkitError
from profkit.model.report import RankReport, Verdict
from profkit.ranks.codec import packed, unpacked
from profkit.ranks.options import Options
from profkit.ranks.outcome import Outcome
from profkit.redact import shown_url
from profkit.verdict import Case

FOLDER: Final = ".profkit"
"""The folder beside the traces."""
SUFFIX: Final = ".rank"
_DIGEST_BYTES: Final = 32  # of sha256


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome as it is written."""

    report: RankReport
    verdict: Verdict
    case: Case
    confidence_cap: float
    summary: bytes


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What an outcome depends on: bytes and name of the source, the code that reads them, the options."""

    content: bytes
    settings: bytes

    @property
    def whole(self) -> bytes:
        """Both in one."""
        return hashlib.sha256(self.content + self.settings).digest()


def key_of(content: bytes, options: Options, *, named_rank: int = -1) -> Key:
    """Give the key of a source by the digest of its bytes and the rank that its name tells, -1 for none."""
    settings = repr((__version__, code_digest().hex(), options, named_rank))
    return Key(content=content, settings=hashlib.sha256(settings.encode()).digest())


def content_digest(path: Path) -> bytes:
    """Give the digest of a file as it lies on disk: compressed bytes; raises OSError.

    Of a regular file only: a pipe can be read once, and not for this.
    """
    if not path.is_file():
        raise FileNotFoundError(path)
    with path.open("rb") as raw:
        return hashlib.file_digest(raw, "sha256").digest()


@cache
def code_digest() -> bytes:
    """Give the digest of profkit's own modules: a checkout changes while its version does not."""
    digest = hashlib.sha256()
    root = Path(str(resources.files("profkit")))
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.digest()


def place_of(source: str, key: Key, folder: str | None) -> Path:
    """Give the file for a source: in `folder`, or beside the source; one for each content, whatever the options."""
    path = Path(shown_url(source))
    home = path.parent / FOLDER if folder is None else Path(folder)
    return home / f"{path.name[:120]}-{key.content.hex()[:12]}{SUFFIX}"


def kept(place: Path, key: Key, source: str) -> tuple[Outcome, ...] | None:
    """Give the outcomes kept under a key, with the source's present name; None where there are none that hold."""
    try:
        data = place.read_bytes()
        head, body = data[: 2 * _DIGEST_BYTES], data[2 * _DIGEST_BYTES :]
        if head != hashlib.sha256(body).digest() + key.whole:
            return None
        items = msgspec.msgpack.decode(body, type=tuple[_Kept, ...])
        return tuple(_outcome(item, source) for item in items)
    except (OSError, msgspec.MsgspecError, ProfkitError, ValueError, KeyError):
        return None


def keep(place: Path, key: Key, outcomes: tuple[Outcome, ...]) -> bool:
    """Write outcomes, whole or not at all; False where the folder cannot be written, which is no error."""
    items = tuple(
        _Kept(
            report=outcome.report,
            verdict=outcome.verdict,
            case=outcome.case,
            confidence_cap=outcome.confidence_cap,
            summary=packed(outcome.summary),
        )
        for outcome in outcomes
    )
    body = msgspec.msgpack.encode(items, enc_hook=_plain)
    partial = place.with_name(f".{secrets.token_hex(8)}.part")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(hashlib.sha256(body).digest() + key.whole + body)
        partial.replace(place)
    except OSError:
        with suppress(OSError):
            partial.unlink()
        return False
    return True


def _outcome(item: _Kept, source: str) -> Outcome:
    source = shown_url(source)
    report, verdict = replace(item.report, source=source), replace(item.verdict, source=source)
    return Outcome(
        report=report,
        verdict=verdict,
        case=replace(item.case, source=source),
        summary=replace(unpacked(item.summary), source=source),
        confidence_cap=item.confidence_cap,
    )


def _plain(value: Any) -> Any:
    """Give numpy's scalars and arrays as values that msgpack has."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a value of a report")
