"""The steps of a benchmarked script: those it tells with `profkit.capture.step`, else those that a capture would find.

Nothing is profiled. Runs in the script's process, loaded by its path: standard library only, and torch once the script
has imported it; Python 3.9 syntax.
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


def install(folder: str, here: str, capture: str) -> None:
    """Listen from now on, and find steps once torch is imported; run the sitecustomize that the one in `here` hides.

    `capture` is the folder of profkit.capture.
    """
    import importlib.util

    sys.modules[STATE] = StepLog(folder)  # type: ignore[assignment]
    sys.path[:] = [entry for entry in sys.path if entry != here]
    path = Path(capture) / "site" / "sitecustomize.py"
    spec = importlib.util.spec_from_file_location("_profkit_site", path)
    if spec is None or spec.loader is None:
        return
    site: Any = importlib.util.module_from_spec(spec)

    def start() -> None:
        site._make_package(capture)  # noqa: SLF001
        from _profkit_capture.inside.step_timer import StepTimer  # type: ignore[import-not-found]

        StepTimer(folder).begin()

    sys.modules["_profkit_site"] = site
    spec.loader.exec_module(site)  # runs the hidden one as well
    sys.meta_path.insert(0, site._TorchWatch(start))  # noqa: SLF001
