"""The losses that went backward, kept as they are: to read one at once would make the host wait for the device.

Runs in the tried process: standard library and torch only.
"""

from __future__ import annotations

import functools
from contextlib import suppress
from typing import Any, Final

import torch

_MOST: Final = 100_000


class Losses:
    """Every scalar that `backward` was called on, detached; `removed` puts torch back."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._original: Any = None
        self._wrapper: Any = None

    @property
    def count(self) -> int:
        """How many were seen."""
        return len(self._kept)

    def install(self) -> None:
        """Keep the losses from now on."""
        original: Any = torch.autograd.backward

        @functools.wraps(original)
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling() and len(self._kept) < _MOST:
                with suppress(Exception):  # whatever was given: backward itself says what is wrong with it
                    given = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
                    self._kept.append(given.detach().clone() if given.numel() == 1 else None)
            return original(tensors, *args, **kwargs)

        self._original, self._wrapper = original, backward
        torch.autograd.backward = backward

    def remove(self) -> None:
        """Put torch back as it was."""
        if torch.autograd.backward is self._wrapper:
            torch.autograd.backward = self._original

    def values(self) -> list[float]:
        """The losses in the order of their backward passes; NaN for what was none."""
        found = []
        for kept in self._kept:
            try:
                found.append(float(kept))
            except (TypeError, ValueError, RuntimeError):
                found.append(float("nan"))
        return found
