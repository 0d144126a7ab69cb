# ruff: noqa: PTH100 - texts, as the profiler has them
"""What code of the script's own makes the batches of a DataLoader: its dataset's function and the one that collates.

Runs in the traced process: standard library and torch only. Nothing of the script's is called, and none of it is held.
"""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any, Final

from torch.utils.data import IterableDataset

from .owners import is_own_path, shown_path

_MOST_WRAPPERS: Final = 8
_READS: Final = ("__getitems__", "__getitem__")
"""What a fetcher calls, the first that the class has; of an iterable dataset, which inherits these, `__iter__`."""


def made_by(iterator: Any) -> dict[str, Any]:
    """The workers of a loader's iterator and the code behind it, each with `name`, `file` and `line`."""
    found: dict[str, Any] = {"n_workers": int(getattr(iterator, "_num_workers", 0))}
    reading, collating = _reading(_held(iterator, "_dataset")), _collating(_held(iterator, "_collate_fn"))
    if reading:
        found["dataset"] = reading
    if collating:
        found["collate"] = collating
    return found


def _reading(dataset: Any) -> dict[str, Any]:
    """The function that gives a sample: of the dataset itself, or of the one that a `Subset` or the like wraps."""
    for _ in range(_MOST_WRAPPERS):
        kind = type(dataset)
        reads = ("__iter__",) if issubclass(kind, IterableDataset) else _READS
        name = next((one for one in reads if callable(getattr(kind, one, None))), "")
        function = getattr(kind, name, None)
        place = _place(function)
        if place:
            return {"name": str(getattr(function, "__qualname__", name)), **place}
        dataset = _held(dataset, "dataset")
    return {}


def _collating(function: Any) -> dict[str, Any]:
    for _ in range(_MOST_WRAPPERS):
        place = _place(function) or _place(inspect.getattr_static(type(function), "__call__", None))
        if place:
            return {"name": str(getattr(function, "__qualname__", "") or type(function).__qualname__), **place}
        function = function.func if isinstance(function, functools.partial) else None
    return {}


def _place(function: Any) -> dict[str, Any]:
    """Where a function of the script's own begins; nothing of any other."""
    code: Any = getattr(inspect.unwrap(function) if inspect.isfunction(function) else function, "__code__", None)
    if code is None:
        return {}
    path = os.path.abspath(code.co_filename)
    return {"file": shown_path(path), "line": int(code.co_firstlineno)} if is_own_path(path) else {}


def _held(holder: Any, name: str) -> Any:
    """What an object holds by that name, without asking code of its own."""
    try:
        return inspect.getattr_static(holder, name, None)
    except Exception:  # noqa: BLE001 - the script's own classes may be of any kind
        return None
