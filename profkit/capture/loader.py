"""What DataLoader workers do, seen from inside: each fetch as a row in a file of the worker, read when all is over.

The log is open while its folder is there: a worker, forked or spawned, looks for that once per batch.
Runs in the traced process and its workers: standard library and torch only.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import shutil
import struct
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from torch.utils.data import get_worker_info
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

_ROW: Final = struct.Struct("<qqqq")  # worker, start and end (Unix ns), rows fetched


class FetchLog:
    """The fetches of all workers of this process, in a temporary folder that is there while they are wanted."""

    def __init__(self) -> None:
        self._folder = folder_of(os.getpid())
        self._shut_folder = self._folder.with_suffix(".shut")
        self._is_open = False
        self._undo: list[tuple[Any, Any, Any]] = []
        self._worker = _Worker()

    def open(self) -> None:
        """From now on workers write. Raises OSError if there is no place for that."""
        self.delete()
        self._folder.mkdir(mode=0o700)
        self._is_open = True

    def shut(self) -> None:
        """From now on workers do not write."""
        if self._is_open:
            self._is_open = False
            self._folder.replace(self._shut_folder)

    def install(self) -> None:
        """Wrap the two fetchers of torch; workers started from now on inherit that."""
        for fetcher in (_MapDatasetFetcher, _IterableDatasetFetcher):
            original: Any = fetcher.fetch
            wrapper = self._wrapped(original)
            fetcher.fetch = wrapper
            self._undo.append((fetcher, original, wrapper))

    def remove(self) -> None:
        """Take the wrappers out of this process; in workers that still run they do nothing any more."""
        self.shut()
        while self._undo:
            fetcher, original, wrapper = self._undo.pop()
            if fetcher.fetch is wrapper:
                fetcher.fetch = original

    def rows(self) -> list[tuple[int, int, int, int, int]]:
        """Give (process, worker, start, end, number of samples) of every fetch, times in Unix ns."""
        found: list[tuple[int, int, int, int, int]] = []
        for path in sorted(self._shut_folder.glob("*.rows")):
            data = path.read_bytes()
            whole = data[: len(data) - len(data) % _ROW.size]
            found += [(int(path.stem), *row) for row in _ROW.iter_unpack(whole)]
        return found

    def delete(self) -> None:
        """Remove the files."""
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.rmtree(self._shut_folder, ignore_errors=True)

    def _wrapped(self, original: Any) -> Any:
        worker = self._worker

        @functools.wraps(original)
        def fetch(fetcher: Any, index: Any) -> Any:
            info = get_worker_info()
            if info is None or not worker.is_wanted():
                return original(fetcher, index)
            start_ns = time.time_ns()
            data = original(fetcher, index)
            n_samples = len(index) if isinstance(index, (list, tuple)) else 1
            worker.write(info.id, start_ns, time.time_ns(), n_samples)
            return data

        return fetch


class _Worker:
    """The worker's end of the log: made before the fork, it finds out in the worker where it is."""

    def __init__(self) -> None:
        self._pid = 0
        self._folder = ""
        self._file = -1

    def is_wanted(self) -> bool:
        """Whether the process that reads this worker's batches records now."""
        if self._pid != os.getpid():
            parent = multiprocessing.parent_process()
            self._pid, self._file = os.getpid(), -1
            self._folder = str(folder_of((parent.pid if parent is not None else None) or os.getppid()))
        return os.path.isdir(self._folder)  # noqa: PTH112 - a microsecond, once per batch

    def write(self, worker: int, start_ns: int, end_ns: int, n_samples: int) -> None:
        """Write a row, or let it be."""
        try:
            if self._file < 0:
                name = f"{self._folder}/{self._pid}.rows"
                self._file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(self._file, _ROW.pack(worker, start_ns, end_ns, n_samples))
        except OSError:
            self._folder = ""


def folder_of(process: int) -> Path:
    """Give the folder of a process's log; spawned workers find their parent's by it."""
    return Path(tempfile.gettempdir()) / f"profkit-{os.getuid() if hasattr(os, 'getuid') else 0}-{process}"
