"""Finished ranks kept in a folder, so that an interrupted run goes on where it stopped.

The folder is the user's own, never one beside the traces: whoever fills a folder of traces would say what is found in
them. A file of it is data, never code: a signature by a secret of the user, the key it was made for, and compressed
msgpack that is converted field by field. So a folder that others may write to, as one that several machines share, may
be named too.
What is damaged, forged, of another version or of other options is made again. The folder can be deleted at any time.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
import zlib
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit import files
from profkit.errors import ProfkitError
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.report import Verdict
from profkit.ranks.reduce.options import Options
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.reduce.records import TABLES, RankFacts, RankSummary
from profkit.redact import shown_url
from profkit.signing import FINISHED_RANKS, secret_for
from profkit.verdict import Case
from profkit.version import __version__

FOLDER: Final = "ranks"
"""The folder among the user's caches."""
SUFFIX: Final = ".rank"
MOST_BYTES: Final = 2 * 2**30
"""Kept in the user's folder; of more, those go that were not used for longest. Chosen: tens of thousands of ranks."""
MOST_OF_ONE: Final = 256 * 2**20
"""Bytes of one file; a rank of a hundred thousand collectives has a tenth of it."""
MOST_PLAIN_BYTES: Final = 2**30
"""Bytes that one file may become, decompressed. Chosen: four times those of the file."""
_LEFT_SHARE: Final = 0.75  # of the bound is left when ranks had to go, so that not every one that comes drives one out
_KEPT_BETWEEN_LOOKS: Final = 64
_DIGEST_BYTES: Final = 32  # of sha256


class PackedSummary(RankFacts, frozen=True, kw_only=True):
    """A summary as it is written: all that is no table, and of each column its type, its shape and its bytes."""

    columns: dict[str, tuple[str, tuple[int, ...], bytes]]

    @classmethod
    def of(cls, summary: RankSummary) -> PackedSummary:
        """The summary of a rank, packed."""
        columns = {
            f"{table}.{name}": (column.dtype.str, column.shape, column.tobytes())
            for table in TABLES
            for name, column in getattr(summary, table).columns().items()
        }
        return cls(**_facts(summary), columns=columns)

    def unpacked(self) -> RankSummary:
        """The summary back; raises KeyError, TypeError or ValueError for columns that are not those of one."""
        tables: dict[str, Any] = {
            table: kind(**{name: _column(*self.columns[f"{table}.{name}"]) for name in kind.__struct_fields__})
            for table, kind in TABLES.items()
        }
        return RankSummary(**_facts(self), **tables)


def _facts(known: RankFacts) -> dict[str, Any]:
    """All that is no table of a summary."""
    return {name: getattr(known, name) for name in RankFacts.__struct_fields__}


def _column(dtype: str, shape: tuple[int, ...], data: bytes) -> NDArray[Any]:
    if np.dtype(dtype).kind not in "iuf" or min(shape, default=0) < 0:
        raise ValueError(f"a column of {dtype}, {shape}")
    return np.frombuffer(data, dtype).reshape(shape)


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One outcome as it is written."""

    report: RankReport
    verdict: Verdict
    case: Case
    confidence_cap: float
    summary: PackedSummary


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What an outcome depends on: bytes and name of the source, the code that reads them, the options."""

    content: bytes
    settings: bytes

    @property
    def whole(self) -> bytes:
        """SHA-256 of content and settings together."""
        return hashlib.sha256(self.content + self.settings).digest()


def key_of(content: bytes, options: Options, *, named_rank: int = -1) -> Key:
    """The key of a source by the digest of its bytes and the rank that its name tells, -1 for none."""
    settings = repr((__version__, code_digest().hex(), options, named_rank))
    return Key(content=content, settings=hashlib.sha256(settings.encode()).digest())


def content_digest(path: Path) -> bytes:
    """The digest of a file as it lies on disk: compressed bytes; raises OSError.

    Of a regular file only: a pipe can be read once, and not for this.
    """
    with files.open_file(path) as raw:
        return hashlib.file_digest(raw, "sha256").digest()


@cache
def code_digest() -> bytes:
    """The digest of profkit's own modules: a checkout changes while its version does not."""
    digest = hashlib.sha256()
    root = Path(str(resources.files("profkit")))
    for path in sorted([*root.rglob("*.py"), *root.rglob("*.tsv")]):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.digest()


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of finished ranks, and the secret by which is known what we have put there ourselves."""

    folder: Path
    secret: bytes

    def place_of(self, source: str, key: Key) -> Path:
        """The file for a source: one for each content and name, whatever the options; its own name tells neither.

        Of an address the query is left out, for it may carry a signature that is another every day.
        """
        name = source.partition("?")[0].rpartition("/")[2]
        told = hmac.digest(self.secret, key.content + name.encode(errors="surrogateescape"), "sha256")
        return self.folder / f"{told.hex()[:32]}{SUFFIX}"

    def kept(self, source: str, key: Key) -> tuple[Outcome, ...] | None:
        """The outcomes kept under a key, with the source's present name; None where there are none that hold."""
        place = self.place_of(source, key)
        try:
            data = files.read_small(place, MOST_OF_ONE, follow=False)
            mark, head, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES : 2 * _DIGEST_BYTES], data[2 * _DIGEST_BYTES :]
            if head != key.whole or not hmac.compare_digest(mark, self._mark(key, body)):
                return None
            items = msgspec.msgpack.decode(_plain_bytes(body), type=tuple[_Kept, ...])
            outcomes = tuple(_outcome(item, source) for item in items)
        except (OSError, msgspec.MsgspecError, ProfkitError, zlib.error, ValueError, KeyError, TypeError):
            return None
        with suppress(OSError):
            os.utime(place)  # what is used goes last
        return outcomes

    def keep(self, source: str, key: Key, outcomes: tuple[Outcome, ...]) -> bool:
        """Write outcomes, whole or not at all; False where the folder cannot be written, which is no error."""
        plain = msgspec.msgpack.encode(tuple(map(_item, outcomes)), enc_hook=_plain)
        body = zlib.compress(plain)
        if len(plain) > MOST_PLAIN_BYTES or len(body) + 2 * _DIGEST_BYTES > MOST_OF_ONE:
            return False
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            data = self._mark(key, body) + key.whole + body
            files.write_whole(self.place_of(source, key), data, mode=0o600)
        except OSError:
            return False
        _tidied(self.folder)
        return True

    def _mark(self, key: Key, body: bytes) -> bytes:
        return hmac.digest(self.secret, key.whole + body, "sha256")


def store_of(folder: str | None, secret: bytes = b"") -> Store | None:
    """The store in a folder, this user's own if that is None; None where there is no place for a secret.

    `secret` is given where the user is at another machine than the one that keeps.
    """
    try:
        return Store(
            folder=users_folder() if folder is None else Path(folder), secret=secret or secret_for(FINISHED_RANKS)
        )
    except OSError:
        return None


def users_folder() -> Path:
    """The folder of this user's finished ranks, which may not be there yet; raises OSError without a home."""
    return files.private_folder(files.user_cache()) / FOLDER


_n_kept = 0


def _tidied(folder: Path) -> None:
    """Delete the ranks that were not used for longest from the user's folder, where it holds too much.

    A folder that was named is the user's to tidy.
    """
    global _n_kept  # noqa: PLW0603 - a folder of thousands is not to be looked through for each rank
    _n_kept += 1
    if _n_kept % _KEPT_BETWEEN_LOOKS != 1:
        return
    with suppress(OSError):
        if folder == users_folder():
            _tidy(folder)


def _tidy(folder: Path) -> None:
    now = time.time()
    found: list[tuple[float, int, str]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            told = entry.stat(follow_symlinks=False)
            if entry.name.endswith(SUFFIX):
                found.append((told.st_mtime, told.st_size, entry.path))
            elif entry.name.endswith(files.PART) and now - told.st_mtime > files.STALE_S:
                Path(entry.path).unlink(missing_ok=True)  # of a run that was killed
    n_bytes = sum(size for _, size, _ in found)
    is_over = n_bytes > MOST_BYTES
    for _, size, path in sorted(found):
        if not is_over or n_bytes <= _LEFT_SHARE * MOST_BYTES:
            return
        Path(path).unlink(missing_ok=True)
        n_bytes -= size


def _plain_bytes(body: bytes) -> bytes:
    """The bytes, decompressed; raises ValueError for more than may be and for a stream that does not end."""
    stream = zlib.decompressobj()
    plain = stream.decompress(body, MOST_PLAIN_BYTES)
    if not stream.eof:
        raise ValueError(f"more than {MOST_PLAIN_BYTES >> 20} MiB, or cut")
    return plain


def _item(outcome: Outcome) -> _Kept:
    """An outcome as it is written: without the name of its source, which may be an address with a signature."""
    return _Kept(
        report=replace(outcome.report, source=""),
        verdict=replace(outcome.verdict, source=""),
        case=replace(outcome.case, source=""),
        confidence_cap=outcome.confidence_cap,
        summary=PackedSummary.of(replace(outcome.summary, source="")),
    )


def _outcome(item: _Kept, source: str) -> Outcome:
    source = shown_url(source)
    report, verdict = replace(item.report, source=source), replace(item.verdict, source=source)
    return Outcome(
        report=report,
        verdict=verdict,
        case=replace(item.case, source=source),
        summary=replace(item.summary.unpacked(), source=source),
        confidence_cap=item.confidence_cap,
    )


def _plain(value: Any) -> Any:
    """Numpy's scalars and arrays as values that msgpack has."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a value of a report")
