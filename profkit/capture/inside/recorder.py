"""torch.profiler for one window, started and stopped by hand, with absolute step numbers.

Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import linecache
import os
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch.profiler import ProfilerAction, ProfilerActivity, profile

from ..beside import files
from ..options import Options
from . import clock
from .exits import guard_children
from .ranges import tool_is_attached
from .store import say_once

_MOST_CALLS = 100_000
_MOST_TEXTS = 2_000
_MOST_CHARS = 160


class Recorder:
    """One session of torch.profiler; `step` at each boundary, `stop` once, `export` once."""

    def __init__(self, options: Options, *, first_step: int, n_warmup: int) -> None:
        self.is_busy = False
        self.lines: dict[str, Any] = {}
        self._options = options
        activities = [ProfilerActivity.CPU]
        # Nsight tools and torch want the same CUPTI, which serves one: the tool that is there keeps it.
        if clock.cuda_in_use() and options.device != "cpu" and not tool_is_attached():
            activities.append(ProfilerActivity.CUDA)
        last_warmup = first_step + n_warmup - 1

        def action(step: int) -> ProfilerAction:
            return ProfilerAction.WARMUP if step <= last_warmup else ProfilerAction.RECORD

        arguments: dict[str, Any] = {
            "activities": activities,
            "schedule": action,
            "record_shapes": options.shapes,
            "with_stack": options.stacks,
            "profile_memory": options.memory,
        }
        self._profiler = _profile_of_one_id(arguments, options.capture_id)
        self._profiler.step_num = first_step  # ProfilerStep#N counts from the start of the run

    def start(self) -> None:
        """Prepare the profiler; it records from the first step after the warm-up."""
        danger = guard_children()
        if danger:
            say_once(self._options, "children", danger)
        self._quietly(self._profiler.start)

    def step(self) -> None:
        """One step ends, the next begins."""
        self._quietly(self._profiler.step)

    def stop(self) -> None:
        """End the session."""
        self._quietly(self._profiler.stop)

    def export(self, path: Path) -> None:
        """Write the trace as plain JSON; raises OSError if it did not arrive whole (a full disk is silent in C++)."""
        self._quietly(lambda: self._profiler.export_chrome_trace(str(path)))
        if not _is_whole(path):
            raise OSError("the profiler's export is incomplete; perhaps the disk is full")
        if self._options.stacks:
            with suppress(Exception):  # not a promised interface of torch's
                self.lines = called_lines(self._profiler)

    def _quietly(self, act: Any) -> None:
        self.is_busy = True
        try:
            with _no_warnings():
                act()
        finally:
            self.is_busy = False


def called_lines(profiler: profile) -> dict[str, Any]:
    """The line from which the script's own code made each call: the trace says only where functions begin.

    `calls`: when each called function began (`unix_ns`) and the `line` of its caller then; `texts`: "file:line", the
    file as the trace writes it, to what stands there. Of callers in installed packages there is nothing.
    """
    at: list[int] = []
    line: list[int] = []
    texts: dict[str, str] = {}
    places: dict[str, str] = {}
    events = list(profiler.profiler.kineto_results.experimental_event_tree())
    while events:
        event = events.pop()
        events += event.children
        caller = getattr(event.extra_fields, "caller", None)
        if caller is None or caller.line_number <= 0:
            continue
        name = caller.file_name
        if name not in places:
            places[name] = _own_path(name)
        if places[name] and len(at) < _MOST_CALLS:
            at.append(event.start_time_ns)
            line.append(caller.line_number)
            key = f"{name}:{caller.line_number}"
            if key not in texts and len(texts) < _MOST_TEXTS:
                texts[key] = linecache.getline(places[name], caller.line_number).strip()[:_MOST_CHARS]
    return {"calls": {"unix_ns": at, "line": line}, "texts": texts}


def _own_path(name: str) -> str:
    """The path of a file as the profiler names it, "" for one of an installed package or of the standard library."""
    if name.startswith("<"):
        return ""
    path = next((path for path in (Path(one, name) for one in ["", *sys.path]) if path.is_file()), None)
    whole = os.path.realpath(path) if path is not None else ""
    paths = sysconfig.get_paths()
    installed = tuple(os.path.realpath(paths[one]) + os.sep for one in ("stdlib", "platstdlib", "purelib", "platlib"))
    return "" if whole.startswith(installed) else whole


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


def _profile_of_one_id(arguments: dict[str, Any], capture_id: str) -> profile:
    """A profiler whose trace id is that of the whole capture, where this torch can (2.6 and later)."""
    try:
        return profile(**arguments, custom_trace_id_callback=lambda: capture_id)
    except TypeError:
        return profile(**arguments)
