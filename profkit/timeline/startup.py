"""What of a recording is no step yet: the upload of the model, warm-up, first steps; where nobody marked the steps.

"Record my whole script" is the commonest capture there is. The window begins where the job does: behind ranges that
say that they set up or warm up, behind many copies before the first kernel (a few are the input of the work), at the
first of the steps found by their period that is not held up. It ends with the last one that is not: an evaluation, a
next epoch's workers. Steps that the host marked lose first ones that are held up where many regular ones follow. What
is left out is said; of steps that are ranges of the program, what lies outside of them.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.findings.capture import QUALITY
from profkit.model.arrays import distinct_codes, is_one_of, median, order_of
from profkit.model.intervals import Intervals
from profkit.model.names import is_starting
from profkit.model.trace import DEVICE_STEPS, RANGED_STEPS, Kind, SpanKind, Trace
from profkit.timeline.activity import busiest_device
from profkit.timeline.launch_order import asked_ns
from profkit.timeline.pace import Paced
from profkit.timeline.steps import steps_in_window
from profkit.units import format_fraction, format_ns

_LONG: Final = 2
"""Times the median of the steps between from which a first step is start-up, and a last one what follows. Chosen."""
_MOST_WORK: Final = 0.5
"""Share of the compute that must come behind what is left out: else that is the job. Chosen."""
_MOST_INPUTS: Final = 3
"""Copies before the first kernel that are the input of the work: images, labels, a mask. Chosen: a model has more."""
_MOST_COPYING: Final = 0.5
"""Share of the time before the first kernel that these copies take: else something else goes on there. Chosen."""
_MANY_STEPS: Final = 20
"""Marked steps that must follow those that are held up. Chosen: so many show the job without them."""
_MOST_HELD_UP: Final = 3
"""First marked steps that may be left out. Chosen: compilers and trials of convolutions take one or two."""
_HELD_UP: Final = 10
"""Times the median of the steps behind it from which a marked step is held up by what is done once. Chosen: a marked
step is the user's word, and a checkpoint or a first batch takes less."""
_WORTH: Final = 0.01
"""Of the window: less changes no number that is read."""
_MOST_BESIDE: Final = 0.1
"""Share of the busy time of the recording, from which what lies outside of the steps is said. Chosen: less is the tail
of a loop."""


def settled(trace: Trace) -> Paced:
    """The trace without its start-up; as it is where nothing ran on a device."""
    if trace.is_marked:
        return _without_first_steps(trace)
    if not trace.device_indices or trace.step_source == DEVICE_STEPS:
        return Paced(trace)
    return _from_steady_step(trace) if trace.steps else _from_first_work(trace)


def _without_first_steps(trace: Trace) -> Paced:
    """The trace without first marked steps that are held up, where many regular ones follow."""
    steps = steps_in_window(trace)
    is_chosen = len(steps) < len(trace.steps)  # by the user, or for what was lost
    if not trace.device_indices or is_chosen or len(steps) <= _MANY_STEPS:
        return Paced(trace)
    lengths = np.diff([*(step.start_ns for step in steps), trace.window_ns[1]])
    usual = median(lengths[_MOST_HELD_UP:])
    is_held_up = lengths > _HELD_UP * usual
    n_left = int(np.flatnonzero(is_held_up[:_MOST_HELD_UP]).max(initial=-1)) + 1
    left_ns = int(lengths[:n_left].sum())
    is_regular = not (lengths[n_left:] > _HELD_UP * usual).any() and len(steps) - n_left >= _MANY_STEPS
    if not is_regular or left_ns <= QUALITY.limit("steps.startup") * trace.window_duration_ns:
        return Paced(trace)
    which = "first step is" if n_left == 1 else f"first {n_left} steps are"
    note = (
        f"the {which} left out: {format_ns(left_ns)}, against {format_ns(usual)} of the {len(steps) - n_left} steps"
        " that follow, is start-up"
    )
    return Paced(replace(trace, window_ns=(steps[n_left].start_ns, trace.window_ns[1])), note)


def _from_steady_step(trace: Trace) -> Paced:
    """From the first of the steps found by their period that is no longer than usual, to the last such one."""
    steps, (low, high) = trace.steps, trace.window_ns
    lengths = np.array([step.duration_ns for step in steps], np.int64)
    least = int(QUALITY.limit("steps.few"))
    first = next((k for k in range(len(steps) - least + 1) if lengths[k] <= _LONG * median(lengths[k:])), 0)
    ends = range(len(steps), first + least - 1, -1)
    last = next((k for k in ends if lengths[k - 1] <= _LONG * median(lengths[first:k])), len(steps))
    kept = steps[first:last]
    beside = high - low - sum(step.duration_ns for step in kept)
    if len(kept) == len(steps) and beside <= QUALITY.limit("steps.startup") * (high - low):
        return Paced(trace)
    window = kept[0].start_ns, kept[-1].end_ns
    left_ns = (high - low) - (window[1] - window[0])
    note = f"the window is the {len(kept)} steps found by their period: {format_ns(left_ns)} is left out"
    return Paced(replace(trace, window_ns=window), note)


def _from_first_work(trace: Trace) -> Paced:
    """From the end of ranges that set up or warm up, or from the first kernel where copies come before it."""
    gpu, (low, high) = trace.gpu, trace.window_ns
    kernels = np.flatnonzero((gpu.kind == Kind.COMPUTE) & (gpu.device == busiest_device(trace)))
    if kernels.size == 0:
        return Paced(trace)
    begins, why = int(gpu.start_ns[kernels[0]]), "copies before the first kernel"
    if _is_input(trace, begins):
        begins = low
    spans = trace.spans
    named = [code for code in distinct_codes(spans.name).tolist() if is_starting(trace.name(code))]
    rows = np.flatnonzero((spans.kind == SpanKind.OTHER) & is_one_of(spans.name, named))
    work, asked = gpu.end_ns[kernels] - gpu.start_ns[kernels], asked_ns(trace, kernels)
    for row in rows[order_of(-spans.end_ns[rows])].tolist():
        end = int(spans.end_ns[row])
        behind = asked >= end
        if end > begins and int(work[behind].sum()) >= _MOST_WORK * int(work.sum()):
            begins = int(gpu.start_ns[kernels[behind]].min())
            why = f"what comes before the end of {trace.name(int(spans.name[row]))}"
            break
    if begins - low < _WORTH * (high - low) or begins >= high:
        return Paced(trace)
    window = begins, high
    share = format_fraction((begins - low) / (high - low))
    note = (
        f"{why} and the idle time there, {format_ns(begins - low)} ({share} of the recording), are left out: start-up"
    )
    return Paced(replace(trace, window_ns=window), note)


def _is_input(trace: Trace, first_ns: int) -> bool:
    """Whether what the devices do before the first kernel is a few copies that bring it its input, and nothing else."""
    gpu, low = trace.gpu, trace.window_ns[0]
    rows = np.flatnonzero((gpu.start_ns >= low) & (gpu.start_ns < first_ns))
    if not 0 < rows.size <= _MOST_INPUTS or (gpu.kind[rows] != Kind.COPY).any():
        return False
    copying = Intervals.of_rows(gpu, rows).total_ns
    return copying >= _MOST_COPYING * (first_ns - low)


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
