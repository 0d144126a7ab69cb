"""What DataLoader workers do, seen from inside: each fetch as a row in a file of the worker, read when all is over.

The log is open while its folder is there: a worker, forked or spawned, looks for that once per batch.
Runs in the traced process and its workers: standard library and torch only.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import struct
import time
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from torch.utils.data import get_worker_info
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

from ..beside import files
from ..place import fetch_folder
from .patches import Patches
from .places.worker_lines import LineWatch

_ROW: Final = struct.Struct("<qqqq")  # worker, start and end (Unix ns), rows fetched
_MOST_ROWS: Final = 100_000  # of one worker: hours of fetches, of which a window lasts seconds
_MOST_WORKERS: Final = 1024


class FetchLog:
    """The fetches of all workers of this process, in a temporary folder that is there while they are wanted.

    The folder is ours alone, and what changes is inside it: `open` while workers are to write, `shut` after that.
    """

    def __init__(self, capture_id: str) -> None:
        self._folder = fetch_folder(os.getpid(), capture_id)
        self._shut_folder = self._folder / "shut"
        self._is_made = self._is_open = False
        self._patches = Patches()
        self._worker = _Worker(capture_id)
        self._lines = LineWatch(capture_id)

    def open(self) -> None:
        """From now on workers write. Raises OSError if there is no place for that."""
        self._folder.mkdir(mode=0o700)  # not one that is there: whose is it?
        self._is_made = True
        (self._folder / "open").mkdir()
        self._is_open = True

    def shut(self) -> None:
        """From now on workers do not write."""
        if self._is_open:
            self._is_open = False
            with suppress(OSError):  # somebody tidied up in the temporary folder: no rows, then
                (self._folder / "open").replace(self._shut_folder)

    def install(self) -> None:
        """Wrap the two fetchers of torch; workers started from now on inherit that."""
        for fetcher in (_MapDatasetFetcher, _IterableDatasetFetcher):
            self._patches.wrap(fetcher, "fetch", self._wrapped)

    def remove(self) -> None:
        """Take the wrappers out of this process; in workers that still run they do nothing any more."""
        self.shut()
        self._patches.take_out()

    def rows(self) -> list[tuple[int, int, int, int, int]]:
        """(Process, worker, start, end, number of samples) of every fetch, times in Unix ns."""
        found: list[tuple[int, int, int, int, int]] = []
        for path in islice(sorted(self._shut_folder.glob("*.rows")), _MOST_WORKERS):
            if not path.stem.isdecimal():
                continue
            with suppress(OSError), files().open_file(path, follow=False) as file:
                data = file.read(_MOST_ROWS * _ROW.size)
                whole = data[: len(data) - len(data) % _ROW.size]
                found += [(int(path.stem), *row) for row in _ROW.iter_unpack(whole)]
        return found

    def delete(self) -> None:
        """Remove the files; what somebody else has put in their place stays."""
        self.shut()
        if self._is_made:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._is_made = False

    def _wrapped(self, original: Any) -> Any:
        worker, lines = self._worker, self._lines

        def fetch(fetcher: Any, index: Any) -> Any:
            info = get_worker_info()
            if info is None:
                return original(fetcher, index)
            if not worker.is_wanted():
                if not lines.is_wanted(worker.reader):
                    return original(fetcher, index)
                is_stream = hasattr(fetcher, "dataset_iter")
                n_samples = len(index) if is_stream and isinstance(index, list) else 0
                return lines.fetched(lambda: original(fetcher, index), n_samples, info.num_workers)
            start_ns = time.time_ns()
            data = original(fetcher, index)
            n_samples = len(index) if isinstance(index, (list, tuple)) else 1
            worker.write(info.id, start_ns, time.time_ns(), n_samples)
            return data

        return fetch


class _Worker:
    """The worker's end of the log: made before the fork, it finds out in the worker where it is."""

    def __init__(self, capture_id: str) -> None:
        self._capture_id = capture_id
        self._pid = 0
        self.reader = 0
        """The process that reads this worker's batches."""
        self._folder = ""
        self._file = -1

    def is_wanted(self) -> bool:
        """Whether the process that reads this worker's batches records now."""
        if self._pid != os.getpid():
            parent = multiprocessing.parent_process()
            self._pid, self._file = os.getpid(), -1
            self.reader = (parent.pid if parent is not None else None) or os.getppid()
            self._folder = str(fetch_folder(self.reader, self._capture_id) / "open")
        is_open = os.path.isdir(self._folder)  # noqa: PTH112 - a microsecond, once per batch
        if not is_open and self._file >= 0:  # a recording that begins anew has another file
            os.close(self._file)
            self._file = -1
        return is_open

    def write(self, worker: int, start_ns: int, end_ns: int, n_samples: int) -> None:
        """Write a row, or let it be."""
        try:
            if self._file < 0:
                files().refuse_foreign_folder(os.path.dirname(self._folder))  # noqa: PTH120
                self._file = files().open_to_append(f"{self._folder}/{self._pid}.rows")
            os.write(self._file, _ROW.pack(worker, start_ns, end_ns, n_samples))
        except OSError:
            self._folder = ""
