"""Folders of our own that stay: the user's caches, the user's key, the work of a capture."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from .kinds import AnyPath, is_open_to_others, refuse_foreign_folder


def private_folder(path: AnyPath) -> Path:
    """A folder that only we may enter, made with those above it if it is not there.

    Raises NotAFileError for a link, PermissionError for a folder of another user.
    """
    folder = Path(path)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    refuse_foreign_folder(folder)
    if is_open_to_others(os.lstat(folder)):
        folder.chmod(0o700)  # ours, as we have just seen
    return folder


def user_cache() -> Path:
    """The folder of this user's caches, which may not be there yet: `$XDG_CACHE_HOME/profkit`.

    Raises FileNotFoundError where the user has no home.
    """
    return _users_folder("XDG_CACHE_HOME", ".cache")


def user_data() -> Path:
    """The folder of what this user keeps, which may not be there yet: `$XDG_DATA_HOME/profkit`.

    Raises FileNotFoundError where the user has no home.
    """
    return _users_folder("XDG_DATA_HOME", ".local/share")


def _users_folder(variable: str, default: str) -> Path:
    told = Path(os.environ.get(variable, ""))
    if told.is_absolute():
        return told / "profkit"
    try:
        return Path.home() / default / "profkit"
    except RuntimeError:
        raise FileNotFoundError(errno.ENOENT, "there is no home folder", "~") from None
