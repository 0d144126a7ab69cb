"""What a benchmarked script tells with `profkit.capture.step`: written down without any profiler.

Runs in the script's process, loaded by its path: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import math
import os
import sys
import time
from pathlib import Path
from typing import Any

STATE = "_profkit_capture_state"
"""Where `profkit.capture.step` looks for someone to tell."""


class StepLog:
    """One line for each step in a file of the process: clock in ns, tokens, padded tokens, samples."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._pid = 0
        self._file: Any = None

    def step(self, *, tokens: float = 0, padded_tokens: float = 0, samples: float = 0) -> None:
        """Write a step down; where that is impossible the script runs on."""
        now_ns = time.perf_counter_ns()
        try:
            if self._pid != os.getpid():  # a forked child writes a file of its own
                self._pid = os.getpid()
                self._file = (Path(self._folder) / f"{self._pid}.steps").open("w", buffering=1, encoding="utf-8")
            counts = " ".join(str(_finite(count)) for count in (tokens, padded_tokens, samples))
            self._file.write(f"{now_ns} {counts}\n")
        except (OSError, ValueError):
            return


def _finite(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # a tensor of more than one element
        return 0.0
    return number if math.isfinite(number) else 0.0


def install(folder: str, here: str) -> None:
    """Listen from now on, then run the sitecustomize that the one in `here` hides."""
    import importlib.machinery
    import importlib.util

    sys.modules[STATE] = StepLog(folder)  # type: ignore[assignment]
    sys.path[:] = [entry for entry in sys.path if entry != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)
