"""Where attention runs in separate operators: torch's own way without a fused kernel, and what a model writes out itself."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns.ranges import Ranges
from profkit.findings.patterns import MATH_ATTENTION
from profkit.model.arrays import I64, distinct_codes, rows_by_value
from profkit.model.trace import CpuOps, Trace
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.host import enclosing_op, in_backward

_MATH: Final = later(r"^aten::_scaled_dot_product_attention_math")
_PRODUCT: Final = later(r"^aten::(?:bmm|baddbmm)_?$")
_SCORES: Final = later(r"^aten::_softmax(?:_backward_data)?$")
_OTHER: Final = later(
    r"^aten::(?:mm|addmm|linear|\w*convolution\w*|native_(?:layer|batch|group)_norm\w*|embedding\w*|\w*loss\w*|_log_softmax\w*)$"
)
"""What stands between two products that are no attention."""
_TORCHS_ON_CPU: Final = "attention without dropout, masks that need no gradient, no need_weights=True: a CPU's fused kernel takes nothing else"
_OWN_ON_CPU: Final = (
    "F.scaled_dot_product_attention for attention of your own; nn.MultiheadAttention: need_weights=False"
)


def separate(facts: Facts) -> Ranges:
    """Calls of the way without a fused kernel; elsewhere what stands between both products with the scores, backward as well.

    The products are needed with a fused kernel, too. What stands between them writes and reads the matrix of scores.
    """
    trace = facts.trace
    ops = trace.ops
    math = np.flatnonzero(trace.named(ops.name, _MATH))
    scores = np.flatnonzero(trace.named(ops.name, _SCORES))
    if math.size:
        scores = scores[enclosing_op(ops.take(math), ops.thread[scores], ops.start_ns[scores]) < 0]
    whole = Ranges.of(ops, math, trace.window_ns)
    if not scores.size:
        return whole
    product, other = trace.named(ops.name, _PRODUCT), trace.named(ops.name, _OTHER)
    found = [whole]
    for thread, mine in rows_by_value(ops.thread[scores]):
        on, at = ops.thread == thread, scores[mine]
        first, at, second = _around(ops, np.flatnonzero(on & product), at)
        after, until = ops.end_ns[first], ops.start_ns[second]
        others = np.sort(ops.start_ns[on & other])
        is_free = np.searchsorted(others, until) <= np.searchsorted(others, after)
        is_free &= _is_attention(trace, first, at, second)
        start, end = after[is_free], until[is_free]
        found.append(Ranges.of(ops, at[is_free], trace.window_ns, start_ns=start, end_ns=end))
    return Ranges.joined(*found)


def _around(ops: CpuOps, products: I64, at: I64) -> tuple[I64, I64, I64]:
    """Per softmax with a product before it and one behind it: the first product, the softmax, the second, as rows."""
    by_end = products[np.argsort(ops.end_ns[products], kind="stable")]
    before = np.searchsorted(ops.end_ns[by_end], ops.start_ns[at], "right") - 1
    after = np.searchsorted(ops.start_ns[products], ops.start_ns[at], "right")
    has_both = (before >= 0) & (after < products.size)
    return by_end[before[has_both]], at[has_both], products[after[has_both]]


def _is_attention(trace: Trace, first: I64, scores: I64, second: I64) -> NDArray[np.bool_]:
    """Whether the second product may take what was made of the first one's: in the same pass, and of the same size.

    A loss takes a softmax of products as well: the next product is then one of the backward pass.
    """
    rows = np.concatenate([first, scores, second])
    back = in_backward(trace, rows).reshape(3, -1)
    sizes = _elements(trace, rows).reshape(3, -1, 3)
    made, taken, given = sizes[0, :, 0], sizes[1, :, 1], sizes[2, :, 1:]
    is_of_size = (made == taken) & (given == taken[:, None]).any(1) | (sizes < 0).any(axis=(0, 2))
    found: NDArray[np.bool_] = (back == back[0]).all(0) & is_of_size
    return found


def _elements(trace: Trace, rows: I64) -> I64:
    """Per operator how many elements a product of its last two tensors has, and each of them, shape (n, 3); -1: unknown."""
    codes, place = np.unique(trace.ops.signature[rows], return_inverse=True)
    told = [trace.signatures[code] if code >= 0 else None for code in codes.tolist()]
    last = [one.tensors[-2:] if one is not None and one.tensors else [(-1,)] for one in told]
    return np.array([(prod(two[0][:-1]) * two[-1][-1], prod(two[0]), prod(two[-1])) for two in last], np.int64)[place]


def fix_of_attention(facts: Facts, found: Ranges) -> str:
    """A CPU has other conditions than a GPU; without a call of torch's, the model writes it out itself."""
    is_torchs = any(_MATH.search(facts.trace.name(code)) for code in distinct_codes(found.name).tolist())
    if facts.cpu is not None:
        return _TORCHS_ON_CPU if is_torchs else _OWN_ON_CPU
    return MATH_ATTENTION.fixes[0] if is_torchs else MATH_ATTENTION.fixes[-1]
