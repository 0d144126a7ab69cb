"""In which number formats a CPU multiplies matrices: by the recorded types of the operators that do it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct_codes, is_one_of
from profkit.model.kernel_names import Precision
from profkit.model.signature import Signature
from profkit.model.trace import Trace
from profkit.roof.formulas.work import precision, type_said

HALF: Final = (Precision.BF16, Precision.FP16)
FULL: Final = (Precision.FP32,)
_FLOATING: Final = (*HALF, *FULL, Precision.FP64)
_PRODUCT: Final = re.compile(
    r"^(?:aten::(?:addmm|mm|baddbmm|bmm|addbmm|addmv|mv|mkldnn_convolution|_?slow_conv\w{1,40}|convolution_backward"
    r"|_scaled_dot_product_\w{1,80}_for_cpu(?:_backward)?)|mkldnn::_(?:linear|convolution)_pointwise)$"
)
"""Operators that multiply themselves; those around them, as aten::linear, may hand operands on in another format."""
_CAST: Final = re.compile(r"^aten::_to_copy$")
_DTYPE_ARGUMENT: Final = 1


class Products(msgspec.Struct, frozen=True, kw_only=True):
    """The operators of the window that multiply matrices, and what of them works on weights that were converted."""

    rows: Mapping[Precision, I64]
    """Rows of `Trace.ops`, by format."""
    from_half: NDArray[np.bool_]
    """Of those in fp32, in that order: whether a matrix of their second factor's size was converted from half."""

    def of(self, *formats: Precision) -> I64:
        """The rows in these formats."""
        return np.concatenate([np.empty(0, np.int64), *(self.rows[one] for one in formats if one in self.rows)])


def product_rows(trace: Trace) -> NDArray[np.intp]:
    """The operators of the window that multiply matrices, with recorded types or without; rows of `Trace.ops`."""
    return np.flatnonzero(_inside(trace) & trace.named(trace.ops.name, _PRODUCT))


def products(trace: Trace) -> Products | None:
    """The products of the window; None where none has recorded types."""
    ops = trace.ops
    rows = product_rows(trace)
    rows = rows[ops.signature[rows] >= 0]
    formats = {code: _format(trace.signatures[code]) for code in distinct_codes(ops.signature[rows]).tolist()}
    by_format = {
        one: rows[is_one_of(ops.signature[rows], [code for code, format_ in formats.items() if format_ is one])]
        for one in _FLOATING
        if one in formats.values()
    }
    if not by_format:
        return None
    full = by_format.get(Precision.FP32, np.empty(0, np.int64))
    casts = np.flatnonzero(_inside(trace) & (ops.signature >= 0) & trace.named(trace.ops.name, _CAST))
    converted = {_from_half(trace.signatures[code]) for code in distinct_codes(ops.signature[casts]).tolist()} - {None}
    fitting = [code for code, format_ in formats.items() if _second(trace.signatures[code]) in converted]
    return Products(rows=by_format, from_half=is_one_of(ops.signature[full], fitting))


def _inside(trace: Trace) -> NDArray[np.bool_]:
    low, high = trace.window_ns
    return (trace.ops.end_ns > low) & (trace.ops.start_ns < high)


def _format(signature: Signature | None) -> Precision | None:
    """The format of the first floating-point tensor; None without any."""
    told = () if signature is None else map(precision, signature.types)
    return next((one for one in told if one in _FLOATING), None)


def _second(signature: Signature | None) -> tuple[int, ...] | None:
    """The sides of the last matrix among the arguments, the shorter first: a factor may be stored the other way."""
    matrices = [shape for shape in signature.tensors if len(shape) == 2] if signature is not None else []
    return tuple(sorted(matrices[-1])) if matrices else None


def _from_half(signature: Signature | None) -> tuple[int, ...] | None:
    """The size of a matrix that is converted from half to full precision; None for any other conversion."""
    if signature is None or not signature.types or precision(signature.types[0]) not in HALF:
        return None
    after = type_said(signature, _DTYPE_ARGUMENT)
    is_to_full = after is not None and precision(after) in FULL
    return _second(Signature(dims=signature.dims[:1], types=signature.types[:1])) if is_to_full else None
