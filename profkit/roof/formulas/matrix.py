"""Products of matrices: 2·M·N·K FLOPs, and both factors, the result and what is added to it in memory."""

from __future__ import annotations

from math import prod
from typing import Final

from profkit.model.signature import Signature
from profkit.roof.formulas.work import (
    Formula,
    Shape,
    Work,
    broadcast,
    is_tensor,
    precision,
    read,
    shape,
    size_of,
    type_said,
)


def _fits(is_fit: bool) -> None:
    if not is_fit:
        raise ValueError("shapes that cannot be multiplied")


def _product(signature: Signature, left: int, *, flops: int, out: int, moved: int, out_type: str | None = None) -> Work:
    """The product whose first factor is argument `left`; `moved` bytes are read, `out` elements written."""
    kind = signature.types[left]
    return Work(
        family="matmul",
        flops=flops,
        least_flops=flops,
        n_bytes=moved + out * size_of(out_type or kind),
        precision=precision(kind),
    )


def _matmul_sizes(left: Shape, right: Shape) -> tuple[int, Shape]:
    """(FLOPs, shape of the result) of torch.matmul."""
    rows, columns = left[:-1][-1:], right[1:][-1:] if len(right) > 1 else ()
    depth = right[-2] if len(right) > 1 else right[0]
    _fits(left[-1] == depth)
    batch = broadcast([left[:-2], right[:-2]])
    out = (*batch, *rows, *columns)
    return 2 * prod(out) * depth, out


def _matmul(signature: Signature) -> Work:
    """matmul, mm, bmm, mv, dot, _int_mm: (left, right[, out_dtype])."""
    flops, out = _matmul_sizes(shape(signature, 0), shape(signature, 1))
    return _product(
        signature, 0, flops=flops, out=prod(out), moved=read(signature, 0, 1), out_type=type_said(signature, 2)
    )


def _int_mm(signature: Signature) -> Work:
    flops, out = _matmul_sizes(shape(signature, 0), shape(signature, 1))
    return _product(signature, 0, flops=flops, out=prod(out), moved=read(signature, 0, 1), out_type="int")


def _added(signature: Signature) -> Work:
    """addmm, baddbmm, addmv: (added, left, right, beta, alpha); beta = 0 does not read what is added."""
    flops, out = _matmul_sizes(shape(signature, 1), shape(signature, 2))
    # the overload with a result of another type: (added, left, right, out_dtype, beta, alpha)
    is_typed = len(signature.types) == 6 and not is_tensor(signature, 5)
    beta = signature.concrete[4 if is_typed else 3] if len(signature.concrete) > 4 else "1"
    is_read = beta not in {"0", "0.", "0.0"}
    moved = read(signature, 1, 2) + (read(signature, 0) if is_read else 0)
    out_type = type_said(signature, 3) if is_typed else None
    return _product(signature, 1, flops=flops, out=prod(out), moved=moved, out_type=out_type)


def _linear(signature: Signature) -> Work:
    """linear: (input [..., K], weight [N, K], bias)."""
    left, weight = shape(signature, 0), shape(signature, 1)
    _fits(left[-1] == weight[-1])
    out = prod(left[:-1]) * prod(weight[:-1])
    return _product(signature, 0, flops=2 * out * weight[-1], out=out, moved=read(signature, 0, 1, 2))


def _scaled(signature: Signature) -> Work:
    """_scaled_mm: (left, right, two scales, bias, scale of the result, out_dtype)."""
    flops, out = _matmul_sizes(shape(signature, 0), shape(signature, 1))
    moved = read(signature, 0, 1, 2, 3, 4, 5)
    return _product(signature, 0, flops=flops, out=prod(out), moved=moved, out_type=type_said(signature, 6))


def _grouped(signature: Signature, *, offsets: int, out_dtype: int, also: tuple[int, ...] = ()) -> Work:
    """A product for each group of rows; how many rows each has are values, so that all rows count.

    [T, K] x [G, K, N]: each row with the matrix of its group. [M, T] x [T, N]: a matrix for each group, the last axis
    of the left split. [G, M, K] x [G, K, N]: as bmm.
    """
    left, right = shape(signature, 0), shape(signature, 1)
    if len(left) == len(right) == 2:
        _fits(left[1] == right[0])
        flops, out = 2 * left[0] * left[1] * right[1], shape(signature, offsets)[0] * left[0] * right[1]
    elif len(left) == 2:
        _fits(left[1] == right[1])
        flops, out = 2 * left[0] * left[1] * right[2], left[0] * right[2]
    elif len(right) == 2:
        _fits(left[2] == right[0])
        flops, out = 2 * left[1] * left[2] * right[1], left[1] * right[1]
    else:
        flops, sizes = _matmul_sizes(left, right)
        out = prod(sizes)
    moved = read(signature, 0, 1, offsets, *also)
    return _product(signature, 0, flops=flops, out=out, moved=moved, out_type=type_said(signature, out_dtype))


def _grouped_mm(signature: Signature) -> Work:
    return _grouped(signature, offsets=2, out_dtype=4, also=(3,))


def _scaled_grouped_mm(signature: Signature) -> Work:
    return _grouped(signature, offsets=4, out_dtype=7, also=(2, 3, 5))


MATMUL: Final[dict[str, Formula]] = {
    "aten::matmul": _matmul,
    "aten::mm": _matmul,
    "aten::bmm": _matmul,
    "aten::mv": _matmul,
    "aten::dot": _matmul,
    "aten::_int_mm": _int_mm,
    "aten::addmm": _added,
    "aten::addmm_": _added,
    "aten::_addmm_activation": _added,
    "aten::addmv": _added,
    "aten::addmv_": _added,
    "aten::baddbmm": _added,
    "aten::baddbmm_": _added,
    "aten::linear": _linear,
    "mkldnn::_linear_pointwise": _linear,
    "aten::_scaled_mm": _scaled,
    "aten::_grouped_mm": _grouped_mm,
    "aten::_scaled_grouped_mm": _scaled_grouped_mm,
}
