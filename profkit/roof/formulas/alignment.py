"""Which sides of a product of matrices leave rows in memory that are no multiple of 16 bytes.

Matrix units are fed 16 bytes at a time. What counts is the distance of rows in memory, not each of M, N and K:
the sizes of axes whose elements lie one after another.
"""

from __future__ import annotations

from typing import Final

import msgspec

from profkit.model.signature import Signature
from profkit.roof.formulas.work import is_tensor, shape, size_of

ROW_BYTES: Final = 16
"""NVIDIA, Matrix Multiplication Background User's Guide, 2.2: most efficient with M, N and K multiples of 16 bytes."""
_FACTORS: Final = {
    "aten::mm": (0, 1),
    "aten::bmm": (0, 1),
    "aten::matmul": (0, 1),
    "aten::_scaled_mm": (0, 1),
    "aten::addmm": (1, 2),
    "aten::addmm_": (1, 2),
    "aten::_addmm_activation": (1, 2),
    "aten::baddbmm": (1, 2),
    "aten::baddbmm_": (1, 2),
    "aten::linear": (0, 1),
}
"""The places of the two factors among the arguments."""
_TRANSPOSED: Final = frozenset(("aten::linear",))
"""Whose second factor is [N, K]."""


class Misfit(msgspec.Struct, frozen=True):
    """A side of a product, in elements, and the next size above that fits."""

    axis: str
    """M, N or K of [M, K] x [K, N]."""
    size: int
    fits: int


def misfits(name: str, signature: Signature) -> tuple[Misfit, ...]:
    """The sides that leave rows unaligned; none for other operators, products with a vector, and what is not known."""
    if name not in _FACTORS:
        return ()
    left, right = _FACTORS[name]
    if not (is_tensor(signature, left) and is_tensor(signature, right)):
        return ()
    a, b = shape(signature, left), shape(signature, right)
    if len(a) < 2 or len(b) < 2 or min(*a[-2:], *b[-2:]) < 2:
        return ()
    kind = signature.types[left]
    step = max(ROW_BYTES // size_of(kind), 1)
    axes = ("N", "K") if name in _TRANSPOSED else ("K", "N")
    sizes = {"M": a[-2], **dict(zip(axes, b[-2:], strict=True))}
    rows = [
        _row(signature, left, ("M", "K"), is_dense=name in _TRANSPOSED),
        _row(signature, right, axes, is_dense=name in _TRANSPOSED),
        ("N", sizes["N"]),  # the result is dense
    ]
    wrong = {axis: length for axis, length in rows if axis and length % step}
    return tuple(
        Misfit(axis, sizes[axis], -(-sizes[axis] // step) * step) for axis in sorted(wrong) if sizes[axis] % step
    )


def _row(signature: Signature, place: int, axes: tuple[str, str], *, is_dense: bool) -> tuple[str, int]:
    """The axis of a factor whose elements lie one after another, and the distance of rows; "" where it is not known."""
    sizes = shape(signature, place)
    strides = signature.strides[place] if place < len(signature.strides) else ()
    if len(strides) != len(sizes):
        return (axes[1], sizes[-1]) if is_dense else ("", 0)
    outer, inner = int(strides[-2]), int(strides[-1])
    if inner == 1:
        return axes[1], outer
    return (axes[0], inner) if outer == 1 else ("", 0)
