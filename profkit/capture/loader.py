"""What DataLoader workers do, seen from inside: each fetch as a row in a file of the worker, read when all is over.

The main process opens and shuts the log through one shared byte; a worker looks at it once per batch.
Runs in the traced process and its workers: standard library and torch only.
"""

from __future__ import annotations

import functools
import mmap
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
    """The fetches of all workers of one process, in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with (folder / "wanted").open("r+b") as file:
            self._wanted = mmap.mmap(file.fileno(), 1)
        self._file = -1
        self._file_owner = 0
        self._undo: list[tuple[Any, Any, Any]] = []

    @staticmethod
    def create() -> FetchLog:
        """Make the log of this process, shut."""
        folder = folder_of(os.getpid())
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "wanted").write_bytes(b"\0")
        return FetchLog(folder)

    def open(self) -> None:
        """From now on workers write."""
        self._wanted[0] = 1

    def shut(self) -> None:
        """From now on workers do not write."""
        self._wanted[0] = 0

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
        for path in sorted(self.folder.glob("*.rows")):
            data = path.read_bytes()
            whole = data[: len(data) - len(data) % _ROW.size]
            found += [(int(path.stem), *row) for row in _ROW.iter_unpack(whole)]
        return found

    def delete(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _wrapped(self, original: Any) -> Any:
        @functools.wraps(original)
        def fetch(fetcher: Any, index: Any) -> Any:
            info = get_worker_info()
            if info is None or not self._wanted[0]:
                return original(fetcher, index)
            start_ns = time.time_ns()
            data = original(fetcher, index)
            n_samples = len(index) if isinstance(index, (list, tuple)) else 1
            self._write(info.id, start_ns, time.time_ns(), n_samples)
            return data

        return fetch

    def _write(self, worker: int, start_ns: int, end_ns: int, n_samples: int) -> None:
        try:
            if self._file_owner != os.getpid():
                path = self.folder / f"{os.getpid()}.rows"
                self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                self._file_owner = os.getpid()
            os.write(self._file, _ROW.pack(worker, start_ns, end_ns, n_samples))
        except OSError:
            self._file_owner, self._file = os.getpid(), -1


def folder_of(process: int) -> Path:
    """Give the folder of a process's log; spawned workers find their parent's by it."""
    return Path(tempfile.gettempdir()) / f"profkit-{os.getuid() if hasattr(os, 'getuid') else 0}-{process}"
