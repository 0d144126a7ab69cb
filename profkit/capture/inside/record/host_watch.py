"""What the host does beside the step while it is recorded: collections of garbage, waits for a core, other threads.

And the batches that another thread hands to the one that trains: how long it waits for each, and who puts them there.
`Queue.get`, `Queue.put` and `Future.result` of the standard library are wrapped while steps are recorded. A wait counts
where what comes of it holds a tensor or an array: a batch. Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import gc
import os
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Final

import torch

from ...beside import files
from ..patches import Patches

_MOST_PAUSES: Final = 10_000
_SHORTEST_NS: Final = 20_000
"""Shorter collections and waits are not noted. Chosen: 50 in a step of 50 ms are its 2 %, the least that is said."""
_MOST_THREADS: Final = 4096
_MOST_PROCESSES: Final = 1024
_MOST_BYTES: Final = 2**16
_MOST_NAME: Final = 80
_MOST_ROWS: Final = 10_000
_MOST_QUEUES: Final = 1024
_MOST_MEMBERS: Final = 16
_DEEPEST: Final = 3
OURS: Final = "profkit "
"""How the names of this capture's own threads begin."""
_THREADS: Final = Path("/proc/self/task")
_PROCESSES: Final = Path("/proc")
_QUOTA: Final = Path("/sys/fs/cgroup")
_STAT: Final = Path("/proc/stat")
_CPUS: Final = Path("/sys/devices/system/cpu")
_MOST_CPUS: Final = 1024
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
        self._children: dict[int, int] = {}
        self._handed = Handed()

    def begin(self) -> None:
        """From now on collections are noted."""
        self._pid, self._thread = os.getpid(), threading.get_native_id()
        self._pauses, self._started_ns = [], 0
        self._began_ns = time.time_ns()
        self._before, self._threads = self._sampled(), _all_scheduled()
        self._children = _run_by_children()
        gc.callbacks.append(self._collected)
        self._handed.begin()

    def end(self) -> dict[str, Any]:
        """What was seen since `begin`, and when.

        `pauses` (thread, start, end in Unix ns, generation), `scheduling`, `threads` (`name`, `thread`, `run_ns` and
        `wait_ns` of each other one that runs Python), `handed` (see `Handed`).
        """
        self._handed.end()
        with suppress(ValueError):
            gc.callbacks.remove(self._collected)
        after, threads, children = self._sampled(), self._of_threads(), self._of_children()
        window = (self._began_ns, time.time_ns())  # around all readings: nobody runs for longer than it lasts
        spent = {key: after[key] - before for key, before in self._before.items() if key in after}
        scheduling = {"span_ns": window[1] - window[0], **spent, **_sums(threads), **children, **_machine()}
        return {
            "pauses": self._pauses,
            "scheduling": scheduling,
            "recorded_unix_ns": window,
            "threads": _named(threads, self._thread),
            "handed": self._handed.rows,
        }

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
        """Running totals: times in ns of this thread, of the idle cores, how long the container was held, switches.

        A switch is voluntary where the thread had to wait for something, else its core was taken from it.
        """
        found = _switches(self._thread)
        mine = scheduled(self._thread)
        if mine is not None:
            found["run_ns"], found["wait_ns"] = mine
        held = _throttled_ns()
        if held is not None:
            found["throttled_ns"] = held
        idle = _idle_ns()
        if idle is not None:
            found["idle_ns"] = idle
        return found

    def _of_threads(self) -> dict[int, tuple[int, int]]:
        """How long each thread that is there now has run and waited for a core since `begin`, ns; {} if none tells."""
        none = (0, 0)
        return {
            thread: (run - self._threads.get(thread, none)[0], wait - self._threads.get(thread, none)[1])
            for thread, (run, wait) in _all_scheduled().items()
        }

    def _of_children(self) -> dict[str, int]:
        """How long processes that this one has started ran since `begin`, ns, and how many they are."""
        now = _run_by_children()
        spent = sum(run - self._children.get(process, 0) for process, run in now.items())
        return {"children_run_ns": max(spent, 0), "children": len(now)} if _tells_children() else {}


def _sums(threads: dict[int, tuple[int, int]]) -> dict[str, int]:
    runs, waits = [run for run, _ in threads.values()], [wait for _, wait in threads.values()]
    return {"all_run_ns": sum(runs), "all_wait_ns": sum(waits)} if threads else {}


def _named(threads: dict[int, tuple[int, int]], training: int) -> list[dict[str, Any]]:
    """The threads of Python, but for the one that trains, that have run."""
    return [
        {"name": one.name[:_MOST_NAME], "thread": one.native_id, "run_ns": times[0], "wait_ns": times[1]}
        for one in threading.enumerate()
        if one.native_id not in (None, training)
        and not one.name.startswith(OURS)
        and (times := threads.get(int(one.native_id or 0), (0, 0)))[0] > 0
    ]


def _run_by_children() -> dict[int, int]:
    """How long each process that descends from this one has run, ns."""
    found: dict[int, int] = {}
    left = _children_of(_THREADS)
    while left and len(found) < _MOST_PROCESSES:
        process = left.pop()
        if process not in found:
            tasks = _PROCESSES / str(process) / "task"
            found[process] = sum(run for run, _ in _all_scheduled(tasks).values())
            left += _children_of(tasks)
    return found


def _tells_children() -> bool:
    """Whether this kernel lists the processes that a thread has started (CONFIG_PROC_CHILDREN)."""
    return (_THREADS / str(threading.get_native_id()) / "children").exists()


def _children_of(tasks: Path) -> list[int]:
    found: list[int] = []
    with suppress(OSError, ValueError):
        for path in islice(tasks.iterdir(), _MOST_THREADS):
            found += map(int, files().read_small(path / "children", _MOST_BYTES).split())
    return found


def scheduled(thread: int, tasks: Path | None = None) -> tuple[int, int] | None:
    """How long a thread has run, and how long it was ready and waited for a core (sched(7)'s schedstat), ns."""
    with suppress(OSError, ValueError):
        run, wait, *_ = files().read_small((tasks or _THREADS) / str(thread) / "schedstat", _MOST_BYTES).split()
        return int(run), int(wait)
    return None


def waited_for_cores_ns() -> int:
    """How long this thread has been ready and waited for a core until now, ns; 0 where that is not told."""
    told = scheduled(threading.get_native_id())
    return told[1] if told else 0


def _all_scheduled(tasks: Path | None = None) -> dict[int, tuple[int, int]]:
    """The same of each thread of a process, of this one if none is given."""
    found = {}
    with suppress(OSError, ValueError):
        for path in islice((tasks or _THREADS).iterdir(), _MOST_THREADS):
            told = scheduled(int(path.name), tasks)
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


def _throttled_ns() -> int | None:
    """How long the container's quota has held its processes, ns; None where it has none."""
    with suppress(OSError, ValueError):
        for line in files().read_small(_QUOTA / "cpu.stat", _MOST_BYTES).splitlines():
            if line.startswith(b"throttled_usec "):
                return 1000 * int(line.split()[1])
    return None


def _idle_ns() -> int | None:
    """How long the CPUs that this process may use have run nothing, added up (proc_stat(5)), ns; None if none tells."""
    with suppress(Exception):
        mine = {b"cpu%d" % one for one in os.sched_getaffinity(0)}
        tick_ns = 10**9 // os.sysconf("SC_CLK_TCK")
        with _STAT.open("rb") as file:  # the rows of CPUs come first; those behind them may be long
            rows = [row.split() for row in takewhile(lambda row: row.startswith(b"cpu"), islice(file, _MOST_CPUS))]
        idle = [int(row[4]) + int(row[5]) for row in rows if row[0] in mine]
        return tick_ns * sum(idle) if len(idle) == len(mine) else None
    return None


def _n_physical() -> int | None:
    """The cores behind the CPUs that this process may use: CPUs that share one, as hyper-threads do, count once."""
    found = set()
    with suppress(Exception):
        for one in islice(os.sched_getaffinity(0), _MOST_CPUS):
            found.add(files().read_small(_CPUS / f"cpu{one}" / "topology" / "thread_siblings_list", _MOST_BYTES))
        return len(found)
    return None


def _machine() -> dict[str, int]:
    """What this process may use: `cores`, the container's quota of them in thousandths, `threads` for an operator.

    `physical` are its cores without the second CPU of each. `ranks` is how many processes of the job share these cores,
    itself among them.
    """
    told: dict[str, int] = {}
    with suppress(AttributeError, OSError):
        told["cores"] = len(os.sched_getaffinity(0))
        told["ranks"] = _n_sharing()
        told["physical"] = _n_physical() or told["cores"]
    with suppress(OSError, ValueError):
        quota, period = files().read_small(_QUOTA / "cpu.max", _MOST_BYTES).split()  # "max 100000": none
        told["quota_millicores"] = 1000 * int(quota) // max(int(period), 1)
    with suppress(Exception):
        told["threads"] = torch.get_num_threads()
    return told


def _n_sharing() -> int:
    """Ranks of this machine where they were started with the same cores as this process; 1 where it is pinned."""
    told = [os.environ.get(name, "") for name in _RANKS_HERE]
    counts = [int(text) for text in told if text.isdecimal() and len(text) <= 6]
    is_pinned = os.sched_getaffinity(os.getppid()) != os.sched_getaffinity(0)
    return 1 if is_pinned or not counts else max(counts[0], 1)


class Handed:
    """What the thread that calls `begin` waits for in queues, until `end`.

    `rows` are (thread, start, end in Unix ns, the thread that puts into that queue or 0 where that is not known).
    """

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []
        self._home = self._native = 0
        self._putting: dict[int, int] = {}
        self._patches = Patches()

    def begin(self) -> None:
        """From now on waits are noted."""
        self._home, self._native = threading.get_ident(), threading.get_native_id()
        for owner, name, wrapped in (
            (queue.Queue, "get", self._taking),
            (queue.Queue, "put", self._giving),
            (Future, "result", self._taking),
        ):
            self._patches.wrap(owner, name, wrapped)

    def end(self) -> None:
        """Take the wrappers out, unless somebody has wrapped them since."""
        self._home = 0
        self._patches.take_out()

    def _taking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def take(holder: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._home:
                return original(holder, *args, **kwargs)
            start_ns = time.time_ns()
            found = original(holder, *args, **kwargs)
            end_ns = time.time_ns()
            if end_ns - start_ns >= _SHORTEST_NS and len(self.rows) < _MOST_ROWS and _is_batch(found):
                self.rows.append((self._native, start_ns, end_ns, self._putting.get(id(holder), 0)))
            return found

        return take

    def _giving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def give(holder: Any, *args: Any, **kwargs: Any) -> Any:
            if self._home and len(self._putting) < _MOST_QUEUES:
                self._putting[id(holder)] = threading.get_native_id()
            return original(holder, *args, **kwargs)

        return give


def _is_batch(value: Any, depth: int = 0) -> bool:
    """Whether a value is, or holds, a tensor or an array with a dimension; no code of the script's is called."""
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        return bool(kind is not torch.Tensor or value.dim())
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return bool(value.ndim)
    if depth >= _DEEPEST:
        return False
    members: Any = ()
    if kind in (list, tuple) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        members = tuple.__iter__(value) if issubclass(kind, tuple) else value
    elif issubclass(kind, dict):
        members = list(dict.values(value))
    elif type(vars(kind).get("__dict__")).__name__ == "getset_descriptor":
        members = list(object.__getattribute__(value, "__dict__").values())
    return any(_is_batch(one, depth + 1) for one, _ in zip(members, range(_MOST_MEMBERS)))  # noqa: B905 - Python 3.9
