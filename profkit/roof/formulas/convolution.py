"""Convolutions: each element of the result is a product with one filter; backward, once for each gradient asked for."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

import msgspec

from profkit.model.signature import Signature
from profkit.roof.formulas.work import Formula, Shape, Work, flags, is_true, numbers, precision, read, shape, size_of


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


def _forward(places: _Places, *, always_transposed: bool = False) -> Formula:
    def formula(signature: Signature) -> Work:
        is_transposed = always_transposed or (places.transposed >= 0 and is_true(signature, places.transposed))
        out = _out_shape(signature, places, is_transposed=is_transposed)
        if any(size <= 0 for size in out):
            raise ValueError("no convolution of these shapes")
        # a weight holds the channels of one group: [out, in / groups, ...], transposed [in, out / groups, ...]
        flops = 2 * prod(shape(signature, 0) if is_transposed else out) * prod(shape(signature, 1)[1:])
        kind = signature.types[0]
        moved = read(signature, 0, 1) + (read(signature, places.bias) if places.bias >= 0 else 0)
        return _work(flops, moved + prod(out) * size_of(kind), kind)

    return formula


def _work(flops: int, n_bytes: int, kind: str) -> Work:
    return Work(family="convolution", flops=flops, least_flops=flops, n_bytes=n_bytes, precision=precision(kind))


def _backward(transposed: int, mask: int) -> Callable[[Signature], Work]:
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
        return _work((to_input + to_weight) * each, n_bytes, kind)

    return formula


_PLAIN: Final = _Places(stride=3, padding=4, dilation=5, groups=6, bias=2)
_TRANSPOSED: Final = _Places(stride=3, padding=4, output_padding=5, groups=6, dilation=7, bias=2)
_GENERAL: Final = _Places(stride=3, padding=4, dilation=5, transposed=6, output_padding=7, groups=8, bias=2)
_CUDNN: Final = _Places(padding=2, stride=3, dilation=4, groups=5)
_CUDNN_TRANSPOSED: Final = _Places(padding=2, output_padding=3, stride=4, dilation=5, groups=6)
_WITH_BIAS: Final = _Places(padding=3, stride=4, dilation=5, groups=6, bias=2)

CONVOLUTION: Final[dict[str, Formula]] = {
    **{f"aten::conv{n}d": _forward(_PLAIN) for n in (1, 2, 3)},
    **{f"aten::conv_transpose{n}d": _forward(_TRANSPOSED, always_transposed=True) for n in (1, 2, 3)},
    "aten::convolution": _forward(_GENERAL),
    "aten::_convolution": _forward(_GENERAL),
    "aten::convolution_overrideable": _forward(_GENERAL),
    "aten::cudnn_convolution": _forward(_CUDNN),
    "aten::cudnn_convolution_transpose": _forward(_CUDNN_TRANSPOSED, always_transposed=True),
    "aten::miopen_convolution": _forward(_WITH_BIAS),
    "aten::mkldnn_convolution": _forward(_WITH_BIAS),
    "aten::convolution_backward": _backward(transposed=7, mask=10),
    "aten::convolution_backward_overrideable": _backward(transposed=6, mask=9),
}
