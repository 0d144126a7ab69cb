"""Scaled dot product attention: two products of matrices forward, five backward, and none of the scores in memory."""

from __future__ import annotations

from math import prod
from typing import Final

from profkit.model.signature import Signature
from profkit.roof.formulas.work import Formula, Work, is_tensor, is_true, precision, read, shape, size_of

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


def _forward(causal: int, mask: int = -1) -> Formula:
    def formula(signature: Signature) -> Work:
        q, v = shape(signature, 0), shape(signature, 2)
        out = prod(q[:-1]) * v[-1] * size_of(signature.types[0])
        moved = read(signature, 0, 1, 2) + (read(signature, mask) if mask >= 0 else 0)
        return _attention(signature, 0, is_causal=is_true(signature, causal), n_bytes=moved + out, times=(1, 1))

    return formula


def _backward(causal: int, out: int) -> Formula:
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
        q, v = shape(signature, 0), shape(signature, 2)
        out = prod(q[:-1]) * v[-1] * size_of(signature.types[0])
        return Work(
            family="attention",
            flops=None,
            least_flops=None,
            n_bytes=read(signature, 0, 1, 2) + out,
            precision=precision(signature.types[0]),
        )

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
    "aten::scaled_dot_product_attention": _forward(causal=5, mask=3),
    "aten::_scaled_dot_product_attention_math": _forward(causal=5, mask=3),
    "aten::_scaled_dot_product_flash_attention": _forward(causal=4),
    "aten::_scaled_dot_product_flash_attention_for_cpu": _forward(causal=4, mask=5),
    "aten::_scaled_dot_product_efficient_attention": _forward(causal=6, mask=3),
    "aten::_scaled_dot_product_cudnn_attention": _forward(causal=6, mask=3),
    "aten::_scaled_dot_product_fused_attention_overrideable": _forward(causal=5, mask=3),
    "aten::_scaled_dot_product_flash_attention_backward": _backward(causal=11, out=4),
    "aten::_scaled_dot_product_flash_attention_for_cpu_backward": _backward(causal=7, out=4),
    "aten::_scaled_dot_product_efficient_attention_backward": _backward(causal=11, out=5),
    "aten::_scaled_dot_product_cudnn_attention_backward": _backward(causal=14, out=4),
    "flash_attn::_flash_attn_forward": _package(0, causal=5, times=(1, 1)),
    "flash_attn::_flash_attn_backward": _package(1, causal=11, times=_BACKWARD, others=(0, 4)),
    "flash_attn::_flash_attn_varlen_forward": _of_lengths(3),
    "aten::_flash_attention_forward": _of_lengths(3),
    "aten::_efficient_attention_forward": _of_lengths(4),
}
