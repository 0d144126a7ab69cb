"""What records one window: torch.profiler, started and stopped by hand, with absolute step numbers, or an Nsight tool.

A tool is given the range it waits for, and each step as an NVTX range. It has CUPTI, so torch's profiler stays off; its
host rows would only slow the steps that the tool looks at. Runs in the traced process: standard library and torch, and
nvtx where it is installed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile

from ...beside import files
from ...options import Options
from .. import clock
from ..exits import guard_children
from ..store import say_once
from .connections import Connections
from .host_watch import HostWatch
from .ranges import tool_is_attached, tool_marks

_STARTS_EARLY: Final = "nsys"
CUT: Final = "profkit: cut step"
"""The range in which the mark of a step ends that is not over (profkit/ingest/nsys/nvtx.py has it as well)."""


class Recorder:
    """One session of torch.profiler; `step` at each boundary, `stop` once, `export` once."""

    def __init__(self, options: Options, *, first_step: int, n_warmup: int) -> None:
        self.is_busy = False
        self.seen_beside: dict[str, Any] = {}
        """What `HostWatch` and `Connections` saw of the recorded steps, after `stop`."""
        self._watch: HostWatch | None = None
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


class ToolRecorder:
    """The same window as `Recorder`'s, recorded by `nsys` or `ncu`; nothing is exported.

    nsys takes long to begin, so it begins before the warm-up, which then lets the loader's queue run dry; the marks say
    which steps count. ncu begins with the first recorded step, from which launches are counted. A tool that records the
    whole run anyway is given the marks alone, which need no CUDA.
    """

    def __init__(self, options: Options, *, first_step: int, n_warmup: int) -> None:
        self._marks = tool_marks()
        self._opens_range = not options.marks_only
        if options.marks_only and self._marks is None:
            raise RuntimeError("steps cannot be marked without the nvtx package: pip install nvtx")
        if self._opens_range and not clock.cuda_in_use():
            raise RuntimeError(
                "this process does not use CUDA, so there is nothing to record; --whole records the host"
            )
        self.is_busy = False
        self.seen_beside: dict[str, Any] = {}
        self._starts_early = options.tool == _STARTS_EARLY
        self._step = first_step
        self._last_warmup = first_step + n_warmup - 1
        self._range_id: Any = None
        self._is_on = False

    def start(self) -> None:
        """Begin the range where the tool needs the time of the warm-up."""
        if self._starts_early or self._step > self._last_warmup:
            self._begin()
        self._open_step()

    def step(self) -> None:
        """One step ends, the next begins."""
        self.close_step()
        self._step += 1
        if self._step > self._last_warmup:
            self._begin()
        self._open_step()

    def stop(self) -> None:
        """End the range. A step that is still open is cut: a mark beside its end says that it is none.

        Left open, nsys would end it with the process.
        """
        if self._marks is not None and self._range_id is not None:
            begin, end = self._marks
            cut_id = begin(CUT)
            self.close_step()
            end(cut_id)
        if self._is_on:
            self._is_on = False
            torch.cuda.synchronize()  # what the last step has launched belongs to it
            torch.cuda.profiler.stop()

    def export(self, path: Path) -> None:
        """Write nothing: the tool writes its own report when the process ends."""

    def _begin(self) -> None:
        if self._opens_range and not self._is_on:
            self._is_on = True
            torch.cuda.synchronize()
            torch.cuda.profiler.start()

    def _open_step(self) -> None:
        if self._marks is not None and self._step > self._last_warmup:
            self._range_id = self._marks[0](f"ProfilerStep#{self._step}")

    def close_step(self) -> None:
        """End the mark of a step that is over."""
        if self._marks is not None and self._range_id is not None:
            self._marks[1](self._range_id)
            self._range_id = None


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
