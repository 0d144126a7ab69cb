"""Batches whose matrices are all the same to the last bit: what gives or takes them works one matrix out many times.

Their bytes are read on the CPU behind the operator: no operator runs, nothing is changed or held. Runs in the traced
process: standard library and torch only.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from contextlib import suppress
from typing import Any, Final

import torch
from torch.autograd.profiler import record_function

from ..exits import in_backward
from ..subnormal import address_of

EQUAL: Final = "profkit: equal matrices, "
"""Behind an operator: how many, and of what, the number of an argument or `RESULT`."""
RESULT: Final = "result"
_ONE: Final = (
    "slogdet det inv inv_ex pinv cholesky cholesky_ex eigh eigvalsh eig eigvals svd svdvals qr lu lu_factor matrix_exp"
    " matrix_power"
)
_DECOMPOSES: Final = frozenset(f"{_ONE} inverse logdet cholesky_inverse linalg_{' linalg_'.join(_ONE.split())}".split())
"""What takes one batch of matrices alone; of some the result has none."""
_TWO: Final = (
    "matmul __matmul__ bmm baddbmm einsum linalg_solve linalg_solve_ex linalg_solve_triangular"
    " cholesky_solve triangular_solve"
)
_MULTIPLIES: Final = frozenset(_TWO.split())
_LEAST: Final = 8
"""Matrices of a batch that is looked at. Chosen: of fewer a product takes little more than of one."""
_BEGIN: Final = 64
"""Bytes of a matrix that are read first."""
_MOST_BYTES: Final = 1 << 22
"""A larger matrix is not looked at. Chosen: it takes a millisecond."""
_DISTINCT: Final = 3
"""Values that a matrix has at least: fewer are zeros, a mask, an identity, which are equal by chance. Chosen."""
_VALUES: Final = 256
"""Of a matrix, some so many values are told apart. Chosen."""
_MOST: Final = 4000
"""Marks, and..."""
_MOST_NS: Final = 100_000_000
"""...what looks take of the processor. Chosen: a fifth of what these steps may take; a mark with stacks takes 80 us."""


class EqualMatrices:
    """Looks at what batched linear algebra takes and gives, and at what is computed of that; no tensor is held."""

    def __init__(self) -> None:
        self._n = self._spent_ns = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def forget(self) -> None:
        """A step ends."""
        self._known.clear()

    def watch(self, result: Any, name: str, given: Any) -> None:
        """An operator of that name has given this result, of these arguments."""
        is_one, is_two = name in _DECOMPOSES, name in _MULTIPLIES
        if not (is_one or is_two or self._known) or self._n >= _MOST or self._spent_ns > _MOST_NS:
            return
        begun_ns = time.thread_time_ns()
        with suppress(Exception):  # whatever tensor this is: nothing is said of it
            if not in_backward() and not torch.jit.is_tracing():
                self._look(result, given, is_one=is_one, is_two=is_two)
        self._spent_ns += time.thread_time_ns() - begun_ns

    def _look(self, result: Any, given: Any, *, is_one: bool, is_two: bool) -> None:
        if is_one:
            n = n_equal(given[0]) if given else 0
            for one in result if n and isinstance(result, tuple) else (result,) * bool(n):
                self._know(one)
            self._mark(n, RESULT)
        elif is_two or (type(result) is torch.Tensor and any(map(self._is_known, given))):
            if not is_two and result._base is not None:  # noqa: SLF001 - a view
                return
            n = n_equal(result)
            if n:
                self._know(result)
                self._mark(n, RESULT)
            for place, one in enumerate(given[:2] if is_two and not n else ()):
                self._mark(n_equal(one), str(place))

    def _mark(self, n: int, what: str) -> None:
        if n:
            self._n += 1
            with record_function(f"{EQUAL}{n}, {what}"):
                pass

    def _know(self, tensor: Any) -> None:
        if type(tensor) is torch.Tensor:
            owner = tensor._base if tensor._base is not None else tensor  # noqa: SLF001
            self._known[id(owner)] = weakref.ref(owner)

    def _is_known(self, one: Any) -> bool:
        if type(one) is not torch.Tensor:
            return False
        owner = one._base if one._base is not None else one  # noqa: SLF001
        known = self._known.get(id(owner))
        return known is not None and known() is owner


def n_equal(tensor: Any) -> int:
    """The matrices of a batch whose first, middle and last one are equal; 0 where they differ or cannot be read.

    Copies by strides of 0 alone are none: recorded strides tell those. Written out: the profiler records each call.
    """
    if type(tensor) is not torch.Tensor:
        return 0
    shape = tensor.shape
    if len(shape) < 3 or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return 0
    strides, size, (rows, columns) = tensor.stride(), tensor.element_size(), shape[-2:]
    n, own, last = 1, 1, 0
    for extent, stride in zip(shape[:-2], strides):  # noqa: B905 - Python 3.9
        n, last = n * extent, last + (extent - 1) * stride
        own *= extent if stride else 1
    n_bytes, (down, across) = rows * columns * size, strides[-2:]
    is_by_rows = (columns == 1 or across == 1) and (rows == 1 or down == columns)
    is_by_columns = (rows == 1 or down == 1) and (columns == 1 or across == rows)
    if own < _LEAST or not 0 < n_bytes <= _MOST_BYTES or not (is_by_rows or is_by_columns):
        return 0
    left, middle = n // 2, 0
    for place in range(len(shape) - 3, -1, -1):
        left, at = divmod(left, shape[place])
        middle += at * strides[place]
    storage = tensor.untyped_storage()
    first, begin, read = address_of(tensor, storage), min(_BEGIN, n_bytes), ctypes.string_at
    if not first or read(first, begin) != read(first + last * size, begin):
        return 0
    one = read(first, n_bytes)
    if one != read(first + last * size, n_bytes) or one != read(first + middle * size, n_bytes):
        return 0
    apart = size * (rows * columns // _VALUES | 1)
    return n if len({one[at : at + size] for at in range(0, n_bytes, apart)}) >= _DISTINCT else 0
