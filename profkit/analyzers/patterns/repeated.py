"""Products that are made again of the very tensors of which they were made before, as the capture marks them."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.analyzers.patterns.shaped import Forward, Waste, each_with_backward, timed_rows
from profkit.findings.wasted import REPEATED
from profkit.model.trace import Trace
from profkit.timeline import Facts
from profkit.timeline.host import enclosing_op

SAME_TENSORS: Final = "profkit: of the same tensors"
"""The name of its ranges: `profkit/capture/inside/places/same_inputs.py`."""


def repeated(facts: Facts) -> Waste | None:
    """All but the first of the products of the same tensors, with their backward nodes."""
    again = facts.trace.again
    if again is None or SAME_TENSORS not in again.strings or not again.steps:
        return None
    seen = Forward(facts, again)
    n_more = _n_more(again, seen)
    rows = seen.rows[(n_more >= REPEATED.limit("calls") - 1) & ~seen.is_back]
    timed = timed_rows(facts, seen, rows)
    if not timed.size:
        return None
    title = (
        f"a layer computes the same {int(n_more.max()) + 1} times in a step: neither its input nor its weights change"
    )
    return Waste(each_with_backward(facts, timed), 0.0, title)


def _n_more(trace: Trace, seen: Forward) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Per operator of `seen` that is marked: how many of its arguments are marked in a step, on average; 0 of others."""
    spans = trace.spans.take(np.flatnonzero(trace.named(trace.spans.name, SAME_TENSORS)))
    ops = trace.ops
    marked = enclosing_op(spans, ops.thread[seen.rows], ops.start_ns[seen.rows]) >= 0
    kind = ops.signature[seen.rows]
    count = np.bincount(kind[marked] + 1, minlength=int(kind.max(initial=-1)) + 2) // len(trace.steps)
    return np.where(marked, count[kind + 1], 0)
