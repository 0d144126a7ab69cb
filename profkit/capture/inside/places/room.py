"""Whether there is room and time to record the Python calls of a step: how many they are, counted in a step before.

A step that works in Python for seconds makes tens of millions of calls; the profiler would keep each of them, and then
take minutes to put them in order. Runs in the traced process: standard library only.
"""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

MOST_CALLS: Final = 400_000
"""Python calls that are recorded at most: the script waits 20 to 50 us for each on two slow cores, so 20 s, and the
profiler needs 2.5 kB of memory for each (measured with torch 2.13); a step of GPT-2 makes 30,000."""
MOST_NS: Final = 2_000_000_000
"""What the script waits for the steps with Python stacks at most, if nobody asked for them..."""
_SHARE: Final = 0.02
"""...and at most so much of what it has run by then..."""
_LEAST_NS: Final = 500_000_000
"""...but in the first 25 s so long (chosen: one step of a transformer of 24 small blocks with its lines), or as long as
the operators of one step take: overhead of tens of thousands of operators says little without a line."""
_CALL_NS: Final = 36_000
_CROWDED: Final = 4.5
"""A recorded call takes so many ns, and one ns more for every so many calls that are recorded with it. Measured with
torch 2.13 on two slow cores, with what the recorded steps are slower by: 40 us for each of 19,000 calls that run
operators, 62 us for each of 117,000, 9 us where they run none."""
_SLOWER_NS: Final = 7_000
"""Of that, what the step itself is slower by (measured with it)."""
_OPERATORS_WITH_LINES: Final = 3.0
"""With Python stacks a step's operators take at least so many times as long, however few its Python calls. Chosen: 2.9
times where 44,000 operators had the machine to themselves; where others took its cores, 52,000 took 7 times as long."""
_OPERATORS_AGAIN: Final = 2.0
"""Operators with their shapes take that times as long to record as without (measured: the stall doubles)."""
_LOOKED_AT_NS: Final = 200_000_000
_MOST_LOOKED_AT: Final = 20
"""Steps whose stack is sampled last so long together, or are so many (chosen: a hundred looks of 2 ms)."""
_BEGUN_NS: Final = time.perf_counter_ns()
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


class Allowance:
    """What the script may wait for the steps with Python stacks, and what that buys.

    `usual_ns` is its step without a profiler, `operators_ns` what it waited for each step of the timed recording.
    """

    def __init__(self, *, usual_ns: int, operators_ns: int, is_limited: bool) -> None:
        self.usual_ns, self._operators_ns = usual_ns, operators_ns
        self._is_limited, self._wanted_ns = is_limited, 0
        self.most_ns = self._now_ns()

    def _now_ns(self) -> int:
        run_ns = time.perf_counter_ns() - _BEGUN_NS
        most_ns = max(_LEAST_NS, round(_SHARE * run_ns), self.cost_ns(1, 0))
        return min(MOST_NS, most_ns) if self._is_limited else 1 << 62

    def waits_for(self, cost_ns: int) -> bool:
        """Wait until the run has lasted so long that this is allowed; gives whether that can be."""
        self._wanted_ns = cost_ns
        return cost_ns <= MOST_NS

    def is_long_enough(self) -> bool:
        """Whether it is allowed by now."""
        self.most_ns = self._now_ns()
        return self.most_ns >= self._wanted_ns

    @property
    def may_count(self) -> bool:
        """Whether there is time to count calls: that takes as long as the step, at the most."""
        return self.usual_ns <= self.most_ns

    def cost_ns(self, n_steps: int, n_calls: int) -> int:
        """What so many steps of so many calls take of the script's time."""
        n_all = n_steps * n_calls
        calls_ns = n_all * (_CALL_NS + n_all / _CROWDED) + n_steps * self._operators_ns
        return round(max(calls_ns, n_steps * self._operators_ns * _OPERATORS_WITH_LINES))

    def looks_ns(self, n_steps: int) -> int:
        """The same of steps whose stack is sampled."""
        return round(n_steps * self._operators_ns * _OPERATORS_AGAIN)

    def steps(self, n_steps: int, n_calls: int) -> int:
        """How many of so many steps of so many calls are paid for."""
        return next((n for n in range(n_steps, 0, -1) if self.cost_ns(n, n_calls) <= self.most_ns), 0)

    def looked_at(self, n_steps: int) -> int:
        """How many steps to sample where `n_steps` were asked for, 0 where the time is not even enough for one."""
        wanted = max(n_steps, min(_MOST_LOOKED_AT, _LOOKED_AT_NS // max(self.usual_ns, 1)))
        return next((n for n in range(wanted, 0, -1) if self.looks_ns(n) <= self.most_ns), 0)

    def longest_step_ns(self, n_calls: int) -> int:
        """What a recorded step may take: where it is more, something else is in it."""
        return 2 * (self.usual_ns + _SLOWER_NS * n_calls) + self.most_ns


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
