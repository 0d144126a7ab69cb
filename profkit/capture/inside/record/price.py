"""What the script will wait until the recorded steps are written, told while they are recorded.

The profiler keeps a row in memory for each operator: what is in use beyond what the script itself adds tells how many
there are. Runs in the traced process: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from statistics import median
from typing import Any, Final

from ..places.looked import nothing_collected
from ..places.owners import is_own_path, is_package_path
from .host_watch import OURS

MOST_NS: Final = 1_000_000_000
"""What the script waits for the timed steps at most, unless it was told how many to record. Chosen: half of the 2 s
that a capture may take; the steps with Python stacks, the start and the end have the other half."""
_EVENT_BYTES: Final = 208
_EVENT_NS: Final = 9_000
"""For an operator: 3.2 us to stop, 2.4 to write, 2.0 to let go, the rest to record (torch 2.13 on two slow cores)."""
_MOST_TIMES: Final = 30
"""A row is as dear at most as so many times what it costs while it is recorded (330 to 510 ns for the 9 us above): what
takes no longer than usual has made few, whatever memory says."""
WITH_STACKS: Final = 3
"""Times as dear with stacks and shapes (measured with it: 33 us to stop and write, for more memory)."""
_LONGER: Final = 2
_LONGER_NS: Final = 50_000_000
"""So many times as long as usual, and at least so long, a recorded step lasts before it is asked what it makes
(chosen: in less it makes no more operators than are paid for)."""
TOO_MANY: Final = "a step ran more operators than can be written in time"
_EVERY_S: Final = 0.02
_LOOKS: Final = 4
"""In a row that find a step too dear, before it is left: what it computes with is let go meanwhile (chosen)."""
_AT_FIRST: Final = 3
"""Times the limit, from which one step is enough: it may make what lasts (chosen)."""
_PENDING: list[Callable[[], None]] = []
"""What the main thread is to do next: at most one."""


class _Malloc(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()  # noqa: SIM905
    )


@cache
def _ask() -> Any:
    """The C library's own account of the memory that it gave; None where it keeps none (glibc 2.33 and later do)."""
    with suppress(AttributeError, OSError):
        ask = ctypes.CDLL(None).mallinfo2
        ask.restype = _Malloc
        return ask
    return None


def held_bytes() -> int:
    """The memory that malloc has given and not got back, 0 where nobody tells."""
    ask = _ask()
    if ask is None:
        return 0
    told = ask()
    return int(told.uordblks + told.hblkhd)


class Price:
    """Of one recording: `boundary` at each step's end before it, `begin` where its first step begins."""

    def __init__(self, held: Callable[[], int] = held_bytes, now: Callable[[], int] = time.perf_counter_ns) -> None:
        self._held, self._now = held, now
        self._plain: deque[int] = deque(maxlen=11)
        self._begun = self._begun_ns = self._usual_ns = 0
        self._so_far: list[int] = []
        self._watch: threading.Thread | None = None
        self._ended = threading.Event()

    def boundary(self) -> None:
        """A step has ended that nothing records."""
        self._plain.append(self._held())

    def begin(self, usual_ns: int) -> None:
        """The first recorded step begins; one that nothing records takes so long."""
        self._begun, self._begun_ns, self._usual_ns = self._held(), self._now(), usual_ns

    def is_long(self, begun_ns: int) -> bool:
        """Whether a step that has begun then lasts far longer than usual by now."""
        return self._now() - begun_ns > max(_LONGER * self._usual_ns, _LONGER_NS)

    def so_far_ns(self, n_steps: int) -> int:
        """What the script will wait for what is recorded by now, in so many steps."""
        ends = list(self._plain)
        added = [end - begin for begin, end in zip(ends, ends[1:])]  # noqa: B905, RUF007 - Python 3.9
        own = max(median(added), 0) if added else 0
        beside = [end - place * own for place, end in enumerate(ends)]
        own = n_steps * own + (max(beside) - min(beside) if beside else 0)  # of the script, as far as it may differ
        longer_ns = max(self._now() - self._begun_ns - n_steps * self._usual_ns, 0)
        held_ns = max(self._held() - self._begun - own, 0) / _EVENT_BYTES * _EVENT_NS
        return round(min(held_ns, _MOST_TIMES * longer_ns))

    def is_spent(self, n_steps: int, so_far_ns: int) -> bool:
        """Whether to record one more step after so many, with that price, would be too dear; asked at the end of each.

        By the step that added least: memory of the script's own, or of its other threads, comes in some steps.
        """
        self._so_far.append(so_far_ns)
        if n_steps == 1:
            return so_far_ns > _AT_FIRST * MOST_NS
        each = [end - begin for begin, end in zip([0, *self._so_far], self._so_far)]  # noqa: B905 - Python 3.9
        return min(each) * (n_steps + 1) > MOST_NS

    def watch(self, is_due: Callable[[], bool], act: Callable[[], None]) -> None:
        """Have the main thread act between two lines of the script's own once it is due; asked by another thread."""
        self._watch = threading.Thread(target=self._look_on, args=(is_due, act), name=f"{OURS}price", daemon=True)
        self._watch.start()

    def end(self) -> None:
        """Watch no longer; the thread is gone then."""
        self._ended.set()
        _PENDING.clear()
        if self._watch not in (None, threading.current_thread()) and self._watch.is_alive():
            self._watch.join(1)

    def _look_on(self, is_due: Callable[[], bool], act: Callable[[], None]) -> None:
        n_due = 0
        with suppress(Exception):
            while not self._ended.wait(_EVERY_S):
                with nothing_collected():
                    n_due = n_due + 1 if is_due() else 0
                if n_due >= _LOOKS:
                    _PENDING[:] = [act]
                    ctypes.pythonapi.Py_AddPendingCall(_CALL, None)


def is_between_lines(frame: Any) -> bool:
    """Whether a frame runs code of the script or of a package, where the recording may end."""
    return frame is not None and (is_own_path(frame.f_code.co_filename) or is_package_path(frame.f_code.co_filename))


def _called(_: Any) -> int:
    """Do what is pending where the main thread runs code of the script's own; else the next look asks again."""
    if _PENDING and is_between_lines(sys._getframe(1)):  # noqa: SLF001
        _PENDING.pop()()
    return 0


_CALL: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_called)
