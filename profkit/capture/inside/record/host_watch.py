"""What the host does beside the step while it is recorded: collections of garbage, and waits for a core.

Runs in the traced process: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, Optional

from ...beside import files

_MOST_PAUSES: Final = 10_000
_SHORTEST_NS: Final = 20_000
"""Shorter collections, of the youngest generation, are too many to note and cost nothing."""
_MOST_THREADS: Final = 4096
_MOST_BYTES: Final = 2**16
_THREADS: Final = Path("/proc/self/task")
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.stat")


class HostWatch:
    """Collections and scheduling of this process from `begin` to `end`, as the thread that calls `begin` sees it."""

    def __init__(self) -> None:
        self._pauses: list[tuple[int, int, int, int]] = []
        self._started_ns = 0
        self._pid = 0
        self._thread = 0
        self._before: dict[str, int] = {}

    def begin(self) -> None:
        """From now on collections are noted."""
        self._pid, self._thread = os.getpid(), threading.get_native_id()
        self._pauses, self._started_ns = [], 0
        self._before = self._sampled()
        gc.callbacks.append(self._collected)

    def end(self) -> dict[str, Any]:
        """What was seen since `begin`: `pauses` (thread, start and end in Unix ns, generation) and `scheduling`."""
        with suppress(ValueError):
            gc.callbacks.remove(self._collected)
        after = self._sampled()
        spent = {key: after[key] - before for key, before in self._before.items() if key in after}
        return {"pauses": self._pauses, "scheduling": {**spent, **_machine()} if spent else {}}

    def _collected(self, phase: str, told: dict[str, int]) -> None:
        if phase == "start":
            self._started_ns = time.time_ns()
            return
        start_ns, end_ns = self._started_ns, time.time_ns()
        is_noted = start_ns and end_ns - start_ns >= _SHORTEST_NS and len(self._pauses) < _MOST_PAUSES
        if is_noted and os.getpid() == self._pid:  # a forked child has the callback too
            self._pauses.append((threading.get_native_id(), start_ns, end_ns, told.get("generation", -1)))
        self._started_ns = 0

    def _sampled(self) -> dict[str, int]:
        """Running totals, ns: of the clock, of this thread, of all threads; of the container how long it was held."""
        found = {"span_ns": time.time_ns()}
        mine = _scheduled(self._thread)
        if mine is not None:
            found["run_ns"], found["wait_ns"] = mine
            threads = [_scheduled(thread) for thread in _threads()]
            found["all_run_ns"] = sum(run for run, _ in filter(None, threads))
            found["all_wait_ns"] = sum(wait for _, wait in filter(None, threads))
        held = _throttled_ns()
        if held is not None:
            found["throttled_ns"] = held
        return found


def _scheduled(thread: int) -> Optional[tuple[int, int]]:  # noqa: UP045 - Python 3.9
    """How long a thread has run, and how long it was ready and waited for a core (sched(7)'s schedstat), ns."""
    with suppress(OSError, ValueError):
        run, wait, *_ = files().read_small(_THREADS / str(thread) / "schedstat", _MOST_BYTES).split()
        return int(run), int(wait)
    return None


def _threads() -> list[int]:
    with suppress(OSError, ValueError):
        return [int(path.name) for path in islice(_THREADS.iterdir(), _MOST_THREADS)]
    return []


def _throttled_ns() -> Optional[int]:  # noqa: UP045 - Python 3.9
    """How long the container's quota has held its processes, ns; None where it has none."""
    with suppress(OSError, ValueError):
        for line in files().read_small(_QUOTA, _MOST_BYTES).splitlines():
            if line.startswith(b"throttled_usec "):
                return 1000 * int(line.split()[1])
    return None


def _machine() -> dict[str, Any]:
    """The cores that this process may use, its threads for operators, and how busy the machine is."""
    told: dict[str, Any] = {"omp_num_threads": os.environ.get("OMP_NUM_THREADS", "")[:20]}
    with suppress(AttributeError, OSError):
        told["cores"] = len(os.sched_getaffinity(0))
    with suppress(OSError):
        told["load"] = round(os.getloadavg()[0], 2)
    with suppress(Exception):
        import torch

        told["threads"] = torch.get_num_threads()
    return told
