"""What this user's own profkit wrote, told from what anybody could have written.

A trace says which command it was recorded with, and reports repeat that command in the next one to run. A stranger's
trace can say anything there. So a capture puts a mark beside the command, made with a key that only this user has, and
a report repeats the command where the mark holds. The key is made at the first capture and lies in
`$XDG_DATA_HOME/profkit/key` (`~/.local/share/profkit/key`).
"""

from __future__ import annotations

import hmac
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from profkit import files

COMMAND: Final = b"profkit command"
"""Purpose of a mark: of one made for a command nothing else can be signed."""
_KEY_BYTES: Final = 32


def mark_of(purpose: bytes, data: bytes) -> str:
    """Mark of these bytes for one purpose; the key is made where there is none. "" where no key can be kept."""
    key = _key() or _new_key()
    return _mark(key, purpose, data) if key else ""


def holds(purpose: bytes, data: bytes, mark: object) -> bool:
    """Whether this user's profkit made the mark for these bytes."""
    if not isinstance(mark, str) or not mark.isascii():
        return False
    key = _key()
    return key is not None and hmac.compare_digest(_mark(key, purpose, data), mark)


def _mark(key: bytes, purpose: bytes, data: bytes) -> str:
    return hmac.new(key, purpose + b"\0" + data, "sha256").hexdigest()


def _place() -> Path | None:
    told = Path(os.environ.get("XDG_DATA_HOME", ""))
    try:
        return (told if told.is_absolute() else Path.home() / ".local" / "share") / "profkit" / "key"
    except RuntimeError:  # no home
        return None


def _key() -> bytes | None:
    """The key, if there is one that nobody else could have written or read."""
    place = _place()
    if place is None:
        return None
    try:
        files.refuse_foreign_folder(place.parent)
        with files.open_file(place, follow=False) as file:
            found = os.fstat(file.fileno())
            if hasattr(os, "getuid") and (found.st_uid != os.getuid() or found.st_mode & 0o077):
                return None
            key = file.read(_KEY_BYTES + 1)
    except OSError:
        return None
    return key if len(key) == _KEY_BYTES else None


def _new_key() -> bytes | None:
    """A new key, or the one that another process has made meanwhile; None where none can be kept."""
    place = _place()
    if place is None:
        return None
    draft = place.with_name(f".{os.urandom(8).hex()}")
    try:
        files.private_folder(place.parent)
        files.write_whole(draft, os.urandom(_KEY_BYTES), mode=0o600)
        with suppress(FileExistsError):
            os.link(draft, place, follow_symlinks=False)  # unlike a move it never takes the place of a key in use
    except OSError:
        return None
    finally:
        with suppress(OSError):
            draft.unlink()
    return _key()
