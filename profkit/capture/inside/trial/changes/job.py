"""Changes around what the device computes: how batches are loaded and copied, the host, how ranks work together.

Runs in the tried process: standard library and torch only.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final

import torch
from torch.utils.data import DataLoader, IterableDataset

from .base import Change, wrapped


class _Loader(Change):
    """Something else in the arguments of every DataLoader."""

    why_not = "the run made no DataLoader"

    def install(self) -> None:
        """Change the arguments of loaders that are made from now on."""
        wrapped(DataLoader, "__init__", self._made)

    def _made(self, original: Any, loader: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            bound = inspect.signature(original).bind(loader, *args, **kwargs)
        except TypeError:  # the script's own mistake, which the loader tells
            return original(loader, *args, **kwargs)
        said = self._changed(bound.arguments)
        if not said:
            return original(loader, *args, **kwargs)
        self.done = self.done or said
        return original(*bound.args, **bound.kwargs)

    def _changed(self, given: dict[str, Any]) -> str:
        """Change the arguments; gives what was changed, "" for nothing."""
        raise NotImplementedError


class Workers(_Loader):
    """So many loader workers."""

    def _changed(self, given: dict[str, Any]) -> str:
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

    def _changed(self, given: dict[str, Any]) -> str:
        n_batches, n_before = int(self.how["prefetch_factor"]), given.get("prefetch_factor") or 2
        if not given.get("num_workers"):
            self.why_not = "the DataLoader has no workers"
            return ""
        given["prefetch_factor"] = n_batches
        return f"prefetch_factor {n_before} -> {n_batches}"


class Persistent(_Loader):
    """Workers that live on after an epoch."""

    def _changed(self, given: dict[str, Any]) -> str:
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

    def _changed(self, given: dict[str, Any]) -> str:
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


class _Wrapper(Change):
    """Other arguments of a module that wraps the model."""

    def __init__(self, how: Mapping[str, Any], module: str, name: str) -> None:
        super().__init__(how)
        self.module, self.name = module, name
        self.why_not = f"the run made no {name}"

    def install(self) -> None:
        """Change the arguments of wrappers that are made from now on."""
        wrapped(getattr(import_module(self.module), self.name), "__init__", self._made)

    def _made(self, original: Any, wrapper: Any, *args: Any, **kwargs: Any) -> Any:
        known = inspect.signature(original).parameters
        said = []
        for name, value in self.how.items():
            if name not in known:
                self.why_not = f"{self.name} of this torch has no {name}"
                continue
            if kwargs.get(name) == value:
                self.why_not = f"{name} is {value} already"
                continue
            said.append(f"{name} {kwargs.get(name, known[name].default)} -> {value}")
            kwargs[name] = value
        self.done = self.done or ", ".join(said)
        return original(wrapper, *args, **kwargs)


_DDP: Final = partial(_Wrapper, module="torch.nn.parallel", name="DistributedDataParallel")
_FSDP: Final = partial(_Wrapper, module="torch.distributed.fsdp", name="FullyShardedDataParallel")
CHANGES: Final[dict[str, Callable[[Mapping[str, Any]], Change]]] = {
    "workers": Workers,
    "prefetch": Prefetch,
    "persistent": Persistent,
    "pinned": Pinned,
    "no_gc": NoGc,
    "threads": Threads,
    "segments": Segments,
    "ddp_view": _DDP,
    "ddp_bucket": _DDP,
    "ddp_static": _DDP,
    "fsdp_prefetch": _FSDP,
}
