"""Folders that stay what they were found to be, though others may put something else in their places meanwhile.

Who can write into the folder above may exchange one by a link at any time. So a folder is known by its number in the
file system, and what is done in it is done through a descriptor. Runs in the traced process too: standard library
only, Python 3.9 syntax.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Union

from .beside import files

AnyPath = Union[str, "os.PathLike[str]"]
Identity = tuple[int, int]

_ALWAYS: Final[int] = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
OPEN_FOLDER: Final[int] = _ALWAYS | getattr(os, "O_NONBLOCK", 0)
"""To open a folder; a pipe that lies there instead is not waited for."""
_NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_DESCRIPTORS: Final = Path("/proc/self/fd")


def identity_of(found: os.stat_result) -> Identity:
    """What tells a file or folder from every other that is there at the same time."""
    return found.st_dev, found.st_ino


def opens_folders() -> bool:
    """Whether this system has descriptors of folders, and takes names relative to them."""
    return os.open in os.supports_dir_fd and os.listdir in os.supports_fd


def close(descriptor: int, identity: Identity) -> None:
    """Close a descriptor, unless the script has done so and its number is another's by now."""
    with suppress(OSError):
        if identity_of(os.fstat(descriptor)) == identity:
            os.close(descriptor)


@contextmanager
def opened(
    path: AnyPath, identity: Identity | None = None, *, follow: bool = False, dir_fd: int | None = None
) -> Iterator[int]:
    """A descriptor of a folder. Raises PermissionError where it is not the one of this identity, OSError."""
    descriptor = os.open(path, OPEN_FOLDER | (0 if follow else _NO_LINK), dir_fd=dir_fd)
    found = identity_of(os.fstat(descriptor))
    try:
        refuse_other(found, identity, path)
        yield descriptor
    finally:
        close(descriptor, found)


@contextmanager
def pinned(path: AnyPath, identity: Identity | None = None, *, follow: bool = False) -> Iterator[Path]:
    """A name of a folder that leads to this one alone, until the context ends, where the system has such names.

    Elsewhere its own name, looked at now. Raises PermissionError where it is not the one of this identity, OSError
    where it is no folder, or is a link that is not to be followed. Errors from inside are told with its own name.
    """
    if not opens_folders():
        found = os.stat(path, follow_symlinks=follow)  # noqa: PTH116 - pathlib cannot in 3.9
        if not stat.S_ISDIR(found.st_mode):
            raise files().NotAFileError(errno.ENOTDIR, "no folder", os.fspath(path))
        refuse_other(identity_of(found), identity, path)
        yield Path(path)
        return
    with opened(path, identity, follow=follow) as descriptor:
        name = name_of(descriptor, path)
        try:
            yield name
        except OSError as error:
            error.filename = _as_known(error.filename, name, path)
            error.filename2 = _as_known(error.filename2, name, path)
            raise


def name_of(descriptor: int, path: AnyPath) -> Path:
    """The name that leads to what a descriptor is of, whatever lies at its path; its path where there is none."""
    name = _DESCRIPTORS / str(descriptor)
    with suppress(OSError):
        if identity_of(os.stat(name)) == identity_of(os.fstat(descriptor)):  # noqa: PTH116 - as above
            return name
    return Path(path)


def refuse_other(found: Identity, identity: Identity | None, path: AnyPath) -> None:
    """Raise PermissionError where what was found is not what has this identity."""
    if identity is not None and found != identity:
        raise PermissionError(errno.EACCES, "somebody has put another in its place", os.fspath(path))


def _as_known(name: object, pin: Path, path: AnyPath) -> str | None:
    """The name of a file as a reader knows it, where it was reached through the descriptor."""
    if name is None:
        return None
    text = str(name)
    return os.fspath(path) + text[len(str(pin)) :] if (text + "/").startswith(f"{pin}/") else text
