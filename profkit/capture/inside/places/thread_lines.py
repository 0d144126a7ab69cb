"""What the other threads of Python do while and after steps are recorded, and which keep the lock of the interpreter.

A thread looks at their stacks every few milliseconds. A look needs the lock (GIL): where it comes late, somebody has
kept that meanwhile, and it was the thread of Python that ran most of this time. Runs in the traced process: standard
library and torch only.
"""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import suppress
from typing import Any, Final

from ..record.host_watch import OURS, scheduled
from .looked import Lines, Moment, frames_now, nothing_collected
from .owners import is_own_path
from .worker_lines import Line, as_told, innermost, stack_of, words_of

_EVERY_S: Final = 0.004
_LATE_NS: Final = 1_000_000
"""By which a look comes late where it waited for the lock. Chosen: a timer of Linux is 0.1 ms late; a thread that holds
the lock is asked for it after 5 ms (`sys.getswitchinterval`)."""
_CPU_CLOCK: Final = 6
"""Of Linux' numbers of clocks: the time that a thread runs (`CPUCLOCK_SCHED | CPUCLOCK_PERTHREAD_MASK`)."""
_MOST_LOOKS: Final = 2_000
_IDLE_LOOKS: Final = 16
"""Looks after which it looks `_SELDOM` times as seldom where all other threads were waiting in each. Chosen: a tenth of
a second; a monitor that wakes four times a second is seen then, too, at a fifth of the cost."""
_SELDOM: Final = 5
_AT_WORK: Final = 0.05
"""Of the time, from which a thread that runs is at work. Chosen."""
_MOST_THREADS: Final = 64
_MOST_LINES: Final = 200
_MOST_TOLD: Final = 20
_MOST_NAME: Final = 80
_WAITING: Final = frozenset(
    ("wait", "get", "put", "acquire", "join", "_wait_for_tstate_lock", "wait_for", "select", "poll")
)
_WAITING_IN: Final = frozenset(("threading.py", "queue.py", "selectors.py", "connection.py", "socket.py"))
"""Functions of the standard library in which a thread has nothing to do."""


class _Seen:
    """One thread: times in ns, and looks."""

    def __init__(self, name: str, native: int, owns: Any) -> None:
        self.name, self.native = name, native
        self.idle_ns = self.seen_ns = self.ran_ns = self.n_looks = 0
        self.held_ns = 0.0
        """Until looks that had to wait for the lock, each as far as it ran meanwhile."""
        self.at: dict[Line | None, list[int]] = {}
        self.lines = Lines(owns)


class ThreadLooks:
    """Looks at all threads of Python but the one that makes it, from `start` to `stop`; `told` says what they did."""

    def __init__(self) -> None:
        self._home = threading.get_ident()
        self._seen: dict[int, _Seen] = {}
        self._run_ns: dict[int, int] = {}
        self._others: list[int] = []
        self._is_own: dict[str, bool] = {}
        self._ended = threading.Event()
        self._random = random.Random(os.getpid())  # noqa: S311 - its own: the script's numbers stay as they are
        self._looking = threading.Thread(target=self._look_on, name=f"{OURS}threads", daemon=True)

    def start(self) -> None:
        """Begin to look, if there are others."""
        self._others = [one.ident for one in threading.enumerate() if one.ident is not None and self._is_other(one)]
        if self._others:
            self._ran()
            self._looking.start()

    def stop(self) -> None:
        """End it; the thread is gone then."""
        self._ended.set()
        if self._looking.is_alive():
            self._looking.join(1)

    @property
    def saw_work(self) -> bool:
        """Whether another thread of Python was at work for a part of the time."""
        return any(one.ran_ns > _AT_WORK * (one.seen_ns + one.idle_ns) for one in list(self._seen.values()))

    def told(self) -> list[dict[str, Any]]:
        """Of each thread how long it was idle (ns) and not, for which share of that it held the lock, and its lines."""
        return [self._told(one) for one in list(self._seen.values()) if one.n_looks]

    def _told(self, one: _Seen) -> dict[str, Any]:
        known = [(line, times) for line, times in one.at.items() if line is not None]
        most = sorted(known, key=lambda item: -item[1][0])[:_MOST_TOLD]
        lines = [{**as_told(*words_of(line)), "ns": times[0], "n_looks": times[1]} for line, times in most]
        times = {
            "seen_ns": one.seen_ns,
            "idle_ns": one.idle_ns,
            "held_share": _share(one.held_ns, one.seen_ns + one.idle_ns),
        }
        return {"thread": one.native, "n_looks": one.n_looks, **times, "lines": lines}

    def _is_other(self, one: threading.Thread) -> bool:
        return one.ident not in (None, self._home) and not one.name.startswith(OURS)

    def _look_on(self) -> None:
        with suppress(Exception):
            last_ns = time.perf_counter_ns()
            mine = threading.get_native_id()
            waited = (scheduled(mine) or (0, 0))[1]
            for place in range(_MOST_LOOKS):
                is_idle = place >= _IDLE_LOOKS and not any(one.seen_ns for one in self._seen.values())
                every_s = _EVERY_S * (_SELDOM if is_idle else 1)
                pause_s = every_s * self._random.uniform(0.5, 1.5)  # not in time with what the script repeats
                due_ns = time.perf_counter_ns() + round(pause_s * 1e9)
                if self._ended.is_set():
                    return
                self._ended.wait(pause_s)
                now_ns = time.perf_counter_ns()
                stacks, ran = self._stacks(), self._ran()  # at once: to read a file lets the others go on
                is_late = now_ns - due_ns >= _LATE_NS
                if is_late:  # a core that was not free is not the lock
                    waits = (scheduled(mine) or (0, 0))[1]
                    is_late, waited = now_ns - due_ns - (waits - waited) >= _LATE_NS, waits
                with nothing_collected():
                    self._look(stacks, ran, now_ns - last_ns, is_late=is_late)
                last_ns = now_ns

    def _stacks(self) -> dict[int, list[Moment]]:
        """What runs in each thread that was there when the looks began, or at an earlier look."""
        frames = frames_now()
        return {ident: stack_of(frames.get(ident)) for ident in self._others}

    def _look(self, stacks: dict[int, list[Moment]], ran: dict[int, int], passed_ns: int, *, is_late: bool) -> None:
        in_all = sum(ran.values())
        others = [one for one in threading.enumerate() if self._is_other(one)]
        self._others = [one.ident for one in others if one.ident is not None]
        for one in others:
            stack, native = stacks.get(one.ident or 0), one.native_id
            if native not in ran or not stack or native is None:
                continue
            if native not in self._seen:
                if len(self._seen) >= _MOST_THREADS:
                    continue
                self._seen[native] = _Seen(one.name[:_MOST_NAME], native, self._owns)
            self._seen[native].ran_ns += ran[native]
            self._seen[native].held_ns += passed_ns * ran[native] / max(in_all, 1) if is_late else 0.0
            self._note(self._seen[native], stack, passed_ns, is_prompt=not is_late)

    def _ran(self) -> dict[int, int]:
        """How long each thread of Python but for ours has run since this was last asked, ns."""
        ran = {}
        for one in threading.enumerate():
            native = one.native_id
            if native and not one.name.startswith(OURS):
                with suppress(OSError):  # it has ended
                    now_ns = time.clock_gettime_ns((~native << 3) | _CPU_CLOCK)
                    ran[native] = now_ns - self._run_ns.get(native, now_ns)
                    self._run_ns[native] = now_ns
        return ran

    def _note(self, one: _Seen, stack: list[Moment], passed_ns: int, *, is_prompt: bool) -> None:
        one.n_looks += 1
        top = stack[0].code
        if top.co_name in _WAITING and os.path.basename(top.co_filename) in _WAITING_IN:  # noqa: PTH119
            one.idle_ns += passed_ns
            return
        one.seen_ns += passed_ns
        line = innermost(stack, one.lines, self._owns, is_prompt=is_prompt)
        if line not in one.at and len(one.at) >= _MOST_LINES:
            line = None
        times = one.at.setdefault(line, [0, 0])
        times[0], times[1] = times[0] + passed_ns, times[1] + 1

    def _owns(self, file: str) -> bool:
        if file not in self._is_own:
            self._is_own[file] = is_own_path(file)
        return self._is_own[file]


def _share(part_ns: float, whole_ns: int) -> float:
    return round(min(part_ns / whole_ns, 1.0), 4) if whole_ns else 0.0
