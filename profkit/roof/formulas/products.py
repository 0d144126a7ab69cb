"""Products of matrices: 2·M·N·K FLOPs, and both factors, the result and what is added to it in memory.

Of a convolution each element of the result is a product with one filter; backward, once for each gradient asked for.
Scaled dot product attention has two products forward, five backward, and none of the scores in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Final

import msgspec

from profkit.model.signature import Signature
from profkit.roof.formulas.work import (
    Formula,
    Shape,
    Work,
    broadcast,
    flags,
    is_tensor,
    is_true,
    numbers,
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
    return Work.of("matmul", flops, moved + out * size_of(out_type or kind), kind)


def _matmul_sizes(left: Shape, right: Shape) -> tuple[int, Shape]:
    """(FLOPs, shape of the result) of torch.matmul."""
    rows, columns = left[:-1][-1:], right[1:][-1:] if len(right) > 1 else ()
    depth = right[-2] if len(right) > 1 else right[0]
    _fits(left[-1] == depth)
    batch = broadcast([left[:-2], right[:-2]])
    out = (*batch, *rows, *columns)
    return 2 * prod(out) * depth, out


def _multiplied(signature: Signature, left: int, *, moved: int, out_type: str | None = None) -> Work:
    """The product of argument `left` and the next one, as torch.matmul makes it."""
    flops, out = _matmul_sizes(shape(signature, left), shape(signature, left + 1))
    return _product(signature, left, flops=flops, out=prod(out), moved=moved, out_type=out_type)


def _matmul(signature: Signature) -> Work:
    """matmul, mm, bmm, mv, dot: (left, right[, out_dtype])."""
    return _multiplied(signature, 0, moved=read(signature, 0, 1), out_type=type_said(signature, 2))


def _int_mm(signature: Signature) -> Work:
    return _multiplied(signature, 0, moved=read(signature, 0, 1), out_type="int")


def _added(signature: Signature) -> Work:
    """addmm, baddbmm, addmv: (added, left, right, beta, alpha); beta = 0 does not read what is added."""
    # the overload with a result of another type: (added, left, right, out_dtype, beta, alpha)
    is_typed = len(signature.types) == 6 and not is_tensor(signature, 5)
    beta = signature.concrete[4 if is_typed else 3] if len(signature.concrete) > 4 else "1"
    moved = read(signature, 1, 2) + (0 if beta in {"0", "0.", "0.0"} else read(signature, 0))
    return _multiplied(signature, 1, moved=moved, out_type=type_said(signature, 3) if is_typed else None)


def _linear(signature: Signature) -> Work:
    """linear: (input [..., K], weight [N, K], bias)."""
    left, weight = shape(signature, 0), shape(signature, 1)
    _fits(left[-1] == weight[-1])
    out = prod(left[:-1]) * prod(weight[:-1])
    return _product(signature, 0, flops=2 * out * weight[-1], out=out, moved=read(signature, 0, 1, 2))


def _scaled(signature: Signature) -> Work:
    """_scaled_mm: (left, right, two scales, bias, scale of the result, out_dtype)."""
    return _multiplied(signature, 0, moved=read(signature, 0, 1, 2, 3, 4, 5), out_type=type_said(signature, 6))


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


MATMUL: Final[dict[str, Formula]] = {
    **{f"aten::{name}": _matmul for name in ("matmul", "mm", "bmm", "mv", "dot")},
    "aten::_int_mm": _int_mm,
    **{f"aten::{name}": _added for name in ("addmm", "addmm_", "_addmm_activation", "addmv", "addmv_")},
    **{f"aten::{name}": _added for name in ("baddbmm", "baddbmm_")},
    "aten::linear": _linear,
    "mkldnn::_linear_pointwise": _linear,
    "aten::_scaled_mm": _scaled,
    "aten::_grouped_mm": partial(_grouped, offsets=2, out_dtype=4, also=(3,)),
    "aten::_scaled_grouped_mm": partial(_grouped, offsets=4, out_dtype=7, also=(2, 3, 5)),
}


class _Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where an operator has its arguments; -1 for one that it does not have."""

    stride: int
    padding: int
    dilation: int
    groups: int
    transposed: int = -1
    output_padding: int = -1
    bias: int = -1


def _out_shape(signature: Signature, places: _Places, *, is_transposed: bool) -> Shape:
    """The shape of the result of (input, weight, ...); raises ValueError where arguments do not fit together."""
    given, weight = shape(signature, 0), shape(signature, 1)
    n = len(weight) - 2
    if len(given) == n + 1:
        given = (1, *given)
    if n < 1 or len(given) != n + 2:
        raise ValueError("no convolution of these shapes")
    stride, padding = numbers(signature, places.stride, n), numbers(signature, places.padding, n)
    dilation = numbers(signature, places.dilation, n)
    reach = tuple(step * (size - 1) for step, size in zip(dilation, weight[2:], strict=True))
    sizes = zip(given[2:], stride, padding, reach, strict=True)
    if not is_transposed:
        inner = tuple((size + 2 * pad - far - 1) // step + 1 for size, step, pad, far in sizes)
        return (given[0], weight[0], *inner)
    more = numbers(signature, places.output_padding, n)
    inner = tuple(
        (size - 1) * step - 2 * pad + far + 1 + extra for (size, step, pad, far), extra in zip(sizes, more, strict=True)
    )
    return (given[0], weight[1] * int(signature.concrete[places.groups]), *inner)


def _convolved(places: _Places, *, always_transposed: bool = False) -> Formula:
    def formula(signature: Signature) -> Work:
        is_transposed = always_transposed or (places.transposed >= 0 and is_true(signature, places.transposed))
        out = _out_shape(signature, places, is_transposed=is_transposed)
        if any(size <= 0 for size in out):
            raise ValueError("no convolution of these shapes")
        # a weight holds the channels of one group: [out, in / groups, ...], transposed [in, out / groups, ...]
        flops = 2 * prod(shape(signature, 0) if is_transposed else out) * prod(shape(signature, 1)[1:])
        kind = signature.types[0]
        moved = read(signature, 0, 1) + (read(signature, places.bias) if places.bias >= 0 else 0)
        return Work.of("convolution", flops, moved + prod(out) * size_of(kind), kind)

    return formula


def _convolution_backward(transposed: int, mask: int) -> Callable[[Signature], Work]:
    """(gradient of the result, input, weight, ...): the gradients of input, weight and bias, as the mask asks."""

    def formula(signature: Signature) -> Work:
        grad, given, weight = (shape(signature, place) for place in range(3))
        to_input, to_weight, to_bias = flags(signature, mask)
        is_transposed = is_true(signature, transposed)
        each = 2 * prod(given if is_transposed else grad) * prod(weight[1:])
        kind = signature.types[1]
        size = size_of(kind)
        n_bytes = (
            to_input * (read(signature, 0, 2) + prod(given) * size)
            + to_weight * (read(signature, 0, 1) + prod(weight) * size)
            + to_bias * (weight[0] * size)
        )
        return Work.of("convolution", (to_input + to_weight) * each, n_bytes, kind)

    return formula


_PLAIN: Final = _Places(stride=3, padding=4, dilation=5, groups=6, bias=2)
_TRANSPOSING: Final = _Places(stride=3, padding=4, output_padding=5, groups=6, dilation=7, bias=2)
_GENERAL: Final = _Places(stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8, bias=2)
_CUDNN: Final = _Places(padding=2, stride=3, dilation=4, groups=5)
_CUDNN_TRANSPOSED: Final = _Places(padding=2, output_padding=3, stride=4, dilation=5, groups=6)
_WITH_BIAS: Final = _Places(padding=3, stride=4, dilation=5, groups=6, bias=2)

CONVOLUTION: Final[dict[str, Formula]] = {
    **{f"aten::conv{n}d": _convolved(_PLAIN) for n in (1, 2, 3)},
    **{f"aten::conv_transpose{n}d": _convolved(_TRANSPOSING, always_transposed=True) for n in (1, 2, 3)},
    **{f"aten::{name}": _convolved(_GENERAL) for name in ("convolution", "_convolution", "convolution_overrideable")},
    "aten::cudnn_convolution": _convolved(_CUDNN),
    "aten::cudnn_convolution_transpose": _convolved(_CUDNN_TRANSPOSED, always_transposed=True),
    "aten::miopen_convolution": _convolved(_WITH_BIAS),
    "aten::mkldnn_convolution": _convolved(_WITH_BIAS),
    "aten::convolution_backward": _convolution_backward(transposed=7, mask=10),
    "aten::convolution_backward_overrideable": _convolution_backward(transposed=6, mask=9),
}


_BACKWARD: Final = (5, 2)
"""Backward has five products for two forward: the scores again, and the gradients of v, of the scores, of q, of k."""


def _visible(n_queries: int, n_keys: int) -> int:
    """How many pairs of a query and a key a causal mask leaves: query i sees keys 0 to i."""
    both = min(n_queries, n_keys)
    return both * (both + 1) // 2 + (n_queries - both) * n_keys


def _visible_from_end(n_queries: int, n_keys: int) -> int:
    """The same where the last query sees all keys, as flash_attn has it."""
    both = min(n_queries, n_keys)
    return both * (both + 1) // 2 + both * (n_keys - both)


def _attention(signature: Signature, query: int, *, is_causal: bool, n_bytes: int, times: tuple[int, int]) -> Work:
    """Of query [..., Sq, D], key [..., Sk, D] and value [..., Sk, Dv]; keys may have fewer heads (GQA)."""
    q, k, v = (shape(signature, place) for place in range(query, query + 3))
    if min(len(q), len(k), len(v)) < 2 or q[-1] != k[-1] or k[-2] != v[-2]:
        raise ValueError("no attention of these shapes")
    each = prod(q[:-2]) * (q[-1] + v[-1]) * 2
    pairs = q[-2] * k[-2]
    seen = _visible(q[-2], k[-2]) if is_causal else pairs
    more, of = times
    return Work(
        family="attention",
        flops=each * pairs * more // of,
        least_flops=each * seen * more // of,
        n_bytes=n_bytes,
        precision=precision(signature.types[query]),
    )


def _operands_and_result(signature: Signature) -> int:
    """The bytes of (query, key, value, ...) and of what comes out."""
    n_results = prod(shape(signature, 0)[:-1]) * shape(signature, 2)[-1]
    return read(signature, 0, 1, 2) + n_results * size_of(signature.types[0])


def _attended(causal: int, mask: int = -1) -> Formula:
    def formula(signature: Signature) -> Work:
        moved = _operands_and_result(signature) + (read(signature, mask) if mask >= 0 else 0)
        return _attention(signature, 0, is_causal=is_true(signature, causal), n_bytes=moved, times=(1, 1))

    return formula


def _attention_backward(causal: int, out: int) -> Formula:
    """(gradient of the result, query, key, value, ...): reads these and the result, writes three gradients."""

    def formula(signature: Signature) -> Work:
        gradients = sum(prod(shape(signature, place)) for place in (1, 2, 3)) * size_of(signature.types[1])
        moved = read(signature, 0, 1, 2, 3, out) + gradients
        return _attention(signature, 1, is_causal=is_true(signature, causal), n_bytes=moved, times=_BACKWARD)

    return formula


def _of_lengths(lengths: int) -> Formula:
    """Attention of sequences packed one after another: how long each is are values, which no trace has."""

    def formula(signature: Signature) -> Work | None:
        if not is_tensor(signature, lengths):
            return None  # not packed: its operator around it has a formula
        return Work.of("attention", None, _operands_and_result(signature), signature.types[0])

    return formula


def _package(query: int, causal: int, *, times: tuple[int, int], others: tuple[int, ...] = ()) -> Formula:
    """The flash_attn package: [B, S, H, D], and after `causal` a window to the left and right, -1 for none."""

    def formula(signature: Signature) -> Work | None:
        places = range(query, query + 3)
        q, k, v = (shape(signature, place) for place in places)
        if len(q) != 4 or q[-1] != k[-1] or k[1] != v[1]:
            return None
        is_whole = signature.concrete[causal + 1] == signature.concrete[causal + 2] == "-1"
        each, (more, of) = q[0] * q[2] * (q[3] + v[3]) * 2, times
        pairs = q[1] * k[1]
        seen = _visible_from_end(q[1], k[1]) if is_true(signature, causal) else pairs
        result = prod(q[:3]) * v[3] if query == 0 else prod(q) + prod(k) + prod(v)
        return Work(
            family="attention",
            flops=each * pairs * more // of if is_whole else None,
            least_flops=each * seen * more // of if is_whole else None,
            n_bytes=read(signature, *places, *others) + result * size_of(signature.types[query]),
            precision=precision(signature.types[query]),
        )

    return formula


ATTENTION: Final[dict[str, Formula]] = {
    "aten::scaled_dot_product_attention": _attended(causal=5, mask=3),
    "aten::_scaled_dot_product_attention_math": _attended(causal=5, mask=3),
    "aten::_scaled_dot_product_flash_attention": _attended(causal=4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _attended(causal=4, mask=5),
    "aten::_scaled_dot_product_efficient_attention": _attended(causal=6, mask=3),
    "aten::_scaled_dot_product_cudnn_attention": _attended(causal=6, mask=3),
    "aten::_scaled_dot_product_fused_attention_overrideable": _attended(causal=5, mask=3),
    "aten::_scaled_dot_product_flash_attention_backward": _attention_backward(causal=11, out=4),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward(causal=7, out=4),
    "aten::_scaled_dot_product_efficient_attention_backward": _attention_backward(causal=11, out=5),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention_backward(causal=14, out=4),
    "flash_attn::_flash_attn_forward": _package(0, causal=5, times=(1, 1)),
    "flash_attn::_flash_attn_backward": _package(1, causal=11, times=_BACKWARD, others=(0, 4)),
    "flash_attn::_flash_attn_varlen_forward": _of_lengths(3),
    "aten::_flash_attention_forward": _of_lengths(3),
    "aten::_efficient_attention_forward": _of_lengths(4),
}
