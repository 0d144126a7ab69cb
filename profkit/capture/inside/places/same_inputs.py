"""Products of the very tensors of which one was made before in the same step: all but the first are marked by ranges.

That it is the same tensor is known by the object and its count of changes in place. Runs in the traced process:
standard library and torch only.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Optional

import torch
from torch.autograd.profiler import record_function

from ..exits import in_backward

SAME_TENSORS: Final = "profkit: of the same tensors"
PRODUCTS: Final = frozenset(
    {"linear", "conv1d", "conv2d", "conv3d", "matmul", "__matmul__", "mm", "bmm", "addmm", "baddbmm"}
)
_ENDS: Final = "backward"
"""What changes weights comes behind it: what was multiplied before may be another product."""
_MOST: Final = 10_000


class SameInputs:
    """The products of a step so far, by what they took; no tensor is held."""

    def __init__(self) -> None:
        self._seen: dict[Any, list[weakref.ref[Any]]] = {}

    def forget(self) -> None:
        """A step ends."""
        self._seen.clear()

    def around(self, function: Any, args: Any, kwargs: Mapping[str, Any]) -> AbstractContextManager[Any]:
        """A range for a product that was made before of the same tensors; nothing for all else."""
        name = getattr(function, "__name__", "")
        if name == _ENDS:
            self.forget()
        try:
            if name in PRODUCTS and self._is_again((name, *args, *kwargs.items())):
                return record_function(SAME_TENSORS)  # type: ignore[no-any-return]
        except Exception:  # noqa: BLE001, S110 - whatever tensor this is: nothing is said of it
            pass
        return nullcontext()

    def _is_again(self, given: tuple[Any, ...]) -> bool:
        if in_backward() or torch.jit.is_tracing():  # a checkpoint computes again on purpose
            return False
        held: list[Any] = []
        key = tuple(self._told(one, held) for one in given)
        before = self._seen.get(key)
        if before is not None and all(one() is not None for one in before):
            return bool(held)
        if len(self._seen) < _MOST:
            self._seen[key] = [weakref.ref(one) for one in held]
        return False

    def _told(self, one: Any, held: list[Any]) -> Any:
        """What an argument is known by; of a view by the tensor that it is a view of. Raises where it is not known."""
        if isinstance(one, tuple):
            return tuple(self._told(each, held) for each in one)
        if not isinstance(one, torch.Tensor):
            return one
        owner: Optional[Any] = one._base if one._base is not None else one  # noqa: SLF001, UP045 - Python 3.9
        if type(one) not in (torch.Tensor, torch.nn.Parameter) or not _is_torchs(one):
            raise TypeError
        held.append(owner)
        return id(owner), one._version, one.data_ptr(), one.shape, one.stride(), one.dtype  # noqa: SLF001


def _is_torchs(tensor: Any) -> bool:
    """Whether nobody writes to it but torch, which counts that: not numpy, not another process."""
    return tensor.grad_fn is not None or tensor.untyped_storage().resizable()
