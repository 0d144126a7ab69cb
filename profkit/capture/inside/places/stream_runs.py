"""How often the lines of the script's own generators run while a worker makes a batch of a stream.

Python is asked for each line of these frames alone (`sys.settrace`), for a few batches whose times tell nothing else.
Runs in the traced process and its workers: standard library only.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable
from itertools import islice
from types import CodeType, FrameType
from typing import Any, Final

from .owners import is_own_path, place_of

_MOST_LINES: Final = 100


class Runs:
    """Counts by line: runs, samples given there, and the time up to the next line."""

    def __init__(self) -> None:
        self._found: dict[tuple[CodeType, int], list[int]] = {}
        self._at: dict[CodeType, tuple[list[int], int]] = {}
        self._is_own: dict[CodeType, bool] = {}

    def during(self, make: Callable[[], Any]) -> Any:
        """What `make` gives; nothing is counted where somebody else traces."""
        if sys.gettrace() is not None:
            return make()
        sys.settrace(self._called)
        try:
            return make()
        finally:
            sys.settrace(None)

    def told(self) -> list[list[Any]]:
        """Path, function, where it begins, line, "", runs, given, ns."""
        return [
            [*place_of(code), line, "", *counts] for (code, line), counts in islice(self._found.items(), _MOST_LINES)
        ]

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code not in self._is_own:
            is_generator = bool(code.co_flags & inspect.CO_GENERATOR) and not code.co_name.startswith("<")
            self._is_own[code] = is_generator and is_own_path(code.co_filename)
        return self._ran if self._is_own[code] else None

    def _ran(self, frame: FrameType, event: str, _: Any) -> Any:
        code, now_ns = frame.f_code, time.perf_counter_ns()
        before = self._at.pop(code, None)
        if before is not None:
            before[0][2] += now_ns - before[1]
            before[0][1] += event == "return"
        if event == "line":
            counts = self._found.setdefault((code, frame.f_lineno), [0, 0, 0])
            counts[0] += 1
            self._at[code] = (counts, now_ns)
        return self._ran
