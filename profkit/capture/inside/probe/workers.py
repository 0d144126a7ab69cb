"""Delays inside DataLoader workers: the process that trains gives an order, each of its workers obeys it once.

The order is a number in a small mapped file, which workers, forked or spawned, find by the id of their parent. Each
writes what it did into a file of its own. Runs in the probed process and its workers: standard library and torch only.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import struct
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from torch.utils.data import get_worker_info
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher

from ...beside import files
from ..patches import Patches

ORDER: Final = struct.Struct("<q")
"""Two of these: the order (its round, and the delay in its low bits), and whether workers are to write rows."""
ROW: Final = struct.Struct("<qqq")
"""Round that was obeyed before the fetch (0 for none), delay and fetch in ns."""
ROWS: Final = ".rows"
_DELAY_BITS: Final = 40  # delays of up to 1,000 s
_MOST_ROWS: Final = 100_000


class Orders:
    """The end of the process that trains: one order at a time, in `<pid>.orders` of the run's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._map: Any = None

    def open(self) -> None:
        """Workers write what they do from now on. Raises OSError where there is no place for it."""
        path = self._folder / f"{os.getpid()}.orders"
        files().write_whole(path, bytes(2 * ORDER.size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 2 * ORDER.size)
        ORDER.pack_into(self._map, ORDER.size, 1)

    def give(self, number: int, delay_ns: int) -> None:
        """Each worker is to wait so long before its next batch; `number` counts orders from 1."""
        if self._map is not None:
            ORDER.pack_into(self._map, 0, number << _DELAY_BITS | delay_ns)

    def shut(self) -> None:
        """Workers neither wait nor write from now on."""
        if self._map is not None:
            ORDER.pack_into(self._map, ORDER.size, 0)
            self._map.close()
            self._map = None


class Worker:
    """The worker's end: made before the fork, it finds out in the worker where it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pid = 0
        self._parent = 0
        self._map: Any = None
        self._file = -1
        self._last = 0
        self._n_rows = 0
        self._patches = Patches()

    def install(self) -> None:
        """Wrap the two fetchers of torch; workers started from now on inherit that."""
        for fetcher in (_MapDatasetFetcher, _IterableDatasetFetcher):
            self._patches.wrap(fetcher, "fetch", self._wrapped)

    def remove(self) -> None:
        """Take the wrappers out of this process; those of running workers have no more orders."""
        self._patches.take_out()

    def _wrapped(self, original: Any) -> Any:
        def fetch(fetcher: Any, index: Any) -> Any:
            if get_worker_info() is None or not self._is_wanted():
                return original(fetcher, index)
            number, delay_ns = self._obey()
            begun_ns = time.perf_counter_ns()
            data = original(fetcher, index)
            self._write(number, delay_ns, time.perf_counter_ns() - begun_ns)
            return data

        return fetch

    def _is_wanted(self) -> bool:
        """Whether the process that reads this worker's batches probes now."""
        if self._pid != os.getpid():
            self._pid, self._file, self._n_rows, self._map = os.getpid(), -1, 0, None
            parent = multiprocessing.parent_process()
            self._parent = (parent.pid if parent is not None else None) or os.getppid()
        if self._map is None:
            with suppress(OSError, ValueError), (self._folder / f"{self._parent}.orders").open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 2 * ORDER.size, access=mmap.ACCESS_READ)
                self._last = self._order()[0]  # one from before this worker's time
        return self._map is not None and bool(ORDER.unpack_from(self._map, ORDER.size)[0])

    def _order(self) -> tuple[int, int]:
        order: int = ORDER.unpack_from(self._map, 0)[0]
        return order >> _DELAY_BITS, order & ((1 << _DELAY_BITS) - 1)

    def _obey(self) -> tuple[int, int]:
        """Wait as the newest order says, if it is a new one: its number (0 if not), and how long it took."""
        number, delay_ns = self._order()
        if number == self._last:
            return 0, 0
        self._last = number
        return number, slept(delay_ns)

    def _write(self, number: int, delay_ns: int, fetch_ns: int) -> None:
        """Write a row, or let it be."""
        self._n_rows += 1
        if self._n_rows > _MOST_ROWS:
            return
        with suppress(OSError):
            if self._file < 0:
                self._file = files().open_to_append(self._folder / f"{self._parent}.{self._pid}{ROWS}")
            os.write(self._file, ROW.pack(number, delay_ns, fetch_ns))


def slept(delay_ns: int) -> int:
    """Sleep, and give how long that took."""
    begun_ns = time.perf_counter_ns()
    time.sleep(delay_ns / 1e9)
    return time.perf_counter_ns() - begun_ns
