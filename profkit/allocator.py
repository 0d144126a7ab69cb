"""What reading a trace asks of the allocator and of the garbage collector."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

_MANY_EVENTS: Final = 500_000
"""Chosen: below, what lies about is a few MB."""


_OBJECTS_BETWEEN_LOOKS: Final = 50_000
"""Chosen: a few MB lie about between two looks; by Python's own 700 it looks hundreds of times in a start."""


def collector_patient() -> None:
    """Let the garbage collector look seldom: nearly all that a command makes is in use until it ends."""
    gc.set_threshold(_OBJECTS_BETWEEN_LOOKS)


@contextmanager
def collector_paused(*, is_last: bool = False) -> Iterator[None]:
    """Pause the garbage collector: it would walk the millions of objects of decoding, which hold no cycles.

    It does not look at what a command made meanwhile that is the process's last: that took 15 ms just before the end.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if is_last:
                gc.freeze()
            gc.enable()


def return_free_memory(n_events: int) -> None:
    """Hand freed parts of columns back to the system if the trace is large; glibc keeps such small blocks otherwise."""
    if sys.platform == "linux" and n_events > _MANY_EVENTS:
        import ctypes  # 5 ms that a small trace need not pay

        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
