"""Whether the step computes with subnormal numbers on the CPU: a look at a few values, outside recorded steps.

Some of the outputs of modules are looked at, and of parameters, gradients and what the optimizer keeps. Their bytes are
read: no operator runs, nothing is changed. Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from array import array
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, Optional

import torch
from torch.nn.modules.module import register_module_forward_hook

from ..beside import redact
from .hooks import has_compiled

_VALUES: Final = 256
"""Of a tensor, in a row from its middle on. Chosen: they take 20 us."""
_SHARE: Final = 0.02
"""Of the step, what looks take at most."""
_MOST_OF_OPTIMIZER: Final = 100
"""Parameters, with what is kept of them. Chosen: some 10 ms."""
_LEAST: Final = 1024
"""Values of a tensor that is looked at: fewer take no time. Chosen."""
_DEPTH: Final = 3
_LONGEST_NAME: Final = 40
_SIGN: Final = 0x7FFFFFFF
_NORMAL: Final = 0x00800000
"""The bits of the smallest float32 that is not subnormal."""


class Subnormals:
    """Looks from `begin` to `end`; `told` has what they found."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._thread = 0
        self._begun_ns = self._spent_ns = 0
        self._flushes = False
        self._n_looks: Counter[str] = Counter()
        self._n_found: Counter[str] = Counter()

    def begin(self) -> None:
        """A step begins that nothing times or records."""
        if has_compiled():  # it would compile again under a hook
            return
        self._thread, self._begun_ns = threading.get_ident(), time.perf_counter_ns()
        self._flushes = flushes()
        self._handle = register_module_forward_hook(self._called)

    def end(self, optimizer: Any = None) -> None:
        """It ends; the optimizer that has made its step is looked at."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        handle.remove()
        with suppress(Exception):  # the script's own classes may be of any kind
            of_all = (parameter for group in optimizer.param_groups for parameter in group["params"])
            for parameter, _ in zip(of_all, range(_MOST_OF_OPTIMIZER)):  # noqa: B905 - Python 3.9
                self._look("a parameter", parameter)
                self._look("a gradient", parameter.grad)
                for name, kept in (optimizer.state.get(parameter) or {}).items():
                    self._look(f"the optimizer's {name}", kept)

    def told(self) -> Optional[dict[str, Any]]:  # noqa: UP045 - Python 3.9
        """Of each kind of tensor that has them: how many were looked at, and how many have; None where none has."""
        if not self._n_found:
            return None
        kinds = [
            {"of": redact().redacted_text(kind)[:_LONGEST_NAME], "n_found": n, "n_looks": self._n_looks[kind]}
            for kind, n in self._n_found.most_common(4)
        ]
        return {"flushes": self._flushes, "kinds": kinds}

    def _called(self, module: Any, _: Any, given: Any) -> None:
        if torch.compiler.is_compiling() or threading.get_ident() != self._thread:
            return
        if self._spent_ns > _SHARE * (time.perf_counter_ns() - self._begun_ns):  # so looks lie all over the step
            return
        with suppress(Exception):
            for one in _tensors(given):
                self._look(f"what {type(module).__name__} gives", one)

    def _look(self, kind: str, tensor: Any) -> None:
        begun_ns = time.perf_counter_ns()
        if type(tensor) in (torch.Tensor, torch.nn.Parameter) and _is_plain(tensor):
            self._n_looks[kind] += 1
            if _has_subnormals(tensor):
                self._n_found[kind] += 1
        self._spent_ns += time.perf_counter_ns() - begun_ns


def flushes() -> bool:
    """Whether this thread takes subnormal numbers for zero, Python's own among them."""
    least = sys.float_info.min
    return least / 2 == 0


def address_of(tensor: Any) -> int:
    """Where its first value lies; 0 where its storage has not all of them: FSDP frees what a rank does not hold."""
    storage = tensor.untyped_storage()
    last = tensor.storage_offset() + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride()))  # noqa: B905
    has_all = storage.data_ptr() and storage.nbytes() >= (last + 1) * tensor.element_size()
    return tensor.data_ptr() if has_all else 0


def _is_plain(tensor: Any) -> bool:
    is_ours = tensor.dtype is torch.float32 and tensor.device.type == "cpu" and tensor.layout is torch.strided
    return is_ours and tensor.numel() >= _LEAST and tensor.is_contiguous()


def _has_subnormals(tensor: Any) -> bool:
    first, at = address_of(tensor), tensor.numel() // 2
    n = min(_VALUES, tensor.numel() - at)
    bits = array("I", ctypes.string_at(first + 4 * at, 4 * n)) if first else ()
    return any(0 < bit & _SIGN < _NORMAL for bit in bits)


def _tensors(given: Any, depth: int = 0) -> Iterable[Any]:
    if isinstance(given, torch.Tensor):
        yield given
    elif depth < _DEPTH and isinstance(given, (tuple, list)):
        for one in given[:16]:
            yield from _tensors(one, depth + 1)
