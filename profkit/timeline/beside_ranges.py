"""What the steps leave out where they are ranges of the program: other loops, warm-up, the rest of a pass."""

from __future__ import annotations

from typing import Final

from profkit.model.intervals import Intervals
from profkit.model.trace import RANGED_STEPS, Trace
from profkit.timeline.activity import busiest_device
from profkit.timeline.pace import Paced
from profkit.units import format_fraction, format_ns

_MOST_BESIDE: Final = 0.1
"""Share of the busy time of the recording, from which what lies outside of the steps is said. Chosen: less is the tail
of a loop."""


def beside_ranges(trace: Trace) -> Paced:
    """The trace as it is, with a note where the device does much outside of steps that are ranges of the program."""
    if trace.step_source != RANGED_STEPS or not trace.steps or not trace.device_indices:
        return Paced(trace)
    gpu = trace.gpu
    busy = Intervals.of_rows(gpu, gpu.device == busiest_device(trace))
    low, high = trace.steps[0].start_ns, trace.steps[-1].end_ns
    left_ns = busy.total_ns - busy.clip(low, high).total_ns
    if left_ns <= _MOST_BESIDE * busy.total_ns:
        return Paced(trace)
    share = format_fraction(left_ns / busy.total_ns)
    n = len(trace.steps)
    note = (
        f"the steps are {n} ranges of the program that recur: {format_ns(left_ns)} of GPU work ({share} of the"
        " recording's) lies outside of them and is left out"
    )
    return Paced(trace, note)
