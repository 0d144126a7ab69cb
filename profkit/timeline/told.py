"""What a script said its steps worked on, by step: tokens, padded tokens, samples."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, rows_by_value
from profkit.model.trace import EMBEDDED, Trace
from profkit.timeline.steps import step_of

_TOLD: Final = ("tokens", "padded_tokens", "samples")
_MOST: Final = 2.0**53  # beyond, a float64 counts no longer in ones


def needed_ns(compute_ns: I64, tokens: I64, padded_tokens: I64) -> NDArray[np.float64]:
    """What compute on padded tokens would need for the real ones, if it grew with them; ns, in the shape given."""
    needed: NDArray[np.float64] = compute_ns * tokens / np.maximum(padded_tokens, 1)
    return needed


def told(trace: Trace) -> dict[str, I64]:
    """The counts per step, by the names of `StepRows`; 0 where nothing is known.

    What is told within a step adds up, as it does with gradient accumulation. Of embeddings the one with most indices
    counts: a model may look up positions or types beside its tokens, never more of them.
    """
    out = {name: np.zeros(len(trace.steps), np.int64) for name in (*_TOLD, "embedded")}
    work = trace.work
    if len(work) == 0 or not trace.steps:
        return out
    place = step_of(work.start_ns, trace.steps)
    inside = np.flatnonzero(place >= 0)
    for code, mine in rows_by_value(work.name[inside]):
        rows = inside[mine]
        there, of_row = np.unique(place[rows], return_inverse=True)
        total = np.bincount(of_row, work.value[rows])
        counts = np.rint(np.clip(total, 0, _MOST)).astype(np.int64)
        name = trace.name(int(code))
        if name.startswith(EMBEDDED):
            out["embedded"][there] = np.maximum(out["embedded"][there], counts)
        elif name in _TOLD:
            out[name][there] = counts
    return out
