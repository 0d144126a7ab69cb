"""Changes to how batches are loaded and copied.

Runs in the tried process: standard library and torch only.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch.utils.data import DataLoader, IterableDataset

from .base import Change, wrapped


class _Loader(Change):
    """Something else in the arguments of every DataLoader."""

    def __init__(self, how: Mapping[str, Any]) -> None:
        super().__init__(how)
        self.why_not = "the run made no DataLoader"

    def install(self) -> None:
        """Change the arguments of loaders that are made from now on."""
        wrapped(DataLoader, "__init__", self._made)

    def _made(self, original: Any, loader: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = inspect.signature(original).bind(loader, *args, **kwargs)
        except TypeError:  # the script's own mistake, which the loader tells
            return original(loader, *args, **kwargs)
        said = self.changed(bound.arguments)
        if not said:
            return original(loader, *args, **kwargs)
        self.done = self.done or said
        return original(*bound.args, **bound.kwargs)

    def changed(self, given: dict[str, Any]) -> str:
        """Change the arguments; gives what was changed, "" for nothing."""
        raise NotImplementedError


class Workers(_Loader):
    """So many loader workers."""

    def changed(self, given: dict[str, Any]) -> str:
        """As above."""
        n_workers, n_before = int(self.how["n_workers"]), int(given.get("num_workers") or 0)
        if isinstance(given.get("dataset"), IterableDataset):
            self.why_not = "the dataset is iterable: each worker would yield all of it"
            return ""
        if n_before == n_workers:
            self.why_not = f"the DataLoader has {n_workers} workers already"
            return ""
        given["num_workers"] = n_workers
        return f"num_workers {n_before} -> {n_workers}"


class Prefetch(_Loader):
    """So many batches ready per worker."""

    def changed(self, given: dict[str, Any]) -> str:
        """As above."""
        n_batches, n_before = int(self.how["prefetch_factor"]), given.get("prefetch_factor") or 2
        if not given.get("num_workers"):
            self.why_not = "the DataLoader has no workers"
            return ""
        given["prefetch_factor"] = n_batches
        return f"prefetch_factor {n_before} -> {n_batches}"


class Persistent(_Loader):
    """Workers that live on after an epoch."""

    def changed(self, given: dict[str, Any]) -> str:
        """As above."""
        if not given.get("num_workers"):
            self.why_not = "the DataLoader has no workers"
            return ""
        if given.get("persistent_workers"):
            self.why_not = "the DataLoader's workers are persistent already"
            return ""
        given["persistent_workers"] = True
        return "persistent_workers False -> True"


class Pinned(_Loader):
    """Batches in pinned memory, and copies of them that the host does not wait for."""

    def install(self) -> None:
        """As above; copies too."""
        super().install()
        for name in ("to", "cuda"):
            wrapped(torch.Tensor, name, self._copied)

    def changed(self, given: dict[str, Any]) -> str:
        """As above."""
        if given.get("pin_memory"):
            return "non_blocking copies"
        given["pin_memory"] = True
        return "pin_memory False -> True, non_blocking copies"

    def _copied(self, original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling() and not tensor.is_cuda and "non_blocking" not in kwargs:
            goes_there = any(torch.device(one).type == "cuda" for one in args if isinstance(one, (str, torch.device)))
            if (goes_there or original.__name__ == "cuda") and tensor.is_pinned():
                kwargs["non_blocking"] = True
        return original(tensor, *args, **kwargs)


CHANGES: Final = {"workers": Workers, "prefetch": Prefetch, "persistent": Persistent, "pinned": Pinned}
