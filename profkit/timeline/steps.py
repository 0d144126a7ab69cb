"""The steps of a trace: those inside its window, their edges, and the step that a time lies in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.model.arrays import I64, IntervalArrays, place_among
from profkit.model.trace import DEVICE_STEPS, I32, Step, Trace

EDGES_ON_DEVICE: Final = (DEVICE_STEPS, "period", "span")
"""Where a step begins with a kernel; else it begins on the host."""


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
