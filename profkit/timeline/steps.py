"""The steps of a trace: those inside its window, their edges, the step that a time lies in, and what was worked on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.model.arrays import I64, IntervalArrays, place_among, rows_by_value
from profkit.model.trace import DEVICE_STEPS, EMBEDDED, I32, Step, Trace

EDGES_ON_DEVICE: Final = (DEVICE_STEPS, "period", "span")
"""Where a step begins with a kernel; else it begins on the host."""
_TOLD: Final = ("tokens", "padded_tokens", "samples")
_MOST_TOLD: Final = 2.0**53  # beyond, a float64 counts no longer in ones


def steps_in_window(trace: Trace) -> tuple[Step, ...]:
    """The steps that lie wholly inside the window."""
    low, high = trace.window_ns
    return tuple(step for step in trace.steps if step.start_ns >= low and step.end_ns <= high)


def edges(steps: Sequence[Step]) -> IntervalArrays:
    """Where the steps start and end, int64 ns, shape (n,) each."""
    return np.array([step.start_ns for step in steps], np.int64), np.array([step.end_ns for step in steps], np.int64)


def whole_steps(trace: Trace) -> tuple[Step, ...]:
    """The steps of the window, each to where the next begins, the last to the window's end.

    So marked steps fill the window, and the time between two markers is part of a step. Steps found by their period are
    as they were found: beside them the window has parts of others.
    """
    steps = steps_in_window(trace)
    if not steps or trace.step_source == "period":
        return steps
    ends = (*(step.start_ns for step in steps[1:]), trace.window_ns[1])
    return tuple(replace(step, end_ns=end) for step, end in zip(steps, ends, strict=True))


def step_lengths_ns(trace: Trace) -> I64:
    """How long each step of the window takes with what follows it, int64 ns, shape (n,)."""
    start, end = edges(whole_steps(trace))
    return end - start


def step_of(times_ns: I64, steps: Sequence[Step]) -> I32:
    """The place among `steps` of the one that each time lies in, -1 for none."""
    if not steps:
        return np.full(times_ns.size, -1, np.int32)
    start, end = edges(steps)
    place = (place_among(start, times_ns, after=True) - 1).astype(np.int32)
    return np.where((place >= 0) & (times_ns < end[place]), place, np.int32(-1))


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
        counts = np.rint(np.clip(total, 0, _MOST_TOLD)).astype(np.int64)
        name = trace.name(int(code))
        if name.startswith(EMBEDDED):
            out["embedded"][there] = np.maximum(out["embedded"][there], counts)
        elif name in _TOLD:
            out[name][there] = counts
    return out
