"""A window for an Nsight tool that records: the range it waits for, and each step as an NVTX range.

The tool has CUPTI, so torch's profiler stays off; its host rows would only slow the steps that the tool looks at. Runs
in the traced process: standard library and torch, and nvtx where it is installed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch

from ...options import Options
from .. import clock
from .ranges import tool_marks

_STARTS_EARLY: Final = "nsys"
CUT: Final = "profkit: cut step"
"""The range in which the mark of a step ends that is not over (profkit/ingest/nsys/nvtx.py has it as well)."""


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
