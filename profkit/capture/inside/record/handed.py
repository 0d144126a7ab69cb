"""Batches that another thread hands to the one that trains: how long it waits for each, and who puts them there.

`Queue.get`, `Queue.put` and `Future.result` of the standard library are wrapped while steps are recorded. A wait counts
where what comes of it holds a tensor or an array: a batch. Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import torch

from ..patches import Patches

_SHORTEST_NS: Final = 20_000
"""Shorter waits are not noted. Chosen: as of collections (`host_watch`)."""
_MOST_ROWS: Final = 10_000
_MOST_QUEUES: Final = 1024
_MOST_MEMBERS: Final = 16
_DEEPEST: Final = 3


class Handed:
    """What the thread that calls `begin` waits for in queues, until `end`.

    `rows` are (thread, start, end in Unix ns, the thread that puts into that queue or 0 where that is not known).
    """

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []
        self._home = self._native = 0
        self._putting: dict[int, int] = {}
        self._patches = Patches()

    def begin(self) -> None:
        """From now on waits are noted."""
        self._home, self._native = threading.get_ident(), threading.get_native_id()
        for owner, name, wrapped in (
            (queue.Queue, "get", self._taking),
            (queue.Queue, "put", self._giving),
            (Future, "result", self._taking),
        ):
            self._patches.wrap(owner, name, wrapped)

    def end(self) -> None:
        """Take the wrappers out, unless somebody has wrapped them since."""
        self._home = 0
        self._patches.take_out()

    def _taking(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def take(holder: Any, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._home:
                return original(holder, *args, **kwargs)
            start_ns = time.time_ns()
            found = original(holder, *args, **kwargs)
            end_ns = time.time_ns()
            if end_ns - start_ns >= _SHORTEST_NS and len(self.rows) < _MOST_ROWS and _is_batch(found):
                self.rows.append((self._native, start_ns, end_ns, self._putting.get(id(holder), 0)))
            return found

        return take

    def _giving(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def give(holder: Any, *args: Any, **kwargs: Any) -> Any:
            if self._home and len(self._putting) < _MOST_QUEUES:
                self._putting[id(holder)] = threading.get_native_id()
            return original(holder, *args, **kwargs)

        return give


def _is_batch(value: Any, depth: int = 0) -> bool:
    """Whether a value is, or holds, a tensor or an array with a dimension; no code of the script's is called."""
    kind = type(value)
    if issubclass(kind, torch.Tensor):
        return bool(kind is not torch.Tensor or value.dim())
    if kind.__module__ == "numpy" and kind.__name__ == "ndarray":
        return bool(value.ndim)
    if depth >= _DEEPEST:
        return False
    members: Any = ()
    if kind in (list, tuple) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        members = tuple.__iter__(value) if issubclass(kind, tuple) else value
    elif issubclass(kind, dict):
        members = list(dict.values(value))
    elif type(vars(kind).get("__dict__")).__name__ == "getset_descriptor":
        members = list(object.__getattribute__(value, "__dict__").values())
    return any(_is_batch(one, depth + 1) for one, _ in zip(members, range(_MOST_MEMBERS)))  # noqa: B905 - Python 3.9
