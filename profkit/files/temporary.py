"""Temporary folders: each belongs to us alone, and is removed by us, by a signal's handler, or by a later run."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

from .kinds import ALWAYS, NO_LINK, AnyPath, refuse_foreign

fcntl: Any
try:
    import fcntl
except ImportError:  # not on Windows: folders that are left there are removed by their age alone
    fcntl = None

TEMPORARY: Final = "profkit-"
"""How the names of our temporary folders begin."""
STALE_S: Final = 3600.0
"""Age from which a temporary folder that nobody holds is removed: a new one is not locked at once."""

_MOST_LOOKED_AT: Final = 10_000  # entries of the temporary folder


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """An empty folder that only we may enter, deleted with all in it when the context ends, and by SIGTERM.

    Its name tells whose it is: `profkit-PURPOSE-PID-RANDOM`. Nobody can have put it there before. Those of killed runs
    are removed first.
    """
    import tempfile  # with shutil 10 ms, which who makes no folder need not pay
    from shutil import rmtree

    remove_stale()
    folder = Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}{purpose}-{os.getpid()}-"))  # 0700
    lock = _locked(folder)
    try:
        with _removed_by_signals(folder):
            yield folder
    finally:
        rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


@contextmanager
def _removed_by_signals(folder: Path) -> Iterator[None]:
    """Delete a folder also when SIGTERM or SIGHUP ends the process, where nobody else has a use for these signals."""
    import signal
    import threading
    from shutil import rmtree  # not in a signal's handler, which may come in the middle of an import

    owner = os.getpid()
    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.getsignal(number) for number in numbers}
    taken = [number for number, one in before.items() if one == signal.SIG_DFL or hasattr(one, "is_profkits")]

    def end(number: int, _frame: Any) -> None:
        if os.getpid() == owner:  # a forked child has this handler too, and no right to the folder
            rmtree(folder, ignore_errors=True)
        signal.signal(number, before[number])
        os.kill(os.getpid(), number)

    end.is_profkits = True  # type: ignore[attr-defined]
    for number in taken:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in taken:
            if signal.getsignal(number) is end:
                signal.signal(number, before[number])


def free_bytes(folder: AnyPath) -> int:
    """How much may still be written into a folder."""
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
    refuse_foreign(found, entry.path)
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
    """A descriptor that holds a folder until it is closed or the process ends, None where another has it."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY | NO_LINK | ALWAYS)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
