"""torch.profiler for one window, started and stopped by hand, with absolute step numbers.

Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Optional

from torch.profiler import ProfilerAction, ProfilerActivity, profile

from ...beside import files
from ...options import Options
from .. import clock
from ..exits import guard_children
from ..store import say_once
from .connections import Connections
from .host_watch import HostWatch
from .ranges import tool_is_attached


class Recorder:
    """One session of torch.profiler; `step` at each boundary, `stop` once, `export` once."""

    def __init__(self, options: Options, *, first_step: int, n_warmup: int) -> None:
        self.is_busy = False
        self.seen_beside: dict[str, Any] = {}
        """What `HostWatch` and `Connections` saw of the recorded steps, after `stop`."""
        self._watch: Optional[HostWatch] = None  # noqa: UP045 - Python 3.9
        self._connections = Connections()
        self._last_warmup = first_step + n_warmup - 1
        self._options = options
        activities = [ProfilerActivity.CPU]
        # Nsight tools and torch want the same CUPTI, which serves one: the tool that is there keeps it.
        if clock.cuda_in_use() and options.device != "cpu" and not tool_is_attached():
            activities.append(ProfilerActivity.CUDA)

        def action(step: int) -> ProfilerAction:
            is_warmup = n_warmup and step <= self._last_warmup  # it is asked of step 0 as well, whichever comes first
            return ProfilerAction.WARMUP if is_warmup else ProfilerAction.RECORD

        arguments: dict[str, Any] = {
            "activities": activities,
            "schedule": action,
            "record_shapes": options.shapes,
            "with_stack": options.stacks,
            "profile_memory": options.memory,
        }
        if activities == [ProfilerActivity.CPU] and not options.stacks:  # nobody asks for its tree, which takes time
            arguments.update(_without_tree())
        self._profiler = _profile_of_one_id(arguments, options.capture_id)
        self._profiler.step_num = first_step  # ProfilerStep#N counts from the start of the run

    def start(self) -> None:
        """Prepare the profiler; it records from the first step after the warm-up."""
        danger = guard_children()
        if danger:
            say_once(self._options, "children", danger)
        self._quietly(self._profiler.start)
        self._watch_recorded()

    def step(self) -> None:
        """One step ends, the next begins."""
        self._quietly(self._profiler.step)
        self._watch_recorded()

    def _watch_recorded(self) -> None:
        if self._watch is None and self._profiler.step_num > self._last_warmup:
            self._watch = HostWatch()
            self._watch.begin()
            self._connections.begin()

    def stop(self) -> None:
        """End the session."""
        if self._watch is not None:
            self.seen_beside = {"connections": self._connections.end(), **self._watch.end()}
        self._quietly(self._profiler.stop)

    def export(self, path: Path) -> None:
        """Write the trace as plain JSON; raises OSError if it did not arrive whole (a full disk is silent in C++)."""
        self._quietly(lambda: self._profiler.export_chrome_trace(str(path)))
        if not _is_whole(path):
            raise OSError("the profiler's export is incomplete; perhaps the disk is full")

    def tree(self) -> Any:
        """The events as the profiler has put them in order; raises AttributeError where this torch has none."""
        return self._profiler.profiler.kineto_results.experimental_event_tree()

    def _quietly(self, act: Any) -> None:
        self.is_busy = True
        try:
            with _no_warnings():
                act()
        finally:
            self.is_busy = False


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Show no warnings meanwhile.

    Where none is an error the filters stay as they are: each change of them makes Python show anew what the script has
    been warned of already.
    """
    if any(entry[0] == "error" for entry in warnings.filters):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
        return
    shown = warnings.showwarning
    warnings.showwarning = lambda *_, **__: None
    try:
        yield
    finally:
        warnings.showwarning = shown


def _is_whole(path: Path) -> bool:
    with suppress(FileNotFoundError), files().open_file(path, follow=False) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - 64))
        return bool(file.read().rstrip().endswith(b"}"))
    return False


def _without_tree() -> dict[str, Any]:
    """The argument with which the profiler makes the trace alone, where this torch can (2.12 and later)."""
    with suppress(ImportError, TypeError):
        from torch._C._profiler import _ExperimentalConfig

        return {"experimental_config": _ExperimentalConfig(trace_only=True)}
    return {}


def _profile_of_one_id(arguments: dict[str, Any], capture_id: str) -> profile:
    """A profiler whose trace id is that of the whole capture, where this torch can (2.6 and later)."""
    try:
        return profile(**arguments, custom_trace_id_callback=lambda: capture_id)
    except TypeError:
        return profile(**arguments)
