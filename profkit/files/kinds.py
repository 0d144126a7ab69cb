"""What a path leads to, whose it is, and where: anything but a regular file of the right owner is refused by name.

Reading can be kept below one folder, for a process that opens what others name.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Union

AnyPath = Union[str, "os.PathLike[str]"]

NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
"""Flag of `os.open`: a link is refused."""
ALWAYS: Final[int] = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
"""Flags of every `os.open` here: no child inherits the file, no byte is changed, no terminal becomes ours."""
AT_ONCE: Final[int] = getattr(os, "O_NONBLOCK", 0)
"""Flag of `os.open`: a pipe without anybody at its other end is not waited for."""

_KINDS: Final = (
    (stat.S_ISDIR, "a folder, not a file"),
    (stat.S_ISFIFO, "a named pipe, not a file"),
    (stat.S_ISCHR, "a device, not a file"),
    (stat.S_ISBLK, "a device, not a file"),
    (stat.S_ISSOCK, "a socket, not a file"),
    (stat.S_ISLNK, "a link, which is not followed here"),
)


class NotAFileError(OSError):
    """A path that leads to a folder, a pipe, a device or a socket, or a link where none is followed."""


def is_plain_file(path: AnyPath) -> bool:
    """Whether a path leads to a regular file; one that may not be looked at does not."""
    try:
        return Path(path).is_file()
    except OSError:  # of another user: /proc/1/cwd
        return False


def kind_of(mode: int) -> str:
    """What a path leads to where that is no regular file, by the mode that `stat` tells; "" for a file."""
    if stat.S_ISREG(mode):
        return ""
    return next((what for is_one, what in _KINDS if is_one(mode)), "no file")


def refuse_special(found: os.stat_result, path: AnyPath) -> None:
    """Raise NotAFileError for what is no regular file."""
    what = kind_of(found.st_mode)
    if what:
        raise NotAFileError(errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL, what, os.fspath(path))


def refuse_foreign(found: os.stat_result, path: AnyPath) -> None:
    """Raise PermissionError for what belongs to another user."""
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise PermissionError(errno.EACCES, "it belongs to another user", os.fspath(path))


def refuse_foreign_folder(folder: AnyPath) -> None:
    """Raise NotAFileError for what is no folder (a link to one is none), PermissionError for another user's."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise NotAFileError(errno.ENOTDIR, "no folder", os.fspath(folder))
    refuse_foreign(found, folder)


def is_open_to_others(found: os.stat_result) -> bool:
    """What others than its owner may read, write or enter; nothing is where there are no users."""
    return hasattr(os, "getuid") and bool(stat.S_IMODE(found.st_mode) & 0o077)


_below: list[str] = []  # real paths of folders; of the whole process, since a thread that reads ahead has no context


@contextmanager
def confined_to(folder: AnyPath) -> Iterator[None]:
    """Refuse, in all threads of the process, to open what does not lie below a folder, links followed."""
    _below.append(os.path.realpath(folder))
    try:
        yield
    finally:
        _below.pop()


def is_below(path: AnyPath, folder: AnyPath) -> bool:
    """Whether a path leads below a folder or to it, whatever links there are on the way; it need not exist."""
    real, top = os.path.realpath(path), os.path.realpath(folder)
    return real == top or real.startswith(top.rstrip(os.sep) + os.sep)


def refuse_outside(path: AnyPath, descriptor: int = -1) -> None:
    """Raise PermissionError for what lies outside the folder that reading is confined to; else nothing is looked at.

    `descriptor`: the file as it was opened, where the system tells its path: a link may have been moved meanwhile.
    """
    for folder in _below:
        opened = f"/proc/self/fd/{descriptor}"
        if not is_below(path, folder) or (os.path.islink(opened) and not is_below(opened, folder)):  # noqa: PTH114
            raise PermissionError(errno.EACCES, "it lies outside the folder that is read", os.fspath(path))
