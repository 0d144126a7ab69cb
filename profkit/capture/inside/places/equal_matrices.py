"""Batches whose matrices are all the same to the last bit: what gives or takes them works one matrix out many times.

Their bytes are read on the CPU behind the operator: no operator runs, nothing is changed or held. Runs in the traced
process: standard library and torch only.
"""

from __future__ import annotations

import ctypes
import time
import weakref
from contextlib import suppress
from math import prod
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
_LOOKED: Final = 16
"""Of them, so many are compared. Chosen: the first, the last and some between; most often two tell."""
_BEGIN: Final = 64
"""Bytes of a matrix that are read first."""
_MOST_BYTES: Final = 1 << 22
"""A larger matrix is not looked at. Chosen: it takes a millisecond."""
_DISTINCT: Final = 3
"""Values that a matrix has at least: fewer are zeros, a mask, an identity, which are equal by chance. Chosen."""
_MOST: Final = 4000
"""Marks, and..."""
_MOST_NS: Final = 50_000_000
"""...what looks take. Chosen: a tenth of what these steps may take."""


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
        begun_ns = time.perf_counter_ns()
        with suppress(Exception):  # whatever tensor this is: nothing is said of it
            if not in_backward() and not torch.jit.is_tracing():
                self._look(result, given, is_one=is_one, is_two=is_two)
        self._spent_ns += time.perf_counter_ns() - begun_ns

    def _look(self, result: Any, given: Any, *, is_one: bool, is_two: bool) -> None:
        if is_one:
            n = n_equal(given[0]) if given else 0
            for one in result if n and isinstance(result, tuple) else (result,) * bool(n):
                self._know(one)
            self._mark(n, RESULT)
        elif is_two or (result is not None and any(map(self._is_known, given))):
            if not is_two and (type(result) is not torch.Tensor or result._base is not None):  # noqa: SLF001 - a view
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
    """The matrices of a batch of which all that are looked at are equal; 0 where they differ or cannot be read.

    Copies by strides of 0 alone are none: recorded strides tell those.
    """
    if type(tensor) is not torch.Tensor or tensor.ndim < 3 or tensor.device.type != "cpu":
        return 0
    shape, strides, size = tensor.shape[:-2], tensor.stride()[:-2], tensor.element_size()
    n, n_bytes = prod(shape), prod(tensor.shape[-2:]) * size
    own = prod(extent for extent, stride in zip(shape, strides) if stride)  # noqa: B905 - Python 3.9
    if own < _LEAST or n_bytes > _MOST_BYTES or not _is_dense(tensor):
        return 0
    storage = tensor.untyped_storage()
    first = address_of(tensor, storage)
    if not first or not n_bytes:
        return 0
    places = [first + size * _offset(n_th, shape, strides) for n_th in _spread(n)]
    for length in (min(_BEGIN, n_bytes), n_bytes):
        begin = ctypes.string_at(first, length)
        if any(ctypes.string_at(one, length) != begin for one in places):
            return 0
    return n if len({begin[at : at + size] for at in range(0, n_bytes, size)}) >= _DISTINCT else 0


def _is_dense(tensor: Any) -> bool:
    """Whether each matrix lies in one piece, by rows or by columns."""
    rows, columns = tensor.shape[-2:]
    down, across = tensor.stride()[-2:]
    by_rows = (columns == 1 or across == 1) and (rows == 1 or down == columns)
    return tensor.layout is torch.strided and (by_rows or ((rows == 1 or down == 1) and across == rows))


def _spread(n: int) -> list[int]:
    """Some of n places, the last one first."""
    return [n - 1, n // 2, *(at * (n - 1) // (_LOOKED - 1) for at in range(1, _LOOKED - 1))]


def _offset(place: int, shape: Any, strides: Any) -> int:
    offset = 0
    for extent, stride in zip(reversed(shape), reversed(strides)):  # noqa: B905 - Python 3.9
        place, at = divmod(place, extent)
        offset += at * stride
    return offset
