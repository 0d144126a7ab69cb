"""Named ranges around the phases of a step: for torch.profiler, and for an Nsight tool where one is attached.

They exist only while steps are recorded. Standard library and torch; nvtx where a tool listens.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.autograd.profiler import record_function

_TOOL_VARIABLES = ("NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH")


def tool_is_attached() -> bool:
    """Whether Nsight Systems, Nsight Compute or the like has injected itself into this process."""
    return any(os.environ.get(name) for name in _TOOL_VARIABLES)


def make_phase() -> Callable[[str], AbstractContextManager[Any]]:
    """The function that opens a range of this name."""
    marks = tool_marks() if tool_is_attached() else None
    if marks is None:
        plain: Callable[[str], AbstractContextManager[Any]] = record_function
        return plain
    begin, end = marks

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        range_id = begin(name)
        try:
            with record_function(name):
                yield
        finally:
            end(range_id)

    return phase


def tool_marks() -> tuple[Callable[[str], Any], Callable[[Any], None]] | None:
    """How an NVTX range is begun (by its name, gives an id) and ended, None where nothing can mark.

    Not push and pop: those belong to a thread, and backward launches from another one. By the nvtx package, whose
    ranges lie in a domain of their own, else by torch's, where this torch has CUDA.
    """
    try:
        import nvtx
    except ImportError:
        return (torch.cuda.nvtx.range_start, torch.cuda.nvtx.range_end) if torch.version.cuda else None
    if not nvtx.enabled():
        return None
    domain = nvtx.get_domain("profkit")
    return (lambda name: domain.start_range(domain.get_event_attributes(message=name))), domain.end_range
