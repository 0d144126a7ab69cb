"""How many batches each step fetches."""

from __future__ import annotations

import numpy as np

from profkit.model.arrays import I64
from profkit.model.intervals import Intervals
from profkit.timeline.facts import Facts
from profkit.timeline.host import loader_ranges
from profkit.timeline.steps import EDGES_ON_DEVICE, edges, whole_steps


def fetches_per_step(facts: Facts) -> I64:
    """How many batches each step fetches, shape (n,); empty where steps do not begin on the host."""
    trace = facts.trace
    steps = whole_steps(trace)
    if not steps or trace.step_source in EDGES_ON_DEVICE:
        return np.empty(0, np.int64)
    mine = loader_ranges(trace.spans, facts.host.threads)[0]
    begun = Intervals.of(trace.spans.start_ns[mine], trace.spans.end_ns[mine]).start_ns  # ranges inside others apart
    start, end = edges(steps)
    place = np.searchsorted(start, begun, "right") - 1
    inside = (place >= 0) & (begun < end[place])
    return np.bincount(place[inside], minlength=start.size).astype(np.int64)
