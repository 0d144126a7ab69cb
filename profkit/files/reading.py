"""Opening for reading: nothing is waited for, and a small file is read up to a bound."""

from __future__ import annotations

import errno
import io
import os
import stat

from .kinds import (
    ALWAYS,
    AT_ONCE,
    NO_LINK,
    AnyPath,
    is_open_to_others,
    refuse_foreign,
    refuse_outside,
    refuse_special,
)


class TooLargeError(OSError):
    """A file with more bytes than its reader has a use for."""


def open_file(path: AnyPath, *, follow: bool = True) -> io.BufferedReader:
    """A regular file, open for reading; never waits for anybody. A link to one is as good, if `follow`.

    Raises NotAFileError for what is none, OSError for what is missing, forbidden, or outside a folder that reading is
    confined to.
    """
    refuse_outside(path)
    # before it is opened, which alone may move a device; pathlib cannot in 3.9
    refuse_special(os.stat(path, follow_symlinks=follow), path)  # noqa: PTH116
    descriptor = os.open(path, os.O_RDONLY | AT_ONCE | ALWAYS | (0 if follow else NO_LINK))
    try:
        refuse_special(os.fstat(descriptor), path)  # another may have been put there meanwhile
        refuse_outside(path, descriptor)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_small(path: AnyPath, most_bytes: int, *, follow: bool = True) -> bytes:
    """The bytes of a file that has no reason to be large; raises TooLargeError for more than `most_bytes`."""
    with open_file(path, follow=follow) as file:
        return _bounded(file, path, most_bytes)


def read_own(path: AnyPath, most_bytes: int) -> bytes:
    """The bytes of a small file that only we can have written and only we may read, and no link to one.

    Raises PermissionError for another user's, and for one that others may read or write.
    """
    with open_file(path, follow=False) as file:
        found = os.fstat(file.fileno())
        refuse_foreign(found, path)
        if is_open_to_others(found):
            raise PermissionError(errno.EACCES, "others may read or write it", os.fspath(path))
        return _bounded(file, path, most_bytes)


def _bounded(file: io.BufferedReader, path: AnyPath, most_bytes: int) -> bytes:
    data = file.read(most_bytes + 1) or b""
    if len(data) > most_bytes:
        raise TooLargeError(errno.EFBIG, f"more than {size_of(most_bytes)}, which no such file has", os.fspath(path))
    return data


def read_head(path: AnyPath, n_bytes: int) -> bytes:
    """The first bytes of a file, fewer if it has fewer."""
    with open_file(path) as file:
        return file.read(n_bytes) or b""


def open_pipe(path: AnyPath) -> io.BufferedReader:
    """A named pipe, open for reading, as soon as there is somebody at its other end; or a regular file."""
    refuse_outside(path)
    file = open(path, "rb")  # noqa: SIM115, PTH123 - the caller's to close
    found = os.fstat(file.fileno())
    if not stat.S_ISFIFO(found.st_mode):
        try:
            refuse_special(found, path)
        except BaseException:
            file.close()
            raise
    return file


def size_of(n_bytes: int) -> str:
    """A size in whole units: `5 MiB`."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n_bytes >= 1 << shift:
            return f"{n_bytes >> shift} {unit}"
    return f"{n_bytes} bytes"
