"""When each step ended that a capture would find by itself, of a script that is benchmarked; nothing is recorded.

Runs in the script's process: standard library and torch only.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from array import array
from contextlib import suppress
from pathlib import Path

from ..options import Options
from .listener import Listener, guarded


class StepTimer(Listener):
    """Times of boundaries, written to a file of the process when that ends."""

    def __init__(self, folder: str) -> None:
        super().__init__(Options(folder))
        self._at_ns = array("q")

    def begin(self) -> None:
        """Watch from now on, to the end of the process."""
        self._hooks.install()
        self._follow()
        atexit.register(self.write)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def write(self) -> None:
        """Write when each step ended, and what ended it; where that is impossible the script ends as it would."""
        rows = self._finder.step_rows()
        if not rows or os.getpid() != self._pid:
            return
        lines = [f"{self._at_ns[row]} 0 0 0\n" for row in rows]
        with suppress(OSError), (Path(self.options.folder) / f"{self._pid}.found").open("w", encoding="utf-8") as file:
            self._finder.freeze()
            file.writelines([f"# {self._finder.described()}\n", *lines])

    def fail(self, error: BaseException) -> None:
        """Give up: the script runs on, and its wall time is known."""
        self._finder.forget()
        self._hooks.remove()

    @guarded
    def _on_candidate(self, source: str, is_step: bool) -> None:
        if source == "restart":
            self._at_ns = array("q")
            return
        if not self._at_ns and "multiprocessing" in sys.modules:
            import multiprocessing as mp
            from multiprocessing import util

            if mp.parent_process() is not None:  # such a child never runs atexit
                util.Finalize(None, self.write, exitpriority=100)
        self._at_ns.append(time.perf_counter_ns())

    def _after_fork(self) -> None:
        self._pid, self._has_home, self.home_thread = os.getpid(), False, threading.get_ident()
        self._finder.forget()
