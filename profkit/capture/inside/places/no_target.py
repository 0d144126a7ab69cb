"""Rows of logits without a target: the loss leaves them out (ignore_index), and the output layer computes them anyway.

Targets and gradients are read on the CPU where they lie: no operator runs, nothing is changed or held. Runs in the
traced process: standard library and torch only.
"""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from math import prod
from typing import Any, Final

import torch
from torch.autograd.profiler import record_function

from ..subnormal import address_of
from .zero_rows import places_in, zero_share

NO_TARGET: Final = "profkit: rows without a target of node "
"""Then autograd's number of the node, and the share in percent."""
_LOSSES: Final = frozenset(("cross_entropy", "nll_loss"))
_PRODUCTS: Final = frozenset(("Addmm", "Baddbmm", "Bmm", "Linear", "MkldnnLinear", "Mm"))
_WORK_BY_ROWS: Final = (
    "Add Alias Clone Div LogSoftmax MaskedFill Mul Neg NllLoss NllLoss2D Permute ReshapeAlias Slice Squeeze Sum T Tanh"
    " ToCopy Transpose UnsafeView Unsqueeze View"
)
_BY_ROWS: Final = frozenset(_WORK_BY_ROWS.split())
"""Nodes between an output layer and its loss, each of which works on a row alone, but for sums of the loss itself."""
_CLASSES: Final = 64
"""The least number of classes. Chosen: to choose rows of a layer of fewer spares little."""
_LEAST: Final = 1 << 14
"""Values of logits that are looked at: fewer take no time. Chosen."""
_TARGETS: Final = 512
"""Targets that are read. Chosen: their share is then right to 2 %."""
_TOLD: Final = 0.25
"""The least share that is marked; and so much more of the targets may be left out than rows of the gradient are zero:
few of them are looked at."""
_MOST_NODES: Final = 32
_MOST_NS: Final = 20_000_000
"""What it may take of the recorded steps. Chosen."""
_SUFFIX: Final = re.compile(r"Backward\d*$")


class NoTarget:
    """Watches losses that it is given, and the gradient of the product behind each."""

    def __init__(self) -> None:
        self._spent_ns = 0
        self._is_on = True

    def end(self) -> None:
        """Look no longer, whatever graph lives on."""
        self._is_on = False

    def watch(self, loss: Any, name: str, args: Any, kwargs: Mapping[str, Any]) -> None:
        """An operator of that name has given this, of these arguments."""
        if name not in _LOSSES or not self._is_on or self._spent_ns > _MOST_NS or torch.jit.is_tracing():
            return
        begun_ns = time.perf_counter_ns()
        with suppress(Exception):  # whatever tensors these are: nothing is said of them
            given: dict[str, Any] = {**kwargs, **dict(zip(("input", "target"), args))}  # noqa: B905 - Python 3.9
            logits, target = given["input"], given["target"]
            n_classes = logits.shape[min(1, logits.ndim - 1)]
            if n_classes >= _CLASSES and logits.numel() >= _LEAST and loss.grad_fn is not None:
                share = share_without(target, int(given.get("ignore_index", -100)))
                if share >= _TOLD:
                    self._hook(loss.grad_fn, share)
        self._spent_ns += time.perf_counter_ns() - begun_ns

    def _hook(self, last: Any, share: float) -> None:
        """Where one product made the logits, look at its gradient: other losses may take the same rows."""
        numbers, made = _between(last)
        if len(made) == 1:
            made[0].register_prehook(lambda gradients: self._look(numbers, gradients, share))

    def _look(self, numbers: list[int], gradients: Any, share: float) -> None:
        if not self._is_on:
            return
        with suppress(Exception):
            if zero_share(gradients[0]) >= share - _TOLD:
                for number in numbers:
                    with record_function(f"{NO_TARGET}{number}, {round(100 * share)} %"):
                        pass


def _between(last: Any) -> tuple[list[int], list[Any]]:
    """From a loss back to the products that made its logits: the numbers of all nodes, and these products."""
    nodes, made = [last], []
    for node in nodes:  # it grows
        name = _SUFFIX.sub("", node.name())
        if name in _PRODUCTS:
            made.append(node)
        elif name in _BY_ROWS and len(nodes) < _MOST_NODES:
            nodes += [one for one, _ in node.next_functions if one is not None and one not in nodes]
        elif name != "torch::autograd::AccumulateGrad":  # something else needs these rows, or makes them
            return [], []
    return [node._sequence_nr() for node in nodes if _SUFFIX.search(node.name())], made  # noqa: SLF001


def share_without(target: Any, ignored: int) -> float:
    """The share (0-1) of the targets that are looked at which a loss leaves out; 0 where they cannot be read."""
    if type(target) is not torch.Tensor or target.device.type != "cpu" or target.dtype is not torch.int64:
        return 0.0
    storage, size = target.untyped_storage(), target.element_size()
    first, n = address_of(target, storage), prod(target.shape)
    if not n or not first:
        return 0.0
    looked = places_in(list(target.shape), list(target.stride()), _TARGETS)
    return sum(ctypes.c_int64.from_address(first + at * size).value == ignored for at in looked) / len(looked)
