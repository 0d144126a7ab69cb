"""What a trial keeps beside the steps: the losses that went backward, and the files that the script opens for writing.

Losses are kept as they are, since to read one at once would make the host wait for the device; files are seen by an
audit hook: what else a trial leaves behind. Runs in the tried process: standard library and torch only.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from typing import Any, Final

import torch

from ..patches import Patches

_MOST_LOSSES: Final = 100_000
_MOST_FILES: Final = 20
_WRITING: Final = os.O_WRONLY | os.O_RDWR
_NOT_THEIRS: Final = ("/dev/", "/proc/", "/sys/")
_CACHES: Final = ("__pycache__", "torchinductor", ".triton", ".cache")


class Losses:
    """Every scalar that `backward` was called on, detached; `remove` puts torch back."""

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
            if not torch.compiler.is_compiling() and len(self._kept) < _MOST_LOSSES:
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


class Wrote:
    """The paths of files opened for writing by this process, the first ones; a hook cannot be taken out again."""

    def __init__(self, own: str) -> None:
        self.paths: list[str] = []
        self._pid = os.getpid()
        self._passed = (*_NOT_THEIRS, own)
        self._temporary, self._here = tempfile.gettempdir() + os.sep, os.getcwd() + os.sep  # noqa: PTH109 - as below
        self._is_on = True

    def begin(self) -> None:
        """Listen from now on."""
        sys.addaudithook(self._on_event)

    def end(self) -> None:
        """Listen no more."""
        self._is_on = False

    def _on_event(self, event: str, args: tuple[Any, ...]) -> None:
        if event != "open" or not self._is_on or len(self.paths) >= _MOST_FILES or os.getpid() != self._pid:
            return
        path, _, flags = args
        if isinstance(path, str) and isinstance(flags, int) and flags & _WRITING:
            self.add(path)

    def add(self, path: str) -> None:
        """A file is written; temporary ones and caches are nobody's."""
        full = os.path.abspath(path)  # noqa: PTH100 - pathlib would import more inside every open
        is_temporary = full.startswith(self._temporary) and not full.startswith(self._here)
        if full.startswith(self._passed) or is_temporary or any(part in full for part in _CACHES):
            return
        if self._is_on and path not in self.paths and len(self.paths) < _MOST_FILES and os.getpid() == self._pid:
            self.paths.append(path)
