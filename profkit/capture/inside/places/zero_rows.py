"""Rows of a layer's output whose gradient is zero: multiplied by zero or dropped, so that no loss depends on them.

The gradient's bytes are read on the CPU before the backward node runs that takes it: no operator runs, nothing is
changed or held. Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import ctypes
import time
from contextlib import suppress
from math import prod
from typing import Any, Final

import torch
from torch.autograd.profiler import record_function

from ..subnormal import address_of
from .same_inputs import PRODUCTS

ZERO_ROWS: Final = "profkit: zero rows of node "
"""Then autograd's number of the node, and the share in percent."""
_ROWS: Final = 64
_FIRST: Final = 16
"""Rows that are looked at, and of them so many first: where none is zero few are. Chosen: the first take 10 us."""
_CHANNELS: Final = 16
"""Channels of a convolution that are looked at in each row. Chosen."""
_COLUMNS: Final = 16
"""The least length of a row: a short one is zero by chance, behind a ReLU. Chosen."""
_LEAST: Final = 1 << 14
"""Values of a tensor that is looked at: fewer take no time. Chosen."""
_APART: Final = 0.6180339887498949
"""Of all rows, from a row that is looked at to the next: no period of the rows hides some of them."""
_BEGIN: Final = 64
"""Bytes of a row that are read first."""
_TOLD: Final = 0.5
_MOST: Final = 4000
"""Results that are watched, and..."""
_MOST_NS: Final = 50_000_000
"""...what looks at their gradients take. Chosen: a tenth of what these steps may take."""
_ZEROS: Final = b"\x00\x80"
"""The bytes of 0.0 and -0.0."""


class ZeroRows:
    """Watches the backward nodes of results that it is given."""

    def __init__(self) -> None:
        self._n = self._spent_ns = 0
        self._is_on = True
        self._task, self._is_chosen = -1, False
        self._channels: dict[Any, int] = {}
        """By shapes of what convolutions take and give: the axis with the values of a row; the last one has rows."""

    def end(self) -> None:
        """Look no longer, whatever graph lives on."""
        self._is_on = False

    def watch(self, result: Any, name: str, given: Any) -> None:
        """An operator of that name has given this result, of these arguments."""
        if self._is_on and self._n < _MOST and type(result) is torch.Tensor and not torch.jit.is_tracing():
            with suppress(Exception):  # whatever tensor this is: nothing is said of it
                if name.startswith("conv"):
                    n_axes = int(name[-2]) if name.endswith("d") else result.ndim - 2
                    shapes = (result.shape, *(one.shape for one in given[:1]))
                    self._channels.update(dict.fromkeys(shapes, result.ndim - 1 - n_axes))
                self._watch(result, name in PRODUCTS)

    def _watch(self, result: Any, is_product: bool) -> None:
        node = result.grad_fn
        if node is None or result.device.type != "cpu" or result.ndim < 2:
            return
        if result._base is not None and not is_product:  # noqa: SLF001 - a view; a product of many rows gives one
            return
        is_large = result.shape[-1] >= _COLUMNS and result.numel() >= _LEAST
        if is_large or is_product:
            self._n += 1
            number, place = node._sequence_nr(), result.output_nr  # noqa: SLF001
            node.register_prehook(
                lambda gradients: self._look(number, gradients[place : place + 1], is_large, is_product)
            )

    def _look(self, number: int, gradients: Any, is_large: bool, is_product: bool) -> None:
        if not self._is_on or not gradients or self._spent_ns > _MOST_NS:
            return
        begun_ns = time.perf_counter_ns()
        with suppress(Exception):
            task = torch._C._current_graph_task_id()  # noqa: SLF001
            if task == self._task and not is_large:
                return
            share = zero_share(gradients[0])
            if is_product and task != self._task:
                # nearest to the loss: rows that are zero there are chosen by their values, or have no target
                self._task, self._is_chosen = task, share > 0.1
            is_told = is_large and share >= _TOLD and task == self._task and not self._is_chosen
            if is_told and gradients[0].shape in self._channels:
                share = zero_share(gradients[0], self._channels[gradients[0].shape])
            if is_told and share >= _TOLD:
                with record_function(f"{ZERO_ROWS}{number}, {round(100 * share)} %"):
                    pass
        self._spent_ns += time.perf_counter_ns() - begun_ns


def _is_zero(address: int, n_bytes: int) -> bool:
    return not ctypes.string_at(address, n_bytes).translate(None, _ZEROS)


def _spread(n: int, most: int) -> list[int]:
    """So many of n places."""
    return [int(number * _APART % 1 * n) if n > most else number for number in range(min(n, most))]


def places_in(shape: list[int], strides: list[int], most: int) -> list[int]:
    """Where so many values lie, of all that have such indices, counted in values from the first one."""
    out = []
    for left in _spread(prod(shape), most):
        at = 0
        for extent, stride in zip(reversed(shape), reversed(strides)):  # noqa: B905 - Python 3.9
            left, place = divmod(left, extent)  # noqa: PLW2901
            at += place * stride
        out.append(at)
    return out


def zero_share(gradient: Any, channels: int | None = None) -> float:
    """The share (0-1) of the rows that are looked at which are zero in each column; 0 where they cannot be read.

    With an axis of channels, a row is zero where it is so in each of them: a ReLU sets channels to zero, not positions.
    """
    if type(gradient) is not torch.Tensor or gradient.device.type != "cpu" or gradient.layout is not torch.strided:
        return 0.0
    if gradient.stride(-1) != 1:
        return 0.0
    storage = gradient.untyped_storage()
    shape, strides, size = list(gradient.shape[:-1]), list(gradient.stride()[:-1]), gradient.element_size()
    each, apart = ([0], 0)
    if channels is not None:
        each, apart = _spread(shape.pop(channels), _CHANNELS), strides.pop(channels) * size
    length, first = gradient.shape[-1] * size, address_of(gradient, storage)
    looked = places_in(shape, strides, _ROWS) if first else []
    n_zero = 0
    for number, at in enumerate(looked):
        begins = [first + at * size + channel * apart for channel in each]
        n_zero += all(_is_zero(begin, min(length, _BEGIN)) and _is_zero(begin, length) for begin in begins)
        if number == _FIRST and not n_zero:
            return 0.0
    return n_zero / len(looked) if looked else 0.0
