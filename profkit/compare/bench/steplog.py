"""The steps of a benchmarked script: those it tells with `profkit.capture.step`, else those that a capture would find.

Nothing is profiled. Runs in the script's process, loaded by its path: standard library only, and torch once the script
has imported it; Python 3.9 syntax.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
from array import array
from contextlib import suppress
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


class StepTimer:
    """When each step ended that a capture would find by itself; written to a file of the process when that ends.

    It is told what the training loop does by a capture's hooks (`listener.Listener`).
    """

    def __init__(self, folder: str) -> None:
        from _profkit_capture.inside import clock, exits, hooks, steps  # type: ignore[import-not-found]

        self.phase = None
        self.home_thread = threading.main_thread().ident or 0
        self._folder = folder
        self._in_backward = exits.in_backward
        self._name_of = steps.name_of
        self._is_capturing = clock.is_capturing_graph
        self._at_ns = array("q")
        self._has_home = False
        self._pid = os.getpid()
        self._finder: Any = steps.StepFinder(step_on="auto", is_safe=self._is_safe, on_candidate=self._on_candidate)
        self._hooks: Any = hooks.Hooks(self)

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
        with suppress(OSError), (Path(self._folder) / f"{self._pid}.found").open("w", encoding="utf-8") as file:
            self._finder.freeze()
            file.writelines([f"# {self._finder.described()}\n", *lines])

    def fail(self, error: BaseException) -> None:
        """Give up: the script runs on, and its wall time is known."""
        self._at_ns = array("q")
        self._hooks.remove()

    def optimizer_made(self) -> None:
        """An optimizer was made."""
        self._tell(self._finder.optimizer_made)

    def optimizers_were_made(self) -> None:
        """Never: nothing was made before torch was imported."""

    def optimizer_stepped(self, optimizer: Any, has_closure: bool) -> None:
        """An optimizer has made its step; the thread of the first one is the one that trains."""
        if not self._has_home:
            self._has_home, self.home_thread = True, threading.get_ident()
        self._tell(self._finder.optimizer_stepped, id(optimizer), has_closure=has_closure)

    def gradients_zeroed(self) -> None:
        """Gradients were cleared."""
        self._tell(self._finder.gradients_zeroed)

    def backward_began(self) -> None:
        """A backward pass begins."""
        self._tell(self._finder.backward_began)

    def backward_ended(self) -> None:
        """A backward pass has ended."""
        if not self._in_backward():
            self._tell(self._finder.backward_ended)

    def data_wanted(self, _iterator: Any) -> None:
        """The loop asks for a batch."""
        if threading.get_ident() == self.home_thread:
            self._tell(self._finder.data_wanted)

    def data_came(self, batch: Any) -> None:
        """A loader has given a batch: nobody looks into it."""

    def forward_began(self, module: Any) -> None:
        """An outermost module is called."""
        self._tell(self._finder.forward_began, id(module), self._name_of(module))

    def forward_ended(self, module: Any, duration_ns: int) -> None:
        """Its call has returned."""
        self._finder.forward_ended(id(module), duration_ns)

    def profiler_begins(self, profiler: Any) -> None:
        """The script profiles itself: its own affair."""

    def profiler_ended(self, profiler: Any) -> None:
        """As above."""

    def _tell(self, act: Any, *args: Any, **kwargs: Any) -> None:
        try:
            act(*args, **kwargs)
            self._follow()
        except Exception as error:  # noqa: BLE001 - whatever it is, the script goes on
            self.fail(error)

    def _follow(self) -> None:
        self._hooks.watch_forward(self._finder.forward_watch)

    def _is_safe(self) -> bool:
        is_home = threading.get_ident() == self.home_thread
        return is_home and self._hooks.optimizer_depth == 0 and not self._in_backward() and not self._is_capturing()

    def _on_candidate(self, source: str, _is_step: bool) -> None:
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
        StepTimer(folder).begin()

    sys.modules["_profkit_site"] = site
    spec.loader.exec_module(site)  # runs the hidden one as well
    sys.meta_path.insert(0, site._TorchWatch(start))  # noqa: SLF001
