"""What of a recording is no step yet: the upload of the model, warm-up, first steps; where nobody marked the steps.

"Record my whole script" is the commonest capture there is. The window begins where the job does: behind ranges that
say that they set up or warm up, behind copies before the first kernel, at the first of the steps found by their period
that is not held up. It ends with the last one that is not: an evaluation, a next epoch's workers. What is left out is
said.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from msgspec.structs import replace

from profkit.findings.capture import QUALITY
from profkit.model.arrays import median, order_of
from profkit.model.names import is_starting
from profkit.model.trace import DEVICE_STEPS, Kind, SpanKind, Trace
from profkit.timeline.activity import busiest_device
from profkit.timeline.launch_order import asked_ns
from profkit.timeline.pace import Paced
from profkit.units import format_fraction, format_ns

_LONG: Final = 2
"""Times the median of the steps between from which a first step is start-up, and a last one what follows. Chosen."""
_MOST_WORK: Final = 0.5
"""Share of the compute that must come behind what is left out: else that is the job. Chosen."""
_WORTH: Final = 0.01
"""Of the window: less changes no number that is read."""


def settled(trace: Trace) -> Paced:
    """The trace without its start-up; as it is where the host marked the steps, or where nothing ran on a device."""
    if trace.is_marked or not trace.device_indices or trace.step_source == DEVICE_STEPS:
        return Paced(trace)
    return _from_steady_step(trace) if trace.steps else _from_first_work(trace)


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
    note = f"the window is the {len(kept)} steps found by their period: {_left_out(trace, window)} is left out"
    return Paced(replace(trace, window_ns=window), note)


def _from_first_work(trace: Trace) -> Paced:
    """From the end of ranges that set up or warm up, or from the first kernel where copies come before it."""
    gpu, (low, high) = trace.gpu, trace.window_ns
    kernels = np.flatnonzero((gpu.kind == Kind.COMPUTE) & (gpu.device == busiest_device(trace)))
    if kernels.size == 0:
        return Paced(trace)
    begins, why = int(gpu.start_ns[kernels[0]]), "copies before the first kernel"
    spans = trace.spans
    named = [code for code, name in enumerate(trace.strings) if is_starting(name)]
    rows = np.flatnonzero((spans.kind == SpanKind.OTHER) & np.isin(spans.name, named))
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


def _left_out(trace: Trace, window: tuple[int, int]) -> str:
    low, high = trace.window_ns
    return format_ns((high - low) - (window[1] - window[0]))
