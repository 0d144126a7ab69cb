"""Writing: a file is there whole or not at all, and no link is written through."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from .kinds import ALWAYS, AT_ONCE, NO_LINK, AnyPath, refuse_foreign, refuse_special

PART: Final = ".part"
"""How the names of files end that are not whole yet."""

_OF_THE_SYSTEM: Final = ("/dev/", "/proc/")
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | ALWAYS


def write_whole(path: AnyPath, data: bytes, *, mode: int = 0o666) -> None:
    """Write a file, whole or not at all; see `replacing`."""
    with replacing(path, mode=mode) as file:
        file.write(data)


def write_out(path: AnyPath, data: bytes) -> None:
    """Write what somebody asked for to the place they named: into a device or a pipe, else a file; see `replacing`.

    Of links only the system's own are followed (`/dev/stderr`).
    """
    name = os.path.abspath(path)  # noqa: PTH100 - not resolved: of links is told below which are followed
    follow = name.startswith(_OF_THE_SYSTEM)
    try:
        mode = os.stat(name, follow_symlinks=follow).st_mode  # noqa: PTH116 - as in open_file
    except FileNotFoundError:
        mode = 0
    if not (stat.S_ISCHR(mode) or stat.S_ISFIFO(mode) or (follow and mode)):
        write_whole(path, data)
        return
    descriptor = os.open(name, os.O_WRONLY | os.O_APPEND | ALWAYS | (0 if follow else NO_LINK))
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def write_if_absent(path: AnyPath, data: bytes) -> None:
    """Write a file that only we may read, whole, unless there is one: of several processes one wins."""
    target = Path(path)
    with _partial(target, 0o600) as (partial, descriptor):
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        try:
            os.link(partial, target)
        except FileExistsError:
            return
        except OSError:  # a file system without hard links
            partial.replace(target)


@contextmanager
def replacing(path: AnyPath, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A new file that takes the place of `path` when the context ends well, and is gone when it does not.

    Until then it has a name that nobody can know before. A file that was there keeps its permissions; one that may not
    be written is not replaced. A link that was there is replaced itself, and what it led to stays as it is. A folder or
    a device is refused. `mode` is that of a file that was not there, less the umask.
    """
    target = Path(path)
    before = _replaceable(target)
    with _partial(target, mode if before is None else 0o600) as (partial, descriptor):
        with os.fdopen(descriptor, "wb") as file:
            if before is not None and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), before)
            yield file
        partial.replace(target)


@contextmanager
def _partial(target: Path, mode: int) -> Iterator[tuple[Path, int]]:
    """A new file beside another, and a descriptor to close; if it is not renamed, it is gone in the end."""
    partial = target.with_name(f".{target.name[:100]}.{os.urandom(8).hex()}{PART}")
    descriptor = os.open(partial, _NEW, mode)
    try:
        yield partial, descriptor
    finally:
        with suppress(OSError):
            partial.unlink()


def _replaceable(target: Path) -> int | None:
    """The permissions of the file at a place that is to be written, None if there is none or a link."""
    try:
        found = os.lstat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        return None
    refuse_special(found, target)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only", os.fspath(target))
    return stat.S_IMODE(found.st_mode) & 0o777


def open_to_append(path: AnyPath) -> int:
    """A descriptor to append to a file of our own, made if it is not there; a link is not followed.

    Raises NotAFileError for anything but a file, PermissionError for another user's.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | AT_ONCE | NO_LINK | ALWAYS, 0o600)
    try:
        found = os.fstat(descriptor)
        refuse_special(found, path)
        refuse_foreign(found, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
