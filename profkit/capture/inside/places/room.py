"""Whether there is room to record the Python calls of a step: how many they are, counted in a step before.

A step that works in Python for seconds makes tens of millions of calls; the profiler would keep each of them, and then
take minutes to put them in order. Runs in the traced process: standard library only.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

MOST_CALLS: Final = 400_000
"""Python calls that are recorded at most: the script waits 20 to 50 us for each on two slow cores, so 20 s, and the
profiler needs 2.5 kB of memory for each (measured with torch 2.13); a step of GPT-2 makes 30,000."""
_BYTES_PER_CALL: Final = 2500
_SPARED: Final = 0.5
"""The part of the free memory that is left to the script (chosen)."""
_CGROUP: Final = Path("/sys/fs/cgroup")


class Counter:
    """Counts the Python calls of this thread between `start` and `stop`, by the C profiler of the standard library."""

    def __init__(self) -> None:
        self._profiler: Any = None

    def start(self) -> str:
        """Begin; gives why that cannot be, "" where it can."""
        if sys.getprofile() is not None:
            return "another profiler of Python calls runs"  # torch's would take its place, and not give it back
        try:
            from _lsprof import Profiler

            profiler = Profiler(subcalls=False, builtins=True)
            profiler.enable()
        except (ImportError, ValueError):  # from 3.12 on there is room for one
            return "another profiler of Python calls runs"
        self._profiler = profiler
        return ""

    def stop(self) -> int:
        """The calls since the start; in a thread other than that which began nothing is stopped, and none counted."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return 0
        profiler.disable()
        return sum(entry.callcount for entry in profiler.getstats())


def steps_that_fit(n_steps: int, n_calls: int) -> int:
    """How many of so many steps can be recorded that make so many calls each."""
    most = min(MOST_CALLS, int(_free_bytes() * _SPARED) // _BYTES_PER_CALL)
    return min(n_steps, most // max(n_calls, 1))


def _free_bytes() -> int:
    """The memory that this process can still have, as far as the system tells."""
    free = [1 << 62]
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free += [int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")]
    with suppress(OSError, ValueError):
        most = int((_CGROUP / "memory.max").read_text(encoding="ascii"))
        free.append(max(most - int((_CGROUP / "memory.current").read_text(encoding="ascii")), 0))
    return min(free)
