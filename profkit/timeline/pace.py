"""Whose pace the steps have: markers are the host's; where device and host part, the device's work cuts the window.

Three cases, by how far the device lags behind the host at the window's start and at its end:

    it lags as far at both         the markers are the steps: what lies at one edge lies at the other as well
    further at the end             a step begins where the device begins the work of a marked step. The host runs ahead
                                   only where the device takes longer for it than the markers last; else the work of the
                                   last step ends behind its marker, and the idle time before the next one was not
                                   recorded: that step is left out
    further at the start           the device works off what was launched before: steps begun meanwhile are left out
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.findings.capture import QUALITY
from profkit.model.arrays import I64, coded, median
from profkit.model.trace import DEVICE_STEPS, GpuWork, Kind, Step, Trace
from profkit.timeline.activity import busiest_device
from profkit.timeline.launch_order import asked_ns, behind_ns
from profkit.timeline.steps import edges, steps_in_window
from profkit.units import format_ns

_WHOLE: Final = 0.9
"""A last step with fewer kernels than this share of the others' is cut off (chosen: as for periods)."""


class Paced(msgspec.Struct, frozen=True):
    """A trace with the window and the steps to judge, and what was done to them, "" for nothing."""

    trace: Trace
    note: str = ""


def paced(trace: Trace) -> Paced:
    """The trace with the steps at the pace of its busiest device; as it is where markers show that or lack."""
    steps, window = steps_in_window(trace), trace.window_duration_ns
    if not steps or not trace.is_marked or not trace.device_indices:
        return Paced(trace)
    device = busiest_device(trace)
    low, high = behind_ns(trace, device, trace.window_ns).tolist()
    limit = QUALITY.limit("steps.outrun")
    if high - low > limit * window:
        return _at_device_pace(trace, device, steps)
    if low - high > limit * window:
        return _without_backlog(trace, device, steps, limit)
    return Paced(trace)


def _at_device_pace(trace: Trace, device: int, steps: tuple[Step, ...]) -> Paced:
    own = _device_steps(trace, device, steps)
    if not own:
        return Paced(trace)
    marked, taken = (sum(step.duration_ns for step in some) // len(some) for some in (steps, own))
    note = (
        f"the host runs ahead: its step markers are {format_ns(marked)} long, but the GPU takes {format_ns(taken)} for"
        " a step, so steps are measured on the GPU"
    )
    if taken < marked:
        own = own[:-1]
        note = (
            "the GPU ends the work of the last step after its marker: steps are measured on the GPU, from the first"
            " kernel of one to that of the next, and the last one is left out"
        )
        if not own:
            return Paced(trace)
    cut = replace(trace, steps=own, step_source=DEVICE_STEPS, window_ns=(own[0].start_ns, own[-1].end_ns))
    return Paced(cut, note)


def _without_backlog(trace: Trace, device: int, steps: tuple[Step, ...], limit: float) -> Paced:
    """The trace from the first step at whose start the device lags no further behind than at the window's end.

    That is, by a tenth of a step at most; where that leaves too few steps, of the window.
    """
    end = trace.window_ns[1]
    starts, ends = edges(steps)
    lags = behind_ns(trace, device, np.append(starts, end))
    beyond = lags[:-1] - lags[-1]
    is_even = beyond <= limit * (ends - starts)
    if len(steps) - int(is_even.argmax()) < QUALITY.limit("steps.few") or not is_even.any():
        is_even = beyond <= limit * (end - starts)
    left = int(is_even.argmax())
    if not is_even.any():
        return Paced(trace)
    note = (
        f"the first {'step is' if left == 1 else f'{left} steps are'} left out: the GPU worked on operations that the"
        f" host had launched before the first step, for {format_ns(int(lags[0]))}"
    )
    return Paced(replace(trace, window_ns=(int(starts[left]), end)), note)


def _device_steps(trace: Trace, device: int, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """From the first kernel that each step launches to the first that is launched after it, on the busiest stream."""
    gpu = trace.gpu
    linked = np.flatnonzero((gpu.device == device) & (gpu.launch_row >= 0))
    kernels = linked[gpu.kind[linked] == Kind.COMPUTE]
    if kernels.size == 0:
        return ()
    rows = kernels[gpu.stream[kernels] == _busiest_stream(gpu, kernels)]
    asked = np.maximum.accumulate(asked_ns(trace, rows))
    first = np.searchsorted(asked, [step.start_ns for step in steps])
    stop = np.searchsorted(asked, [step.end_ns for step in steps])
    begun = gpu.start_ns[rows]
    places = np.flatnonzero(stop > first)
    last = _last_end(trace, linked, steps[-1], after_ns=int(gpu.end_ns[rows[-1]]))
    ends = [int(begun[stop[place]]) if stop[place] < rows.size else last for place in places]
    counts = (stop - first)[places]
    if places.size > 1 and stop[places[-1]] == rows.size and counts[-1] < _WHOLE * median(counts[:-1]):
        places = places[:-1]
    begins = begun[first[places]].tolist()
    known = [(steps[place].number, start, end) for place, start, end in zip(places, begins, ends, strict=False)]
    lasting = [one for one in known if one[2] > one[1]]
    return tuple(
        Step(index=k, number=number, start_ns=low, end_ns=high) for k, (number, low, high) in enumerate(lasting)
    )


def _busiest_stream(gpu: GpuWork, rows: NDArray[np.intp]) -> int:
    streams, place = coded(gpu.stream[rows])
    return int(streams[np.bincount(place, weights=gpu.end_ns[rows] - gpu.start_ns[rows]).argmax()])


def _last_end(trace: Trace, rows: NDArray[np.intp], step: Step, *, after_ns: int) -> int:
    """Where the last of what a step launched ends on the device of these rows, not before `after_ns`."""
    asked: I64 = trace.calls.start_ns[trace.gpu.launch_row[rows]]
    mine = rows[(asked >= step.start_ns) & (asked < step.end_ns)]
    return int(trace.gpu.end_ns[mine].max(initial=after_ns))
