"""Named ranges around the phases of a step: for torch.profiler, and for an Nsight tool where one is attached.

They exist only while steps are recorded. Standard library and torch; nvtx where a tool listens.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from torch.autograd.profiler import record_function

_TOOL_VARIABLES = ("NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH")


def tool_is_attached() -> bool:
    """Whether Nsight Systems, Nsight Compute or the like has injected itself into this process."""
    return any(os.environ.get(name) for name in _TOOL_VARIABLES)


def make_phase() -> Callable[[str], AbstractContextManager[Any]]:
    """Give the function that opens a range of this name."""
    domain = _nvtx_domain() if tool_is_attached() else None
    if domain is None:
        plain: Callable[[str], AbstractContextManager[Any]] = record_function
        return plain
    ids: dict[str, Any] = {}

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        if name not in ids:
            ids[name] = domain.get_event_attributes(message=name)
        # Not push and pop: those belong to a thread, and backward launches from another one.
        range_id = domain.start_range(ids[name])
        try:
            with record_function(name):
                yield
        finally:
            domain.end_range(range_id)

    return phase


def _nvtx_domain() -> Any:
    try:
        import nvtx
    except ImportError:
        return None
    return nvtx.get_domain("profkit") if nvtx.enabled() else None
