"""Writes into slices of a tensor under autograd: the backward node of each copies the gradient of the whole tensor."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.analyzers.patterns.ranges import Ranges
from profkit.findings.again import SLICE_WRITES
from profkit.model.arrays import I64, distinct_codes
from profkit.timeline import Facts
from profkit.timeline.code.phases import COPY_SLICES, backward_of
from profkit.timeline.steps import step_of

_WRITE: Final = "aten::copy_"


def _of_window(facts: Facts) -> tuple[I64, int]:
    """The backward nodes of writes, rows of `Trace.ops`, and how many of them a step has; 0 where steps are not known."""
    trace, ops = facts.trace, facts.trace.ops
    if not trace.steps or _WRITE not in trace.strings or not any(map(COPY_SLICES.search, trace.strings)):
        return np.empty(0, np.int64), 0
    backward = backward_of(trace)
    is_write = trace.named(ops.name, COPY_SLICES)[backward.rows] & (backward.forward >= 0)
    is_write &= ops.name[backward.forward] == trace.strings.index(_WRITE)
    rows = backward.rows[is_write]
    steps = step_of(ops.start_ns[rows], trace.steps)
    return rows, round(rows.size / max(distinct_codes(steps).size, 1))


def slice_writes(facts: Facts) -> Ranges | None:
    """These nodes; None where a step has few."""
    rows, n = facts.once(_of_window)
    return Ranges.of(facts.trace.ops, rows, facts.trace.window_ns) if n >= SLICE_WRITES.limit("writes") else None


def kept_of_writes(facts: Facts, _: Ranges) -> float:
    """One copy of the whole gradient for those of a step."""
    return 1 / facts.once(_of_window)[1]


def title_of_writes(facts: Facts, _: Ranges) -> str:
    """How many a step has."""
    return f"{facts.once(_of_window)[1]:,} {SLICE_WRITES.title}"
