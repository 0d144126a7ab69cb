"""Work left out to see what it costs: the training is another one then, so these are bounds and never advice.

Runs in the tried process: standard library and torch only.
"""

from __future__ import annotations

import sys
from typing import Any, Final
from weakref import WeakKeyDictionary, ref

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from .base import Change, wrapped


class _Again(_BaseDataLoaderIter):  # type: ignore[misc]
    """An epoch of one batch, for which nothing is fetched and no worker started."""

    def __init__(self, batch: Any, n_left: float) -> None:
        self.batch, self.n_left = batch, n_left
        self._num_workers = self._prefetch_factor = 0

    def __len__(self) -> int:
        return int(self.n_left)


class OneBatch(Change):
    """The first batch of each loader, again and again: in later epochs no worker is started either."""

    why_not = "the run fetched from no DataLoader"

    def install(self) -> None:
        """Keep the batches."""
        self._kept: dict[int, list[Any]] = {}
        self._of_loader: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        self._loader_of: dict[int, Any] = {}
        wrapped(_BaseDataLoaderIter, "__next__", self._next)
        wrapped(DataLoader, "__iter__", self._iterator)

    def _iterator(self, original: Any, loader: Any) -> Any:
        if loader in self._of_loader:
            return _Again(self._of_loader[loader], _length(loader))
        iterator = original(loader)
        self._loader_of[id(iterator)] = ref(loader)
        return iterator

    def _next(self, original: Any, iterator: Any) -> Any:
        if isinstance(iterator, _Again):
            iterator.n_left -= 1
            if iterator.n_left < 0:
                raise StopIteration
            return iterator.batch
        kept = self._kept.get(id(iterator))
        if kept is None or kept[0] is not iterator:
            self._kept[id(iterator)] = kept = [iterator, original(iterator), 1]
            self.done = "the first batch is used for all steps"
            loader = self._loader_of.pop(id(iterator), lambda: None)()
            if loader is not None:
                self._of_loader[loader] = kept[1]
            return kept[1]
        if kept[2] >= _length(iterator):
            del self._kept[id(iterator)]
            raise StopIteration
        kept[2] += 1
        return kept[1]


def _length(iterator: Any) -> float:
    try:
        return len(iterator)
    except TypeError:  # of an iterable dataset
        return float("inf")


class NoCollectives(Change):
    """All-reduces, reductions and barriers left out, and DDP's gradients not averaged."""

    _NAMES: Final = ("all_reduce", "reduce", "barrier", "all_reduce_coalesced")

    def install(self) -> None:
        """Leave them out."""
        import torch.distributed as dist

        for name in self._NAMES:
            if hasattr(dist, name):
                wrapped(dist, name, self._left_out)

    def _left_out(self, _original: Any, *_args: Any, **kwargs: Any) -> Any:
        self.done = self.done or "all-reduces left out"
        return _Done() if kwargs.get("async_op") else None

    def first_forward(self, module: Any) -> None:
        """DDP's are started in C++."""
        if hasattr(module, "require_backward_grad_sync"):
            module.require_backward_grad_sync = False
            self.done = "DDP does not average gradients"


class _Done:
    """A collective that is over."""

    def wait(self, *_: Any) -> bool:
        return True

    def is_completed(self) -> bool:
        return True


class NoItem(Change):
    """`.item()` answered with what it gave first at the same line."""

    why_not = "the run called no .item()"

    def install(self) -> None:
        """Keep the answers."""
        self._kept: dict[tuple[str, int], Any] = {}
        wrapped(torch.Tensor, "item", self._item)

    def _item(self, original: Any, tensor: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(tensor)
        frame = sys._getframe(2)  # noqa: SLF001 - the line is the key
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == "torch":  # an optimizer's own counters
            return original(tensor)
        key = frame.f_code.co_filename, frame.f_lineno
        if key not in self._kept:
            self._kept[key] = original(tensor)
        self.done = f".item() answered from a cache at {len(self._kept)} line{'s' * (len(self._kept) != 1)}"
        return self._kept[key]


class NoSaves(Change):
    """`torch.save` writes nothing."""

    why_not = "the run called no torch.save"

    def install(self) -> None:
        """Leave it out."""
        wrapped(torch, "save", self._left_out)

    def _left_out(self, _original: Any, *_args: Any, **_kwargs: Any) -> None:
        self.done = "torch.save writes nothing"


CHANGES: Final = {"one_batch": OneBatch, "no_collectives": NoCollectives, "no_item": NoItem, "no_saves": NoSaves}
