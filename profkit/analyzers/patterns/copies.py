"""Copies that only put elements in order: those whose layout a script chooses."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns.forward import with_frames
from profkit.analyzers.patterns.ranges import Ranges
from profkit.model.arrays import is_member
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code.frames import nearest
from profkit.timeline.code.phases import backward_of
from profkit.timeline.host import enclosing_op

_OF_GRADIENT: Final = later(r"^aten::(?:\w+_)?(?:convolution_backward|\w*attention\w*_backward)$")
_IN_ORDER: Final = later(r"^aten::(?:contiguous|reshape)$")
_ATTENTION: Final = later(
    r"^nn\.Module: MultiheadAttention_|torch/nn/functional\.py\(\d+\): multi_head_attention_forward$"
)
"""Frames of torch's own layer that lays its tensors out by itself."""


def copies(facts: Facts) -> Ranges:
    """Operators that copy a tensor to have its elements in order.

    Not those of a gradient inside the backward of a convolution or of attention, nor those that an installed package or
    torch's attention makes: no line of the script chooses their layout.
    """
    trace, ops = facts.trace, facts.trace.ops
    rows = np.flatnonzero(trace.named(ops.name, _IN_ORDER))
    of_library = ops.take(np.flatnonzero(trace.named(ops.name, _OF_GRADIENT)))
    rows = rows[enclosing_op(of_library, ops.thread[rows], ops.start_ns[rows]) < 0]
    return Ranges.of(ops, rows[~is_member(rows, np.sort(_of_packages(facts)))], trace.window_ns)


def _of_packages(facts: Facts) -> NDArray[np.int64]:
    """The copies that the code of a package makes, or the backward nodes of its operators."""
    beside = with_frames(facts)
    code, trace = beside.code, beside.trace
    if code is None or code.joined is None or not len(code.joined.frames.rows):
        return np.empty(0, np.int64)
    from profkit.analyzers.patterns.shaped import Forward, timed_rows  # loaded for traces with stacks

    ops, frames, backward = trace.ops, code.joined.frames, backward_of(trace)
    rows = np.flatnonzero(trace.named(ops.name, _IN_ORDER)).astype(np.int64)
    node = backward.at(ops.thread[rows], ops.start_ns[rows])
    made = np.where(node >= 0, backward.forward[node], rows) if backward.rows.size else rows
    inner = frames.at(ops.thread[made], ops.start_ns[made])
    inner[made < 0] = -1
    around = nearest(trace.named(frames.rows.name, _ATTENTION), frames.parent)
    found = np.zeros(rows.size, np.bool_)
    for outer in (around, frames.library):
        its = np.where(inner >= 0, outer[np.maximum(inner, 0)], -1) if outer.size else np.full(rows.size, -1)
        found |= (its >= 0) & (frames.own[np.maximum(its, 0)] == frames.own[np.maximum(inner, 0)])
    return timed_rows(facts, Forward(facts, None if trace is facts.trace else trace), rows[found])
