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
"""Shorter collections are not noted. Chosen: 50 of them in a step of 50 ms would be its 2 %, the least that is said."""
_MOST_THREADS: Final = 4096
_MOST_BYTES: Final = 2**16
_THREADS: Final = Path("/proc/self/task")
_QUOTA: Final = Path("/sys/fs/cgroup")
_RANKS_HERE: Final = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
_SWITCHES: Final = {
    b"voluntary_ctxt_switches": "voluntary_switches",
    b"nonvoluntary_ctxt_switches": "involuntary_switches",
}


class HostWatch:
    """Collections and scheduling of this process from `begin` to `end`, as the thread that calls `begin` sees it."""

    def __init__(self) -> None:
        self._pauses: list[tuple[int, int, int, int]] = []
        self._started_ns = 0
        self._began_ns = 0
        self._pid = 0
        self._thread = 0
        self._before: dict[str, int] = {}
        self._threads: dict[int, tuple[int, int]] = {}

    def begin(self) -> None:
        """From now on collections are noted."""
        self._pid, self._thread = os.getpid(), threading.get_native_id()
        self._pauses, self._started_ns = [], 0
        self._before, self._threads = self._sampled(), _all_scheduled()
        self._began_ns = self._before["span_ns"]
        gc.callbacks.append(self._collected)

    def end(self) -> dict[str, Any]:
        """What was seen since `begin`, and when: `pauses` (thread, start, end in Unix ns, generation), `scheduling`."""
        with suppress(ValueError):
            gc.callbacks.remove(self._collected)
        after = self._sampled()
        spent = {key: after[key] - before for key, before in self._before.items() if key in after}
        scheduling = {**spent, **self._of_all_threads(), **_machine()}
        window = (self._began_ns, time.time_ns())
        return {"pauses": self._pauses, "scheduling": scheduling, "recorded_unix_ns": window}

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
        """Running totals: times in ns of the clock and of this thread, how long the container was held, switches.

        A switch is voluntary where the thread had to wait for something, else its core was taken from it.
        """
        found = {"span_ns": time.time_ns(), **_switches(self._thread)}
        mine = _scheduled(self._thread)
        if mine is not None:
            found["run_ns"], found["wait_ns"] = mine
        held = _throttled_ns()
        if held is not None:
            found["throttled_ns"] = held
        return found

    def _of_all_threads(self) -> dict[str, int]:
        """How long the threads that are there now have run and waited since `begin`, ns; nothing where none tells."""
        now = _all_scheduled()
        none = (0, 0)
        spent = [
            (run - self._threads.get(thread, none)[0], wait - self._threads.get(thread, none)[1])
            for thread, (run, wait) in now.items()
        ]
        return (
            {"all_run_ns": sum(run for run, _ in spent), "all_wait_ns": sum(wait for _, wait in spent)} if now else {}
        )


def _scheduled(thread: int) -> Optional[tuple[int, int]]:  # noqa: UP045 - Python 3.9
    """How long a thread has run, and how long it was ready and waited for a core (sched(7)'s schedstat), ns."""
    with suppress(OSError, ValueError):
        run, wait, *_ = files().read_small(_THREADS / str(thread) / "schedstat", _MOST_BYTES).split()
        return int(run), int(wait)
    return None


def _all_scheduled() -> dict[int, tuple[int, int]]:
    """The same of each thread of this process."""
    found = {}
    with suppress(OSError, ValueError):
        for path in islice(_THREADS.iterdir(), _MOST_THREADS):
            told = _scheduled(int(path.name))
            if told is not None:
                found[int(path.name)] = told
    return found


def _switches(thread: int) -> dict[str, int]:
    """How often a thread, and all of the process together (`all_`), has left its core (proc(5), getrusage(2))."""
    found = {}
    with suppress(OSError, ValueError):
        for line in files().read_small(_THREADS / str(thread) / "status", _MOST_BYTES).splitlines():
            name, _, count = line.partition(b":")
            if name in _SWITCHES:
                found[_SWITCHES[name]] = int(count)
    with suppress(ImportError):
        import resource

        usage = resource.getrusage(resource.RUSAGE_SELF)
        found["all_voluntary_switches"], found["all_involuntary_switches"] = usage.ru_nvcsw, usage.ru_nivcsw
    return found


def _throttled_ns() -> Optional[int]:  # noqa: UP045 - Python 3.9
    """How long the container's quota has held its processes, ns; None where it has none."""
    with suppress(OSError, ValueError):
        for line in files().read_small(_QUOTA / "cpu.stat", _MOST_BYTES).splitlines():
            if line.startswith(b"throttled_usec "):
                return 1000 * int(line.split()[1])
    return None


def _machine() -> dict[str, int]:
    """What this process may use: `cores`, the container's quota of them in thousandths, `threads` for an operator.

    `ranks` is how many processes of the job share these cores, itself among them.
    """
    told: dict[str, int] = {}
    with suppress(AttributeError, OSError):
        told["cores"] = len(os.sched_getaffinity(0))
        told["ranks"] = _n_sharing()
    with suppress(OSError, ValueError):
        quota, period = files().read_small(_QUOTA / "cpu.max", _MOST_BYTES).split()  # "max 100000": none
        told["quota_millicores"] = 1000 * int(quota) // max(int(period), 1)
    with suppress(Exception):
        import torch

        told["threads"] = torch.get_num_threads()
    return told


def _n_sharing() -> int:
    """Ranks of this machine where they were started with the same cores as this process; 1 where it is pinned."""
    told = [os.environ.get(name, "") for name in _RANKS_HERE]
    counts = [int(text) for text in told if text.isdecimal() and len(text) <= 6]
    is_pinned = os.sched_getaffinity(os.getppid()) != os.sched_getaffinity(0)
    return 1 if is_pinned or not counts else max(counts[0], 1)
