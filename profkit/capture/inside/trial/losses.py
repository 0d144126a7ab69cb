"""The losses that went backward, kept as they are: to read one at once would make the host wait for the device.

Runs in the tried process: standard library and torch only.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import torch

from ..patches import Patches

_MOST: Final = 100_000


class Losses:
    """Every scalar that `backward` was called on, detached; `removed` puts torch back."""

    def __init__(self) -> None:
        self._kept: list[Any] = []
        self._patches = Patches()

    @property
    def count(self) -> int:
        """How many were seen."""
        return len(self._kept)

    def install(self) -> None:
        """Keep the losses from now on."""
        self._patches.wrap(torch.autograd, "backward", self._keeping)

    def _keeping(self, original: Any) -> Any:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling() and len(self._kept) < _MOST:
                with suppress(Exception):  # whatever was given: backward itself says what is wrong with it
                    given = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
                    self._kept.append(given.detach().clone() if given.numel() == 1 else None)
            return original(tensors, *args, **kwargs)

        return backward

    def remove(self) -> None:
        """Put torch back as it was."""
        self._patches.take_out()

    def values(self) -> list[float]:
        """The losses in the order of their backward passes; NaN for what was none."""
        found = []
        for kept in self._kept:
            try:
                found.append(float(kept))
            except (TypeError, ValueError, RuntimeError):
                found.append(float("nan"))
        return found
