"""The one place where a path is opened: what is read is a file with an end, what is written is whole or not there.

A folder of traces may have been filled by anybody, and the temporary folder is shared. So a device or a pipe among the
files is refused and not waited for, a small file is read up to a bound, no link is followed where something is
written, and a temporary folder belongs to us alone.

Everything raised is an OSError whose `strerror` says what is wrong in plain words. Standard library only, Python 3.9
syntax: `profkit.capture` loads this file by its path, in processes where profkit is not installed.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, Union

fcntl: Any
try:
    import fcntl
except ImportError:  # not on Windows: folders that are left there are removed by their age alone
    fcntl = None

AnyPath = Union[str, "os.PathLike[str]"]

TEMPORARY: Final = "profkit-"
"""How the names of our temporary folders begin."""
PART: Final = ".part"
"""How the names of files end that are not whole yet."""
STALE_S: Final = 3600.0
"""Age from which a temporary folder that nobody holds is removed: a new one is not locked at once."""

_OF_THE_SYSTEM: Final = ("/dev/", "/proc/")
_NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_ALWAYS: Final[int] = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOCTTY", 0)
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK | _ALWAYS
_AT_ONCE: Final[int] = getattr(os, "O_NONBLOCK", 0)
_MOST_LOOKED_AT: Final = 10_000  # entries of the temporary folder
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


class TooLargeError(OSError):
    """A file with more bytes than its reader has a use for."""


# --- reading


def open_file(path: AnyPath, *, follow: bool = True) -> io.BufferedReader:
    """Give a regular file, open for reading; never waits for anybody. A link to one is as good, if `follow`.

    Raises NotAFileError for what is none, OSError for what is missing or forbidden.
    """
    # before it is opened, which alone may move a device; pathlib cannot in 3.9
    _refuse_special(os.stat(path, follow_symlinks=follow), path)  # noqa: PTH116
    descriptor = os.open(path, os.O_RDONLY | _AT_ONCE | _ALWAYS | (0 if follow else _NO_LINK))
    try:
        _refuse_special(os.fstat(descriptor), path)  # another may have been put there meanwhile
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_small(path: AnyPath, most_bytes: int, *, follow: bool = True) -> bytes:
    """Give the bytes of a file that has no reason to be large; raises TooLargeError for more than `most_bytes`."""
    with open_file(path, follow=follow) as file:
        data = file.read(most_bytes + 1) or b""
    if len(data) > most_bytes:
        raise _too_large(path, most_bytes)
    return data


def _too_large(path: AnyPath, most_bytes: int) -> TooLargeError:
    return TooLargeError(errno.EFBIG, f"more than {size_of(most_bytes)}, which no such file has", os.fspath(path))


def read_own(path: AnyPath, most_bytes: int) -> bytes:
    """Give the bytes of a small file that only we can have written and only we may read, and no link to one.

    Raises PermissionError for another user's, and for one that others may read or write.
    """
    with open_file(path, follow=False) as file:
        found = os.fstat(file.fileno())
        _refuse_foreign(found, path)
        if hasattr(os, "getuid") and stat.S_IMODE(found.st_mode) & 0o077:
            raise PermissionError(errno.EACCES, "others may read or write it", os.fspath(path))
        data = file.read(most_bytes + 1) or b""
    if len(data) > most_bytes:
        raise _too_large(path, most_bytes)
    return data


def read_head(path: AnyPath, n_bytes: int) -> bytes:
    """Give the first bytes of a file, fewer if it has fewer."""
    with open_file(path) as file:
        return file.read(n_bytes) or b""


def open_pipe(path: AnyPath) -> io.BufferedReader:
    """Give a named pipe, open for reading, as soon as there is somebody at its other end; or a regular file."""
    file = open(path, "rb")  # noqa: SIM115, PTH123 - the caller's to close
    found = os.fstat(file.fileno())
    if not stat.S_ISFIFO(found.st_mode):
        try:
            _refuse_special(found, path)
        except BaseException:
            file.close()
            raise
    return file


def kind_of(mode: int) -> str:
    """Give what a path leads to where that is no regular file, by the mode that `stat` tells; "" for a file."""
    if stat.S_ISREG(mode):
        return ""
    return next((what for is_one, what in _KINDS if is_one(mode)), "no file")


def _refuse_special(found: os.stat_result, path: AnyPath) -> None:
    what = kind_of(found.st_mode)
    if what:
        raise NotAFileError(errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL, what, os.fspath(path))


def size_of(n_bytes: int) -> str:
    """Give a size in whole units: `5 MiB`."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n_bytes >= 1 << shift:
            return f"{n_bytes >> shift} {unit}"
    return f"{n_bytes} bytes"


# --- writing


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
    descriptor = os.open(name, os.O_WRONLY | os.O_APPEND | _ALWAYS | (0 if follow else _NO_LINK))
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def write_if_absent(path: AnyPath, data: bytes) -> None:
    """Write a file that only we may read, whole, unless there is one: of several processes one wins."""
    target = Path(path)
    partial = _beside(target)
    descriptor = os.open(partial, _NEW, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        try:
            os.link(partial, target)
        except FileExistsError:
            return
        except OSError:  # a file system without hard links
            partial.replace(target)
    finally:
        with suppress(OSError):
            partial.unlink()


@contextmanager
def replacing(path: AnyPath, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Give a new file that takes the place of `path` when the context ends well, and is gone when it does not.

    Until then it has a name that nobody can know before. A file that was there keeps its permissions; one that may not
    be written is not replaced. A link that was there is replaced itself, and what it led to stays as it is. A folder or
    a device is refused. `mode` is that of a file that was not there, less the umask.
    """
    target = Path(path)
    before = _replaceable(target)
    partial = _beside(target)
    descriptor = os.open(partial, _NEW, mode if before is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if before is not None and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), before)
            yield file
        partial.replace(target)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def _beside(target: Path) -> Path:
    """Give a name beside a file that nobody can know before."""
    return target.with_name(f".{target.name[:100]}.{os.urandom(8).hex()}{PART}")


def _replaceable(target: Path) -> int | None:
    """Give the permissions of the file at a place that is to be written, None if there is none or a link."""
    try:
        found = os.lstat(target)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        return None
    _refuse_special(found, target)
    if not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only", os.fspath(target))
    return stat.S_IMODE(found.st_mode) & 0o777


def open_to_append(path: AnyPath) -> int:
    """Give a descriptor to append to a file of our own, made if it is not there; a link is not followed.

    Raises NotAFileError for anything but a file of ours.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _AT_ONCE | _NO_LINK | _ALWAYS, 0o600)
    try:
        found = os.fstat(descriptor)
        _refuse_special(found, path)
        _refuse_foreign(found, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


# --- folders of our own


def private_folder(path: AnyPath) -> Path:
    """Give a folder that only we may enter, made with those above it if it is not there.

    Raises NotAFileError for a link, PermissionError for a folder of another user or one that others may enter.
    """
    folder = Path(path)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    refuse_foreign_folder(folder)
    if hasattr(os, "getuid") and stat.S_IMODE(os.lstat(folder).st_mode) & 0o077:
        folder.chmod(0o700)  # ours, as we have just seen
    return folder


def refuse_foreign_folder(folder: AnyPath) -> None:
    """Raise NotAFileError for what is no folder (a link to one is none), PermissionError for another user's."""
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise NotAFileError(errno.ENOTDIR, "no folder", os.fspath(folder))
    _refuse_foreign(found, folder)


def _refuse_foreign(found: os.stat_result, path: AnyPath) -> None:
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        raise PermissionError(errno.EACCES, "it belongs to another user", os.fspath(path))


def user_cache() -> Path:
    """Give the folder of this user's caches, which may not be there yet: `$XDG_CACHE_HOME/profkit`.

    Raises FileNotFoundError where the user has no home.
    """
    return _users_folder("XDG_CACHE_HOME", ".cache")


def user_data() -> Path:
    """Give the folder of what this user keeps, which may not be there yet: `$XDG_DATA_HOME/profkit`.

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


# --- temporary folders


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Give an empty folder that only we may enter, deleted with all in it when the context ends, and by SIGTERM."""
    from shutil import rmtree

    folder = new_temporary_folder(purpose)
    lock = _locked(folder)
    try:
        with _ended_by_signals(folder):
            yield folder
    finally:
        rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def new_temporary_folder(purpose: str) -> Path:
    """Give an empty folder that only we may enter, the caller's to delete; those of killed runs are removed first.

    Its name tells whose it is: `profkit-PURPOSE-PID-RANDOM`. Nobody can have put it there before.
    """
    import tempfile  # with shutil 10 ms, which who makes no folder need not pay

    remove_stale()
    return Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{purpose}-{os.getpid()}-"))  # 0700


def free_bytes(folder: AnyPath) -> int:
    """Give how much may still be written into a folder."""
    from shutil import disk_usage

    return disk_usage(folder).free


def remove_stale(older_than_s: float = STALE_S) -> None:
    """Remove our temporary folders of processes that are gone."""
    import tempfile

    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in islice(entries, _MOST_LOOKED_AT):
            if entry.name.startswith(TEMPORARY):
                with suppress(OSError):
                    _remove_if_stale(entry, older_than_s)


def _remove_if_stale(entry: os.DirEntry[str], older_than_s: float) -> None:
    pid = entry.name.rpartition("-")[0].rpartition("-")[2]
    found = entry.stat(follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or not pid.isdecimal() or time.time() - found.st_mtime < older_than_s:
        return
    _refuse_foreign(found, entry.path)
    if _is_alive(int(pid)):
        return
    lock = _locked(Path(entry.path))  # of another container nothing is known but that it holds this
    if lock is not None or fcntl is None:
        from shutil import rmtree

        rmtree(entry.path, ignore_errors=True)
    if lock is not None:
        os.close(lock)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's: not a folder of ours, then
        return True
    return True


def _locked(folder: Path) -> int | None:
    """Give a descriptor that holds a folder until it is closed or the process ends, None where another has it."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY | _NO_LINK | _ALWAYS)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def _ended_by_signals(folder: Path) -> Iterator[None]:
    """Delete a folder too when SIGTERM or SIGHUP ends the process, where nobody else has a use for these signals."""
    from shutil import rmtree  # not in a signal's handler, which may come in the middle of an import

    owner = os.getpid()
    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}

    def end(number: int, _frame: Any) -> None:
        if os.getpid() == owner:  # a forked child has this handler too, and no right to the folder
            rmtree(folder, ignore_errors=True)
        earlier = before[number]
        signal.signal(number, signal.SIG_DFL if earlier is None else earlier)
        os.kill(os.getpid(), number)

    taken = [number for number in numbers if before[number] == signal.SIG_DFL or _is_ours(before[number])]
    end.is_profkits = True  # type: ignore[attr-defined]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is end:
                signal.signal(number, before[number])


def _is_ours(handler: Any) -> bool:
    return bool(getattr(handler, "is_profkits", False))
