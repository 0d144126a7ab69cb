"""Changes to the host: garbage collection, threads, the allocator.

Runs in the tried process: standard library and torch only.
"""

from __future__ import annotations

import gc
from typing import Any, Final

import torch

from .base import Change, wrapped


class NoGc(Change):
    """No garbage collection while the steps are timed."""

    def stepped(self) -> None:
        """The model and the optimizer's state exist: they are kept out of collections, which end."""
        if not self.done:
            gc.collect()
            gc.freeze()
            gc.disable()
            wrapped(gc, "enable", lambda _original: None)
            self.done = "gc.freeze(), gc.disable() after the first step"


class Threads(Change):
    """So many threads within an operator, whatever the script asks for."""

    def install(self) -> None:
        """Set them, once and for all."""
        n_threads, n_before = int(self.how["n_threads"]), torch.get_num_threads()
        torch.set_num_threads(n_threads)
        self.done = f"threads {n_before} -> {n_threads}"
        wrapped(torch, "set_num_threads", self._asked)

    def _asked(self, _original: Any, count: int) -> None:
        self.done = f"threads {count} -> {self.how['n_threads']}"


class Segments(Change):
    """Memory segments that can grow; the allocator has read it from the environment."""

    def install(self) -> None:
        """Nothing is left to do."""
        self.done = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"


CHANGES: Final = {"no_gc": NoGc, "threads": Threads, "segments": Segments}
