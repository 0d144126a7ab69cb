"""Work whose speed memory sets: elementwise, reductions, norms, softmax, embeddings, copies."""

from __future__ import annotations

from math import prod
from typing import Final

from profkit.model.signature import Signature
from profkit.roof.formulas.work import (
    Formula,
    Work,
    broadcast,
    flags,
    is_tensor,
    is_true,
    promoted,
    read,
    shape,
    size_of,
    stored,
    tensors,
    type_said,
)


def _elementwise(n_operands: int, *, is_in_place: bool = False, gives_bool: bool = False) -> Formula:
    """One operation for each element of the result: a convention, what a function costs is not counted."""

    def formula(signature: Signature) -> Work:
        places = [place for place in tensors(signature) if place < n_operands]  # beyond: a result to write to
        with_axes = [place for place in places if signature.dims[place]] or places
        sizes = shape(signature, 0) if is_in_place else broadcast(shape(signature, place) for place in with_axes)
        kind = signature.types[0] if is_in_place else promoted(signature.types[place] for place in with_axes)
        written = prod(sizes) * size_of("bool" if gives_bool else kind)
        return Work.of("elementwise", prod(sizes), read(signature, *places) + written, kind)

    return formula


def _copy(signature: Signature) -> Work:
    """copy_: (written, read)."""
    written = stored(signature, 0) * size_of(signature.types[0])
    return Work.of("elementwise", 0, written + read(signature, 1), signature.types[0])


def _fill(flops: int | None) -> Formula:
    def formula(signature: Signature) -> Work:
        kind = signature.types[0]
        return Work.of("elementwise", flops, stored(signature, 0) * size_of(kind), kind)

    return formula


def _dropout(signature: Signature) -> Work:
    """native_dropout writes the result and a mask of bools."""
    n = prod(shape(signature, 0))
    return Work.of("elementwise", n, read(signature, 0) + n * (size_of(signature.types[0]) + 1), signature.types[0])


def _reduction(axes: int, *writes: str) -> Formula:
    """One operation for each element that goes in; argument `axes` lists what is reduced, nothing or "" is all.

    `writes` are the types of the results; without any there is one, of the input's type.
    """

    def formula(signature: Signature) -> Work | None:
        if is_tensor(signature, 1):
            return None  # max of two tensors
        sizes, kind = shape(signature, 0), signature.types[0]
        said = signature.concrete[axes] if axes < len(signature.concrete) else ""
        listed = said if said.startswith("[") else f"[{said}]" if said.lstrip("-").isdigit() else "[]"
        over = {int(axis) % len(sizes) for axis in listed[1:-1].split(",") if axis.strip() and sizes}
        left = prod(size for axis, size in enumerate(sizes) if axis not in over) if over else 1
        out = sum(size_of(each or kind) for each in writes or ("",))
        return Work.of("reduction", prod(sizes), read(signature, 0) + left * out, kind)

    return formula


_OF_NORM: Final = 5
"""Operations of a norm for each element, as TraceLens counts: mean, difference, square, scale, shift."""
_OF_FIXED_NORM: Final = 2
"""With mean and variance as they are: scale and shift."""


def _norm(*others: int, training: int = -1) -> Formula:
    """(input, ...): input and arguments `others` are read, the result is written."""

    def formula(signature: Signature) -> Work:
        n, kind = prod(shape(signature, 0)), signature.types[0]
        each = _OF_NORM if training < 0 or is_true(signature, training) else _OF_FIXED_NORM
        return Work.of("norm", each * n, read(signature, 0, *others) + n * size_of(kind), kind)

    return formula


def _norm_backward(*others: int, weight: int, mask: int = -1) -> Formula:
    """Two tensors of the input's size are read; the gradients asked for are written: of the input, weight and bias.

    FLOPs depend on which these are.
    """

    def formula(signature: Signature) -> Work:
        asked = (True, True, True) if mask < 0 else flags(signature, mask)
        kind = signature.types[1]
        written = prod(shape(signature, 1)) * size_of(kind) * asked[0] + read(signature, weight) * sum(asked[1:])
        return Work.of("norm", None, read(signature, 0, 1, weight, *others) + written, kind)

    return formula


def _softmax(signature: Signature) -> Work:
    """Largest, difference, exponential, sum, quotient; the result may be fp32 where the input is not."""
    n, kind = prod(shape(signature, 0)), signature.types[0]
    written = "float" if is_true(signature, 2) else kind
    return Work.of("softmax", 5 * n, read(signature, 0) + n * size_of(written), kind)


def _softmax_backward(signature: Signature) -> Work:
    """(gradient, result, axis, type of the input)."""
    n = prod(shape(signature, 0))
    kind = type_said(signature, 3) or signature.types[0]
    return Work.of("softmax", 4 * n, read(signature, 0, 1) + n * size_of(kind), kind)


def _embedding(signature: Signature) -> Work:
    """(table, indices): each row looked up is written, and read once, however often; nothing is computed."""
    n_rows, width = shape(signature, 0)
    n = prod(shape(signature, 1))
    kind = signature.types[0]
    return Work.of("embedding", 0, (min(n, n_rows) + n) * width * size_of(kind) + read(signature, 1), kind)


def _embedding_backward(signature: Signature) -> Work:
    """(gradient, indices, rows of the table, ...): the gradient of the whole table is written."""
    width = shape(signature, 0)[-1]
    kind = signature.types[0]
    written = int(signature.concrete[2]) * width * size_of(kind)
    return Work.of("embedding", prod(shape(signature, 0)), read(signature, 0, 1) + written, kind)


def fused(signature: Signature, n_sizes: int) -> Work | None:
    """A kernel of torch.compile that works point by point or along rows: (tensors, sizes of its grid).

    Of each tensor no more is counted than the grid has points: it may be a slice of it, or a table. None where more
    numbers than the grid's sizes follow the tensors: which of them it is is not recorded.
    """
    places = [place for place in range(len(signature.types)) if is_tensor(signature, place)]
    if not places or places != list(range(len(signature.types) - n_sizes)):
        return None
    points = prod(int(text) for text in signature.concrete[-n_sizes:])
    n_bytes = sum(min(stored(signature, place), points) * size_of(signature.types[place]) for place in places)
    family = "elementwise" if n_sizes == 1 else "reduction"
    return Work.of(family, None, n_bytes, promoted(signature.types[place] for place in places))


_UNARY: Final = (
    "abs", "neg", "exp", "log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos", "tanh", "sigmoid", "erf",
    "relu", "gelu", "silu", "mish", "softplus", "elu", "leaky_relu", "hardtanh", "hardswish", "hardsigmoid", "square",
    "clamp_min", "clamp_max", "threshold", "sign", "floor", "round", "cumsum", "tril", "triu",
)  # fmt: skip
_BINARY: Final = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "atan2", "fmod", "remainder")
_TERNARY: Final = ("addcmul", "addcdiv", "lerp", "clamp", "masked_fill")
_BACKWARD: Final = (
    "threshold", "gelu", "silu", "mish", "sigmoid", "tanh", "softplus", "leaky_relu", "hardtanh", "hardswish",
    "hardsigmoid", "native_dropout",
)  # fmt: skip
_COMPARED: Final = ("eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or")
_POINTWISE: Final = {name: n for n, names in enumerate((_UNARY, _BINARY, _TERNARY), 1) for name in names}
_REDUCED: Final = ("sum", "mean", "prod", "amax", "amin", "var", "std")

MEMORY: Final[dict[str, Formula]] = {
    **{f"aten::{name}": _elementwise(n) for name, n in _POINTWISE.items()},
    **{f"aten::{name}_": _elementwise(n, is_in_place=True) for name, n in _POINTWISE.items()},
    **{f"aten::{name}_backward": _elementwise(2) for name in _BACKWARD},
    **{f"aten::{name}": _elementwise(2, gives_bool=True) for name in _COMPARED},
    "aten::rsub": _elementwise(2),
    "aten::where": _elementwise(3),
    "aten::copy_": _copy,
    "aten::fill_": _fill(0),
    "aten::zero_": _fill(0),
    **{f"aten::{name}_": _fill(None) for name in ("normal", "uniform", "bernoulli", "random", "exponential")},
    "aten::native_dropout": _dropout,
    **{f"aten::{name}": _reduction(1) for name in _REDUCED},
    **{f"aten::{name}": _reduction(1, "bool") for name in ("all", "any")},
    **{f"aten::{name}": _reduction(1, "long int") for name in ("argmax", "argmin")},
    **{f"aten::{name}": _reduction(1, "", "long int") for name in ("max", "min")},
    **{f"aten::{name}": _reduction(2) for name in ("norm", "linalg_vector_norm")},
    "aten::native_layer_norm": _norm(2, 3),
    "aten::_fused_rms_norm": _norm(2),
    "aten::native_group_norm": _norm(1, 2),
    **{f"aten::{whose}_batch_norm": _norm(1, 2, 3, 4, training=5) for whose in ("native", "cudnn", "miopen")},
    "aten::native_layer_norm_backward": _norm_backward(3, 4, weight=5, mask=7),
    "aten::_fused_rms_norm_backward": _norm_backward(3, weight=4, mask=5),
    "aten::native_group_norm_backward": _norm_backward(2, 3, weight=4, mask=9),
    "aten::native_batch_norm_backward": _norm_backward(5, 6, weight=2, mask=9),
    **{f"aten::{whose}_batch_norm_backward": _norm_backward(5, 6, weight=2) for whose in ("cudnn", "miopen")},
    "aten::_softmax": _softmax,
    "aten::_log_softmax": _softmax,
    "aten::_softmax_backward_data": _softmax_backward,
    "aten::_log_softmax_backward_data": _softmax_backward,
    "aten::embedding": _embedding,
    "aten::embedding_dense_backward": _embedding_backward,
}
