"""Where attention runs in separate operators: torch's own way without a fused kernel, and what a model writes out itself."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns.ranges import Ranges, named
from profkit.findings.patterns import MATH_ATTENTION
from profkit.model.arrays import I64, distinct_codes, rows_by_value
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.host import enclosing_op

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
    math = np.flatnonzero(named(trace, ops, _MATH))
    scores = np.flatnonzero(named(trace, ops, _SCORES))
    if math.size:
        scores = scores[enclosing_op(ops.take(math), ops.thread[scores], ops.start_ns[scores]) < 0]
    whole = Ranges.of(ops, math, trace.window_ns)
    if not scores.size:
        return whole
    product, other = named(trace, ops, _PRODUCT), named(trace, ops, _OTHER)
    begin, end = trace.window_ns
    found = [whole]
    for thread, mine in rows_by_value(ops.thread[scores]):
        on, at = ops.thread == thread, scores[mine]
        after, until = _between(ops.end_ns[on & product], ops.start_ns[on & product], ops.start_ns[at])
        is_free = (after >= 0) & (until > begin) & (after < end)
        is_free &= ~_any_inside(np.sort(ops.start_ns[on & other]), after, until)
        written = at[is_free]
        thread_of, name = ops.thread[written], ops.name[written]
        found.append(Ranges(start_ns=after[is_free], end_ns=until[is_free], thread=thread_of, name=name))
    return Ranges.joined(*found)


def _between(ends_ns: I64, starts_ns: I64, at_ns: I64) -> tuple[I64, I64]:
    """Per moment the end of the product before it and the start of the one behind it; -1 and -1 where one is missing."""
    ends, starts = np.sort(ends_ns), np.sort(starts_ns)
    before, after = np.searchsorted(ends, at_ns, "right") - 1, np.searchsorted(starts, at_ns, "right")
    is_known = (before >= 0) & (after < starts.size)
    low = np.where(is_known, ends[np.maximum(before, 0)] if ends.size else -1, -1)
    high = np.where(is_known, starts[np.minimum(after, starts.size - 1)] if starts.size else -1, -1)
    return low.astype(np.int64), high.astype(np.int64)


def _any_inside(ordered_ns: I64, low_ns: I64, high_ns: I64) -> NDArray[np.bool_]:
    return np.searchsorted(ordered_ns, high_ns, "left") > np.searchsorted(ordered_ns, low_ns, "left")


def fix_of_attention(facts: Facts, found: Ranges) -> str:
    """A CPU has other conditions than a GPU; without a call of torch's, the model writes it out itself."""
    is_torchs = any(_MATH.search(facts.trace.name(code)) for code in distinct_codes(found.name).tolist())
    if facts.cpu is not None:
        return _TORCHS_ON_CPU if is_torchs else _OWN_ON_CPU
    return MATH_ATTENTION.fixes[0] if is_torchs else MATH_ATTENTION.fixes[-1]
