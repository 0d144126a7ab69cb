"""What a large trace leaves behind in the C library's allocator."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Final

_MANY_EVENTS: Final = 500_000
"""Chosen: below, what lies about is a few MB."""


def return_free_memory(n_events: int) -> None:
    """Hand freed parts of columns back to the system if the trace is large; glibc keeps such small blocks otherwise."""
    if sys.platform == "linux" and n_events > _MANY_EVENTS:
        import ctypes  # 5 ms that a small trace need not pay

        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
