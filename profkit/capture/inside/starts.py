"""How often the workers of a DataLoader are started anew, and what that takes from the loop.

Without persistent_workers each pass over a loader starts its processes: their start, the wait for the first batch and
the end of the ones before are timed. Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import os
import time
import weakref
from contextlib import suppress
from typing import Any, Final

from torch.utils.data import dataloader

from .patches import Patches

_MOST_LOADERS: Final = 64


class _Loader:
    """One loader, or several of one kind of which each is made when the one before is gone."""

    def __init__(self, loader: Any, kind: str) -> None:
        self.loader, self.kind = weakref.ref(loader), kind
        self.n_workers = int(getattr(loader, "num_workers", 0))
        self.n_starts = self.n_batches = self.spent_ns = 0
        self.begun_at = self.last_at = 0
        """How many steps the script had made by its first and its latest start."""
        self.is_rebuilt = False
        self.latest = 0
        self.pending: list[int] = [0, 0]
        """Of the latest pass: its batches, and how long its end took."""


class WorkerStarts:
    """Wraps the iterator of a loader with workers between `install` and `remove`."""

    def __init__(self) -> None:
        self._loaders: list[_Loader] = []
        self._of: dict[int, _Loader] = {}
        self._patches = Patches()
        self._pid = 0
        self.n_steps = 0
        """Steps of the script so far, as far as they are known for such."""

    def install(self) -> None:
        """From now on starts are timed."""
        self._pid = os.getpid()
        kind = getattr(dataloader, "_MultiProcessingDataLoaderIter", None)
        for name, wrapped in (
            ("__init__", self._starting),
            ("_next_data", self._next),
            ("_shutdown_workers", self._ending),
        ):
            if kind is not None and name in vars(kind):
                self._patches.wrap(kind, name, wrapped)

    def remove(self) -> None:
        """Take the wrappers out, unless somebody has wrapped them since."""
        self._patches.take_out()
        self._of.clear()

    def told(self) -> list[dict[str, Any]]:
        """Of each loader that was passed over more than once: its starts after the first, `ns` of them in all.

        `batches` are those of the whole passes between these starts, `steps` those that the script made meanwhile.
        """
        return [
            {
                "n_workers": one.n_workers,
                "starts": one.n_starts - 1,
                "ns": one.spent_ns,
                "batches": one.n_batches,
                "steps": one.last_at - one.begun_at,
                "is_rebuilt": one.is_rebuilt,
            }
            for one in self._loaders
            if one.n_starts > 1 and one.n_batches
        ]

    def _starting(self, original: Any) -> Any:
        def __init__(iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            begun_ns = time.perf_counter_ns()
            original(iterator, loader, *args, **kwargs)
            if os.getpid() == self._pid:
                with suppress(Exception):  # the script's own loader may be of any kind
                    self._started(iterator, loader, time.perf_counter_ns() - begun_ns)

        return __init__

    def _started(self, iterator: Any, loader: Any, spent_ns: int) -> None:
        kind = type(loader.dataset).__qualname__
        known = next((one for one in self._loaders if one.loader() is loader), None)
        if known is None:
            known = next((one for one in self._loaders if one.loader() is None and one.kind == kind), None)
            if known is not None:
                known.loader, known.is_rebuilt = weakref.ref(loader), True
        if known is None:
            if len(self._loaders) >= _MOST_LOADERS:
                return
            known = _Loader(loader, kind)
            self._loaders.append(known)
        if known.n_starts:
            n_batches, end_ns = known.pending
            known.n_batches += n_batches
            known.spent_ns += spent_ns + end_ns  # the end of the pass before, and the start of this one
        known.begun_at = known.begun_at if known.n_starts else self.n_steps
        known.last_at = self.n_steps
        known.n_starts += 1
        known.pending = [0, 0]
        self._of.pop(known.latest, None)
        known.latest = id(iterator)
        self._of[known.latest] = known

    def _ending(self, original: Any) -> Any:
        now_ns = time.perf_counter_ns  # an iterator may go when the interpreter has let go of its modules

        def _shutdown_workers(iterator: Any) -> None:
            known, begun_ns = self._of.get(id(iterator)), now_ns()
            try:
                original(iterator)
            finally:
                if known is not None:
                    known.pending[1] += now_ns() - begun_ns

        return _shutdown_workers

    def _next(self, original: Any) -> Any:
        def _next_data(iterator: Any) -> Any:
            known = self._of.get(id(iterator))
            if known is None:
                return original(iterator)
            begun_ns = time.perf_counter_ns()
            try:
                found = original(iterator)
            except StopIteration:
                known.pending[1] = time.perf_counter_ns() - begun_ns
                raise
            if not known.pending[0] and known.n_starts > 1:
                known.spent_ns += time.perf_counter_ns() - begun_ns
            known.pending[0] += 1
            return found

        return _next_data
