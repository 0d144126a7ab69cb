"""Named ranges around the phases of a step: for torch.profiler, and for an Nsight tool where one is attached.

`h2d`, around moves of host tensors to a device, is one of them.

They exist only while steps are recorded. Standard library and torch; nvtx where a tool listens.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch.autograd.profiler import record_function

from ..patches import Patches

_Phase = Callable[[str], AbstractContextManager[Any]]
_DOMAIN = "profkit"
_TOOL_VARIABLES = ("NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID", "CUDA_INJECTION64_PATH")


def tool_is_attached() -> bool:
    """Whether Nsight Systems, Nsight Compute or the like has injected itself into this process."""
    return any(os.environ.get(name) for name in _TOOL_VARIABLES)


def make_phase() -> Callable[[str], AbstractContextManager[Any]]:
    """The function that opens a range of this name; it has the attribute `is_for_tool` where a tool sees the range."""
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

    phase.is_for_tool = True  # type: ignore[attr-defined]
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
    domain = _domain(nvtx)
    return (lambda name: domain.start_range(domain.get_event_attributes(message=name))), domain.end_range


def _domain(nvtx: Any) -> Any:
    """The domain of profkit's ranges, of a kind that reaches every tool.

    Newer nvtx packages ask the tool whether it wants the domain. Older nsys (seen: 2022.4 with nvtx 0.2.17) does not
    know the question, its silence is taken for a no, and all ranges of Python are lost (NVIDIA/NVTX, issue 126).
    """
    domain = nvtx.get_domain(_DOMAIN)
    kinds = getattr(getattr(nvtx, "_lib", None), "lib", None)
    if kinds is None or not isinstance(domain, getattr(kinds, "DummyDomain", ())):
        return domain
    real = object.__new__(kinds.Domain)
    real.handle = kinds.DomainHandle(_DOMAIN)
    real.__init__(_DOMAIN)
    return real


class CopyWatch:
    """Wraps `Tensor.to` and `Tensor.cuda` between `begin` and `end`; both are torch's own again afterwards."""

    def __init__(self) -> None:
        self._patches = Patches()

    def begin(self, phase: _Phase) -> None:
        """Open a range around every move of a host tensor to a device."""
        for name, leaves_host in (("to", _leaves_host), ("cuda", _always)):
            if name not in vars(torch.Tensor):  # else somebody else's wrapper: not ours to wrap and take out again
                self._patches.wrap(torch.Tensor, name, functools.partial(_wrapper, leaves_host, phase))

    def end(self) -> None:
        """Take the wrappers out, unless somebody has wrapped them since."""
        self._patches.take_out()


def _wrapper(leaves_host: Callable[..., bool], phase: _Phase, original: Any) -> Any:
    def move(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or tensor.device.type != "cpu" or not leaves_host(*args, **kwargs):
            return original(tensor, *args, **kwargs)
        with phase("h2d"):
            return original(tensor, *args, **kwargs)

    return move


def _always(*_: Any, **__: Any) -> bool:
    return True


def _leaves_host(*args: Any, **kwargs: Any) -> bool:
    """Whether these arguments of `Tensor.to` name a device that is not the host: a device, a name, a tensor's."""
    target = kwargs.get("device", kwargs.get("other", args[0] if args else None))
    if isinstance(target, torch.Tensor):
        target = target.device
    if isinstance(target, torch.device):
        return bool(target.type != "cpu")
    if isinstance(target, str):
        return not target.startswith("cpu")
    return isinstance(target, int)
