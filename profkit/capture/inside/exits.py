"""The ways a process ends while steps are recorded, and what must happen first in each of them.

`leave` is the end of one that has what it was started for: no handler of the script runs, so it saves and prints
nothing.

Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch

_CHILD_END: list[tuple[Any, Any]] = []
"""How a forked child's end is registered and what with; empty until a profiler has run in this process."""
CANNOT_GUARD: Final = (
    "on this system a child that the script forks from now on, and that then exits, may hang as it would under"
    " torch.profiler alone (its C library has no on_exit); children of multiprocessing and subprocess end as ever"
)


_LONGEST_WAIT_S: Final = 30.0
"""For ranks of the same host that are still in their last step (chosen: above any step but the longest)."""
_LOOK_S: Final = 0.01
_SUFFIX: Final = ".left"


class WaysOut:
    """Calls `finish` where the end of the process, or of the thread that records, would come without `atexit`."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish
        self._pid = os.getpid()
        self._old_handler: Any = None
        self._thread_end = threading.local()

    def guard(self) -> None:
        """Begin to watch, in the thread that records. A SIGTERM is asked for only if the script has not."""
        if threading.current_thread() is not threading.main_thread():
            self._thread_end.last = _AtThreadEnd(self._finish)
        elif signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            self._old_handler = signal.signal(signal.SIGTERM, self._on_sigterm)
        if "multiprocessing" in sys.modules:
            import multiprocessing as mp
            from multiprocessing import util

            if mp.parent_process() is not None:  # such a child never runs atexit
                util.Finalize(None, self._finish, exitpriority=100)

    def unguard(self) -> None:
        """Give SIGTERM back, unless somebody has taken it since."""
        if self._old_handler is not None and threading.current_thread() is threading.main_thread():
            if signal.getsignal(signal.SIGTERM) == self._on_sigterm:
                signal.signal(signal.SIGTERM, self._old_handler)
            self._old_handler = None

    def _on_sigterm(self, number: int, _frame: Any) -> None:
        if os.getpid() == self._pid and not in_backward():
            self._finish()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


class _AtThreadEnd:
    """Acts in the thread that made it when that thread ends: one that leaves a profiler behind crashes torch 2.13."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def __del__(self) -> None:
        self._act()


def in_backward() -> bool:
    """Whether this thread runs a backward pass, where a profiler may neither start nor stop."""
    task: int = torch._C._current_graph_task_id()  # noqa: SLF001
    return task != -1


def guard_children() -> str:
    """Let children that are forked from now on end: call it where a profiler of torch is about to start.

    The profiler leaves a thread that a forked child has not, and the child waits for it for ever when it destroys
    libkineto's objects. So `exit` in a child writes out what C's streams hold and ends there, with the code it was
    given; Python has been through all of its own end by then. glibc alone has `on_exit`, which tells the code: with
    another C library a child ends as the profiler lets it, and the line that says so is given; "" where they are safe.
    """
    if _CHILD_END or not hasattr(os, "register_at_fork"):
        return ""
    found = [_of_c(name) for name in ("on_exit", "_exit", "__cxa_atexit", "fflush")]
    if None in found:
        return CANNOT_GUARD
    on_exit, leave, at_exit, flush = found
    _CHILD_END.append((on_exit, ctypes.cast(leave, ctypes.c_void_p)))
    _CHILD_END.append((at_exit, ctypes.cast(flush, ctypes.c_void_p)))
    os.register_at_fork(after_in_child=_end_before_destructors)
    return ""


def _of_c(name: str) -> Any:
    """A function of the C library, None where it has none of this name."""
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):  # no library can be loaded, or not by no name
        return None


def _end_before_destructors() -> None:
    """Register C's own functions, for Python is gone when they are called; the last one registered is called first."""
    (on_exit, leave), (at_exit, flush) = _CHILD_END
    on_exit(leave, None)
    at_exit(flush, None, None)


def leave(folder: str, finish: Callable[[], None] = lambda: None) -> None:
    """Finish, then end this process with code 0 once all ranks of this host came here; loader workers end with it.

    A rank that went before the others would break the collectives they are in.
    """
    finish()
    with suppress(OSError):
        (Path(folder) / f"{os.getpid()}{_SUFFIX}").touch()
        _await(Path(folder))
    with suppress(Exception):
        _end_children()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(0)


def _await(folder: Path) -> None:
    n_ranks = _ranks_here()
    until = time.monotonic() + _LONGEST_WAIT_S
    while n_ranks > 1 and time.monotonic() < until and len(list(folder.glob(f"*{_SUFFIX}"))) < n_ranks:
        time.sleep(_LOOK_S)


def _ranks_here() -> int:
    told = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or "1"
    return int(told) if told.isdecimal() else 1


def _end_children() -> None:
    mp: Any = sys.modules.get("multiprocessing")
    if mp is not None:
        for child in mp.active_children():
            child.terminate()
