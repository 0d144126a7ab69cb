"""Where a capture keeps its files until they are traces: a folder of its own, held by everyone who is part of it.

`DIR/.profkit/<capture id>` lies inside the folder of the traces, so what another capture left there is never taken for
this one's. A file in it is locked, shared, by the runner and by each process that is captured. The system frees the
lock however a process ends: while anybody has it, the capture is running; when nobody has, it is over or was killed.

Runs in the traced process too: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Union

from .beside import files

try:
    import fcntl
except ImportError:  # not on Windows: there every capture that has not tidied up counts as running
    fcntl = None  # type: ignore[assignment]

WORK_FOLDER: Final = ".profkit"
LEFT_FOLDER: Final = ".profkit-left"
"""Where the recordings of killed captures are moved to, each into a folder named after its capture."""
RAW: Final = ".raw"

_LOCK: Final = "lock"
_CAPTURE_ID: Final = re.compile(r"[0-9a-f]{32}")
_FETCHES: Final = "fetches"
_OPEN: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER: Final = (
    os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)
_WAIT_S: Final = 2.0
"""Longest wait for another process that changes the same folder; each does so for milliseconds (chosen)."""
_NEW_S: Final = 60.0
"""Age up to which a work folder without a lock file may be one that is being made."""

AnyPath = Union[str, "os.PathLike[str]"]


def work_folder(folder: AnyPath, capture_id: str) -> Path:
    """Give the folder for what is not yet a trace."""
    return Path(folder) / WORK_FOLDER / (capture_id or "none")


class Hold:
    """A part in a capture: the lock on its work folder, shared with the others who are part of it."""

    def __init__(self, folder: AnyPath, capture_id: str, descriptor: int) -> None:
        self.folder = Path(folder)
        self.capture_id = capture_id
        self._descriptor = descriptor
        self._identity = _identity(os.lstat(self.work))
        self._inode = os.fstat(descriptor).st_ino if descriptor >= 0 else 0

    @property
    def work(self) -> Path:
        """The work folder."""
        return work_folder(self.folder, self.capture_id)

    @contextmanager
    def hidden_folder(self) -> Iterator[Path]:
        """Give a new folder in the work folder whose name nobody can know; what is in it at the end is moved up.

        For what others write by a path, as the profiler its export: whoever owns a folder above can put another work
        folder in the place of ours, with links in it, but has no name for one. Raises PermissionError if one has.
        """
        work = os.open(self.work, _FOLDER)
        try:
            if _identity(os.fstat(work)) != self._identity:
                raise PermissionError(errno.EACCES, "somebody has put another in its place", str(self.work))
            name = os.urandom(16).hex()
            os.mkdir(name, 0o700, dir_fd=work)
            inside = os.open(name, _FOLDER, dir_fd=work)
            try:
                yield self.work / name
                for entry in os.listdir(inside):  # noqa: PTH208 - of a descriptor
                    os.rename(entry, entry, src_dir_fd=inside, dst_dir_fd=work)
            finally:
                os.close(inside)
                with suppress(OSError):  # what could not be moved goes with the work folder
                    os.rmdir(name, dir_fd=work)
        finally:
            os.close(work)

    def release(self) -> None:
        """Have no part in it any more; in a forked child this leaves the parent its own."""
        descriptor, self._descriptor = self._descriptor, -1
        with suppress(OSError):
            if descriptor >= 0 and os.fstat(descriptor).st_ino == self._inode:  # else the script closed it: not ours
                os.close(descriptor)


def join(folder: AnyPath, capture_id: str, *, is_first: bool = False) -> Hold:
    """Give a part in a capture, whose work folder is made if it is not there.

    `is_first` where the capture begins: raises BlockingIOError if another one runs in this folder. Raises OSError where
    nothing can be written, NotAFileError or PermissionError where somebody else has put something in the way.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    work = work_folder(folder, capture_id)
    with alone(folder):
        if is_first and _is_busy(folder):
            raise BlockingIOError(errno.EAGAIN, "another capture is writing into it", str(folder))
        with tempfile.TemporaryFile(dir=folder) as mine:  # not getuid(): a network folder may know us by another number
            owner = os.fstat(mine.fileno()).st_uid
        for path, mode in ((work.parent, 0o755), (work, 0o700)):
            with suppress(FileExistsError):
                path.mkdir(mode=mode)
            _refuse_foreign(path, owner)
        return Hold(folder, capture_id, _shared_lock(work))


def _refuse_foreign(path: Path, owner: int) -> None:
    """Raise for what is no folder of ours: others could exchange what we write into it."""
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode):
        raise files().NotAFileError(errno.ENOTDIR, "no folder", str(path))
    if found.st_uid != owner:
        raise PermissionError(errno.EACCES, "it belongs to another user", str(path))
    if found.st_mode & stat.S_IWOTH:
        raise PermissionError(errno.EACCES, "anybody may write into it", str(path))


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def leave(hold: Hold) -> None:
    """End a part in a capture; what was only needed to put the traces together goes with the last one.

    An export of which no trace could be made stays.
    """
    hold.release()
    with suppress(OSError), alone(hold.folder), _nobodys(hold.work):
        remove_fetches(hold.capture_id)
        if not any(hold.work.glob(f"*{RAW}")):
            shutil.rmtree(hold.work, ignore_errors=True)
    with suppress(OSError):
        hold.work.parent.rmdir()


def is_busy(folder: AnyPath) -> bool:
    """Whether a capture is running in this folder; one of which that cannot be told counts as running."""
    with alone(folder):
        return _is_busy(folder)


def _is_busy(folder: AnyPath) -> bool:
    for work in _works(folder):
        try:
            with _nobodys(work):
                pass
        except FileNotFoundError:
            continue
        except OSError:
            return True
    return False


def set_aside(folder: AnyPath) -> list[Path]:
    """Move what killed captures have recorded out of the way, and give the folders where it is now.

    What a capture leaves that was killed before it had recorded anything, or that has written its traces, is removed.
    """
    if not _works(folder):
        return []
    moved: list[Path] = []
    with alone(folder):
        for work in _works(folder):
            with suppress(OSError), _nobodys(work):
                remove_fetches(work.name)
                if not any(work.glob(f"*{RAW}")):
                    shutil.rmtree(work, ignore_errors=True)
                    continue
                target = Path(folder) / LEFT_FOLDER / work.name
                with suppress(FileExistsError):
                    target.parent.mkdir()
                files().refuse_foreign_folder(target.parent)
                work.rename(target)
                moved.append(target)
    with suppress(OSError):
        (Path(folder) / WORK_FOLDER).rmdir()
    return moved


def _works(folder: AnyPath) -> list[Path]:
    """Give the work folders that lie here, of whatever captures."""
    base = Path(folder) / WORK_FOLDER
    try:
        if not stat.S_ISDIR(os.lstat(base).st_mode):  # a link leads to what is not ours
            return []
        with os.scandir(base) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [base / name for name in sorted(names) if _CAPTURE_ID.fullmatch(name)]


# --- locks


@contextmanager
def alone(folder: AnyPath) -> Iterator[None]:
    """Change what lies in the folder while no other capture does; where that cannot be had in time, without it."""
    descriptor = -1
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        if descriptor >= 0 and fcntl is not None:
            _lock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _shared_lock(work: Path) -> int:
    """Give a descriptor that holds a work folder, one that holds nothing where the file system has no locks."""
    descriptor = os.open(work / _LOCK, _OPEN, 0o600)
    if fcntl is not None:
        _lock(descriptor, fcntl.LOCK_SH)
    return descriptor


def _lock(descriptor: int, kind: int) -> None:
    """Lock, or go without where the file system cannot or another process does not let go."""
    until = time.monotonic() + _WAIT_S
    while time.monotonic() < until:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01)
        except OSError:
            return
        else:
            return


@contextmanager
def _nobodys(work: Path) -> Iterator[None]:
    """Hold a work folder that nobody else has a part in; raises BlockingIOError if somebody has, OSError if unknown."""
    if fcntl is None:
        raise BlockingIOError(errno.ENOSYS, "no locks here", str(work))
    try:
        descriptor = os.open(work / _LOCK, _OPEN & ~os.O_CREAT)
    except FileNotFoundError:
        if time.time() - os.lstat(work).st_mtime < _NEW_S:
            raise BlockingIOError(errno.EAGAIN, "it is being made", str(work)) from None
        yield
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


# --- the workers' fetches, in the temporary folder: they are written while steps are recorded, and a disk is near


def fetch_folder(process: int, capture_id: str) -> Path:
    """Give the folder of a process's fetches; workers find their parent's by it, forked or spawned."""
    return Path(tempfile.gettempdir()) / f"{files().TEMPORARY}{_FETCHES}-{process}-{capture_id}"


def remove_fetches(capture_id: str) -> None:
    """Remove the fetches that killed processes of a capture left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{files().TEMPORARY}{_FETCHES}-*-{capture_id}"):
        with suppress(OSError):
            files().refuse_foreign_folder(folder)
            shutil.rmtree(folder, ignore_errors=True)
