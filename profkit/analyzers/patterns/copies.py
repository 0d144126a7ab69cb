"""Copies that only put elements in order, in the code of packages: no line of the script chooses their layout."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.patterns.forward import with_frames
from profkit.analyzers.patterns.ranges import IN_ORDER
from profkit.analyzers.patterns.shaped import Forward, timed_rows
from profkit.model.arrays import looked_up
from profkit.redact.later import later
from profkit.timeline import Facts
from profkit.timeline.code.frames import nearest
from profkit.timeline.code.phases import backward_of

_ATTENTION: Final = later(
    r"^nn\.Module: MultiheadAttention_|torch/nn/functional\.py\(\d+\): multi_head_attention_forward$"
)
"""Frames of torch's own layer that lays its tensors out by itself."""


def of_packages(facts: Facts) -> NDArray[np.int64]:
    """The copies that the code of a package makes, or the backward nodes of its operators."""
    beside = with_frames(facts)
    code, trace = beside.code, beside.trace
    if code is None or code.joined is None or not len(code.joined.frames.rows):
        return np.empty(0, np.int64)
    ops, frames, backward = trace.ops, code.joined.frames, backward_of(trace)
    rows = np.flatnonzero(trace.named(ops.name, IN_ORDER)).astype(np.int64)
    node = backward.at(ops.thread[rows], ops.start_ns[rows])
    made = np.where(node >= 0, looked_up(backward.forward, node), rows)
    inner = frames.at(ops.thread[made], ops.start_ns[made])
    inner[made < 0] = -1
    around = nearest(trace.named(frames.rows.name, _ATTENTION), frames.parent)
    found = np.zeros(rows.size, np.bool_)
    for outer in (around, frames.library):
        its = looked_up(outer, inner)
        found |= (its >= 0) & (looked_up(frames.own, its) == looked_up(frames.own, inner))
    return timed_rows(facts, Forward(facts, None if trace is facts.trace else trace), rows[found])
