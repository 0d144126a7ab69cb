"""Where a capture keeps its files until they are traces: a folder of its own, held by everyone who is part of it.

`DIR/.profkit/<capture id>` lies inside the folder of the traces, so what another capture left there is never taken for
this one's. A file in it is locked, shared, by the runner and by each process that is captured. The system frees the
lock however a process ends: while anybody has it, the capture is running; when nobody has, it is over or was killed.

Runs in the traced process too: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final, Union

from .beside import files

try:
    import fcntl
except ImportError:  # not on Windows: there every capture that has not tidied up counts as running
    fcntl = None  # type: ignore[assignment]

AnyPath = Union[str, "os.PathLike[str]"]
Identity = tuple[int, int]

_ALWAYS: Final[int] = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
OPEN_FOLDER: Final[int] = _ALWAYS | getattr(os, "O_NONBLOCK", 0)
"""To open a folder; a pipe that lies there instead is not waited for."""
_NO_LINK: Final[int] = getattr(os, "O_NOFOLLOW", 0)
_DESCRIPTORS: Final = Path("/proc/self/fd")

WORK_FOLDER: Final = ".profkit"
LEFT_FOLDER: Final = ".profkit-left"
"""Where the recordings of killed captures are moved to, each into a folder named after its capture."""
RAW: Final = ".raw"
PLACES: Final = ".places"
"""What comes between the name of a process and the end of a file's name for what its second window recorded."""

FOREIGN_LINK: Final = "it is a link that another user has made"
_LOCK: Final = "lock"
_BOOT: Final = "/proc/sys/kernel/random/boot_id"
_PID_SPACE: Final = "/proc/self/ns/pid"
_CAPTURE_ID: Final = re.compile(r"[0-9a-f]{32}")
_FETCHES: Final = "fetches"
_OPEN: Final = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_WAIT_S: Final = 2.0
"""Longest wait for another process that changes the same folder; each does so for milliseconds (chosen)."""
_NEW_S: Final = 60.0
"""Age up to which a work folder without a lock file may be one that is being made."""


def work_folder(folder: AnyPath, capture_id: str) -> Path:
    """The folder for what is not yet a trace."""
    return Path(folder) / WORK_FOLDER / (capture_id or "none")


def process_name(process: int) -> str:
    """The name in file names of the process with this id here: none of another machine or container has it.

    Ranks in several containers share the folder of a capture, and may share a process id as well.
    """
    return f"{process}-{_space()}"


@cache
def _space() -> str:
    """What tells the processes that count their ids with this one from all others, eight digits."""
    parts = [platform.node(), machine()]
    with suppress(OSError):
        parts.append(os.readlink(_PID_SPACE))  # noqa: PTH115 - no path: the number of a namespace
    return hashlib.sha256("\n".join(parts).encode(errors="replace")).hexdigest()[:8]


def machine() -> str:
    """What tells this machine from others since it was started; "" where nothing does."""
    with suppress(OSError):
        return str(files().read_small(_BOOT, 64).decode(errors="replace").strip())
    return ""


class Hold:
    """A part in a capture: the lock on its work folder, shared with the others who are part of it.

    `outer` and `inner` tell the folder of the traces and the work folder from others that are put in their places.
    """

    def __init__(self, folder: Path, capture_id: str, descriptor: int, *, outer: Identity, inner: Identity) -> None:
        self.folder = folder
        self.capture_id = capture_id
        self._descriptor = descriptor
        self._lock = identity_of(os.fstat(descriptor))
        self.outer, self.inner = outer, inner
        _PARTS.append(self)

    @property
    def work(self) -> Path:
        """The work folder."""
        return work_folder(self.folder, self.capture_id)

    def pinned_work(self) -> AbstractContextManager[Path]:
        """A name of the work folder that leads to it alone; PermissionError where another lies in its place."""
        return pinned(self.work, self.inner)

    def pinned_folder(self) -> AbstractContextManager[Path]:
        """A name of the folder of the traces in the same way."""
        return pinned(self.folder, self.outer, follow=True)

    @contextmanager
    def hidden_folder(self) -> Iterator[Path]:
        """A new folder in the work folder whose name nobody can know; what is in it at the end is moved up.

        For what others write by a path, as the profiler its export: whoever owns a folder above can put another work
        folder in the place of ours, with links in it, but has no name for one. Raises PermissionError if one has.
        What is in it when something fails is removed at once: the script may need the disk.
        """
        name = os.urandom(16).hex()
        if not opens_folders():
            with self.pinned_work() as work:
                yield from _hidden_by_name(work, name)
            return
        with opened(self.work, self.inner) as work:
            os.mkdir(name, 0o700, dir_fd=work)
            with opened(name, dir_fd=work) as inside:
                try:
                    yield name_of(inside, self.work / name)
                    for entry in os.listdir(inside):  # noqa: PTH208 - of a descriptor
                        os.rename(entry, entry, src_dir_fd=inside, dst_dir_fd=work)
                finally:
                    with suppress(OSError):
                        for entry in os.listdir(inside):  # noqa: PTH208 - of a descriptor
                            os.unlink(entry, dir_fd=inside)
                        os.rmdir(name, dir_fd=work)

    def release(self) -> None:
        """Have no part in it any more; in a forked child this leaves the parent its own."""
        if self in _PARTS:
            _PARTS.remove(self)
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            close(descriptor, self._lock)


_PARTS: Final[list[Hold]] = []
"""The parts that this process has in captures."""


def _hidden_by_name(work: Path, name: str) -> Iterator[Path]:
    folder = work / name
    folder.mkdir(mode=0o700)
    try:
        yield folder
        for path in folder.iterdir():
            path.replace(work / path.name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def part_in(folder: AnyPath, capture_id: str) -> Hold:
    """The part of this process in a capture; raises FileNotFoundError where it has none."""
    folder = Path(folder).absolute()
    for hold in _PARTS:
        if (hold.folder, hold.capture_id) == (folder, capture_id):
            return hold
    raise FileNotFoundError(errno.ENOENT, "this process has no part in the capture", str(folder))


def join(folder: AnyPath, capture_id: str, *, is_first: bool = False) -> Hold:
    """A part in a capture, whose work folder is made if it is not there.

    `is_first` where the capture begins: raises BlockingIOError if another one runs in this folder. Raises OSError where
    nothing can be written, NotAFileError or PermissionError where somebody else has put something in the way.
    """
    folder = Path(folder).absolute()  # the script may go elsewhere
    folder.mkdir(parents=True, exist_ok=True)
    if is_foreign_link(folder):
        raise PermissionError(errno.EACCES, FOREIGN_LINK, str(folder))
    with alone(folder), pinned(folder, follow=True) as at:
        if is_first and _is_busy(at):
            raise BlockingIOError(errno.EAGAIN, "another capture is writing into it", str(folder))
        owner = _owner(at)
        with _own(at / WORK_FOLDER, owner, mode=0o755) as base, _own(base / (capture_id or "none"), owner) as work:
            outer, inner = identity_of(at.stat()), identity_of(work.stat())
            return Hold(folder, capture_id, _shared_lock(work), outer=outer, inner=inner)


def _owner(folder: Path) -> int:
    """The number by which a file system knows us: not getuid(), on a network folder it may be another."""
    with tempfile.TemporaryFile(dir=folder) as mine:
        return os.fstat(mine.fileno()).st_uid


@contextmanager
def _own(path: Path, owner: int, *, mode: int = 0o700) -> Iterator[Path]:
    """A folder of ours, made if it is not there; raises for what others could exchange what we write into."""
    with suppress(FileExistsError):
        path.mkdir(mode=mode)
    _refuse_foreign(path, owner)
    with pinned(path, identity_of(os.lstat(path))) as own:
        _refuse_foreign(own, owner, follow=True)
        yield own


def is_foreign_link(folder: Path) -> bool:
    """Whether this is a link that another user has made, who may lead it elsewhere at any time."""
    return folder.is_symlink() and hasattr(os, "geteuid") and os.lstat(folder).st_uid not in (0, os.geteuid())


def _refuse_foreign(path: Path, owner: int, *, follow: bool = False) -> None:
    """Raise for what is no folder of ours: others could exchange what we write into it."""
    found = os.stat(path, follow_symlinks=follow)  # noqa: PTH116 - pathlib cannot in 3.9
    if not stat.S_ISDIR(found.st_mode):
        raise files().NotAFileError(errno.ENOTDIR, "no folder", str(path))
    if found.st_uid != owner:
        raise PermissionError(errno.EACCES, "it belongs to another user", str(path))
    if found.st_mode & stat.S_IWOTH:
        raise PermissionError(errno.EACCES, "anybody may write into it", str(path))


def leave(hold: Hold) -> None:
    """End a part in a capture; what was only needed to put the traces together goes with the last one.

    An export of which no trace could be made stays.
    """
    hold.release()
    with suppress(OSError), alone(hold.folder), hold.pinned_folder() as folder:
        with pinned(folder / WORK_FOLDER) as base:
            work = base / hold.work.name
            refuse_other(identity_of(os.lstat(work)), hold.inner, hold.work)
            with _nobodys(work):
                remove_fetches(hold.capture_id)
                if not any(work.glob(f"*{RAW}")):
                    shutil.rmtree(work, ignore_errors=True)
        (folder / WORK_FOLDER).rmdir()


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


def set_aside(folder: AnyPath) -> dict[Path, Identity]:
    """Move what killed captures have recorded out of the way, and give the folders where it is now.

    What a capture leaves that was killed before it had recorded anything, or that has written its traces, is removed.
    What is not ours stays where it is.
    """
    moved: dict[Path, Identity] = {}
    if not _works(folder):
        return moved
    with suppress(OSError), alone(folder), pinned(folder, follow=True) as at:
        owner = _owner(at)
        _refuse_foreign(at / WORK_FOLDER, owner)
        with pinned(at / WORK_FOLDER, identity_of(os.lstat(at / WORK_FOLDER))) as base:
            for work in _works_in(base):
                with suppress(OSError), _nobodys(work):
                    _refuse_foreign(work, owner)
                    remove_fetches(work.name)
                    if not any(work.glob(f"*{RAW}")):
                        shutil.rmtree(work, ignore_errors=True)
                        continue
                    with _own(at / LEFT_FOLDER, owner, mode=0o755) as left:
                        moved[Path(folder) / LEFT_FOLDER / work.name] = identity_of(os.lstat(work))
                        work.rename(left / work.name)
        (at / WORK_FOLDER).rmdir()
    return moved


def _works(folder: AnyPath) -> list[Path]:
    """The work folders that lie here, of whatever captures."""
    base = Path(folder) / WORK_FOLDER
    try:
        if not stat.S_ISDIR(os.lstat(base).st_mode):  # a link leads to what is not ours
            return []
    except OSError:
        return []
    return _works_in(base)


def _works_in(base: Path) -> list[Path]:
    try:
        with os.scandir(base) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [base / name for name in sorted(names) if _CAPTURE_ID.fullmatch(name)]


# --- folders that stay what they were found to be
#
# Who can write into the folder above may exchange one by a link at any time. So a folder is known by its number in the
# file system, and what is done in it is done through a descriptor.


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


# --- locks


@contextmanager
def alone(folder: AnyPath) -> Iterator[None]:
    """Change what lies in the folder while no other capture does; where that cannot be had in time, without it."""
    descriptor = -1
    with suppress(OSError):
        descriptor = os.open(folder, OPEN_FOLDER)
    try:
        if descriptor >= 0 and fcntl is not None:
            _lock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _shared_lock(work: Path) -> int:
    """A descriptor that holds a work folder, one that holds nothing where the file system has no locks."""
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
    """The folder of a process's fetches; workers find their parent's by it, forked or spawned."""
    return Path(tempfile.gettempdir()) / f"{files().TEMPORARY}{_FETCHES}-{_space()}-{process}-{capture_id}"


def remove_fetches(capture_id: str) -> None:
    """Remove the fetches that killed processes of a capture left."""
    for folder in Path(tempfile.gettempdir()).glob(f"{files().TEMPORARY}{_FETCHES}-*-{capture_id}"):
        with suppress(OSError):
            files().refuse_foreign_folder(folder)
            shutil.rmtree(folder, ignore_errors=True)
