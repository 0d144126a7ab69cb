"""The `h2d` range: moves of host tensors to a device, seen only while steps are recorded.

Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch

_Phase = Callable[[str], AbstractContextManager[Any]]


class CopyWatch:
    """Wraps `Tensor.to` and `Tensor.cuda` between `begin` and `end`; both are torch's own again afterwards."""

    def __init__(self) -> None:
        self._wrapped: dict[str, Any] = {}

    def begin(self, phase: _Phase) -> None:
        """Open a range around every move of a host tensor to a device."""
        for name, leaves_host in (("to", _leaves_host), ("cuda", _always)):
            if name in vars(torch.Tensor):  # somebody else's wrapper: not ours to wrap and take out again
                continue
            wrapper = _wrapper(getattr(torch.Tensor, name), leaves_host, phase)
            self._wrapped[name] = wrapper
            setattr(torch.Tensor, name, wrapper)

    def end(self) -> None:
        """Take the wrappers out, unless somebody has wrapped them since."""
        while self._wrapped:
            name, wrapper = self._wrapped.popitem()
            if vars(torch.Tensor).get(name) is wrapper:
                delattr(torch.Tensor, name)


def _wrapper(original: Any, leaves_host: Callable[..., bool], phase: _Phase) -> Any:
    @functools.wraps(original)
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
