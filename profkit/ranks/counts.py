"""What each step of a rank worked on: as its script told it, or as the shapes of its embeddings do."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.model.arrays import I64, distinct_codes
from profkit.model.trace import EMBEDDED, Trace

_TOLD: Final = ("tokens", "padded_tokens", "samples")


def told(trace: Trace) -> dict[str, I64]:
    """Give the counts per step, by the names of `StepRows`; 0 where nothing is known.

    What is told within a step adds up, as it does with gradient accumulation. Of embeddings the one with most indices
    counts: a model may look up positions or types beside its tokens, never more of them.
    """
    out = {name: np.zeros(len(trace.steps), np.int64) for name in (*_TOLD, "embedded")}
    work = trace.work
    if len(work) == 0 or not trace.steps:
        return out
    start = np.array([step.start_ns for step in trace.steps], np.int64)
    end = np.array([step.end_ns for step in trace.steps], np.int64)
    place = np.searchsorted(start, work.start_ns, "right") - 1
    inside = (place >= 0) & (work.start_ns < end[np.maximum(place, 0)])
    for code in distinct_codes(work.name):
        rows = np.flatnonzero(inside & (work.name == code))
        total = np.bincount(place[rows], work.value[rows], len(start))
        counts = np.rint(np.clip(total, 0, _MOST)).astype(np.int64)
        name = trace.name(int(code))
        if name.startswith(EMBEDDED):
            out["embedded"] = np.maximum(out["embedded"], counts)
        elif name in _TOLD:
            out[name] = counts
    return out


_MOST: Final = 2.0**53  # beyond, a float64 counts no longer in ones
