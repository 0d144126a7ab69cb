"""When a device is busy, and with what."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import of_rows
from profkit.model.intervals import Intervals
from profkit.model.names import WHOLE_GRAPH
from profkit.model.trace import Kind, Trace


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """One device's busy sets inside the window; `rows` are its rows in `Trace.gpu` that touch the window."""

    rows: NDArray[np.intp]
    compute: Intervals
    comm: Intervals
    copy: Intervals
    any: Intervals
    """Busy with anything: the union of the three."""

    @property
    def comm_exposed(self) -> Intervals:
        """Communication without compute under it."""
        return self.comm - self.compute

    @property
    def copy_exposed(self) -> Intervals:
        """Copies with nothing else beside them."""
        return self.copy - (self.compute | self.comm)


def busiest_device(trace: Trace) -> int:
    """The device that is busy for longest in the window, the first of several."""
    devices = trace.device_indices
    if len(devices) == 1:
        return devices[0]
    return max(devices, key=lambda device: device_activity(trace, device).any.total_ns)


def device_activity(trace: Trace, device: int) -> Activity:
    """The activity of one device, clipped to the window (docs/method.md, section 2)."""
    gpu = trace.gpu
    low, high = trace.window_ns
    rows = np.flatnonzero((gpu.device == device) & (gpu.end_ns >= low) & (gpu.start_ns < high))
    kinds = of_rows(gpu.kind, rows)

    def of(kind: Kind) -> Intervals:
        return Intervals.of_rows(gpu, rows[kinds == kind]).clip(low, high)

    compute, comm, copy = of(Kind.COMPUTE), of(Kind.COMM), of(Kind.COPY)
    return Activity(rows=rows, compute=compute, comm=comm, copy=copy, any=compute | comm | copy)


def whole_graphs_ns(trace: Trace, rows: NDArray[np.intp]) -> int | None:
    """Time of the window in CUDA graphs that were recorded as one row each, ns; None where there are none."""
    gpu = trace.gpu
    mine = rows[trace.named(of_rows(gpu.name, rows), WHOLE_GRAPH)]
    return Intervals.of_rows(gpu, mine).clip(*trace.window_ns).total_ns if mine.size else None
