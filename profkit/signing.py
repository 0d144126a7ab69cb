"""What this user's own profkit wrote, told from what anybody could have written.

A trace says which command it was recorded with, and reports repeat that command in the next one to run. A stranger's
trace can say anything there. So a capture puts a mark beside the command, made with a key that only this user has, and
a report repeats the command where the mark holds. Finished ranks are signed in the same way. The key is made when
something is first signed; it lies in `$XDG_DATA_HOME/profkit/key` (`~/.local/share/profkit/key`) and goes to no other
machine: each purpose has a secret of its own that is derived from it.
"""

from __future__ import annotations

import errno
import hmac
import os
from pathlib import Path
from typing import Final

from profkit import files

COMMAND: Final = b"recorded command"
FINISHED_RANKS: Final = b"finished ranks"
_KEY_BYTES: Final = 32


def secret_for(purpose: bytes) -> bytes:
    """The user's secret for one purpose, made at first use.

    Raises OSError where no key can be kept, and where others may know the one that is there.
    """
    place = _place()
    files.private_folder(place.parent)
    if not os.path.lexists(place):
        files.write_if_absent(place, os.urandom(_KEY_BYTES))
    return _derived(place, purpose)


def mark_of(purpose: bytes, data: bytes) -> str:
    """Mark of these bytes; "" where no key can be kept."""
    try:
        return _mark(secret_for(purpose), data)
    except OSError:
        return ""


def holds(purpose: bytes, data: bytes, mark: object) -> bool:
    """Whether this user's profkit made the mark for these bytes. Makes no key."""
    if not isinstance(mark, str) or not mark.isascii():
        return False
    try:
        place = _place()
        files.refuse_foreign_folder(place.parent)
        return hmac.compare_digest(_mark(_derived(place, purpose), data), mark)
    except OSError:
        return False


def _mark(secret: bytes, data: bytes) -> str:
    return hmac.digest(secret, data, "sha256").hex()


def _derived(place: Path, purpose: bytes) -> bytes:
    key = files.read_own(place, _KEY_BYTES)
    if len(key) != _KEY_BYTES:
        raise OSError(errno.EINVAL, "it is not as profkit wrote it: delete it", str(place))
    return hmac.digest(key, purpose, "sha256")


def _place() -> Path:
    """Where the key lies, or would; raises OSError without a home."""
    return files.user_data() / "key"
