"""Is the device ahead of the host? Launch lag, its floor on this platform, and launches into a drained device.

A fixed lag threshold does not tell: the floor is 4-6 us on bare metal and 42-47 us under WSL2.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, median, next_equal, of_rows, quantile
from profkit.model.trace import CallKind, Trace
from profkit.timeline.activity import Activity
from profkit.timeline.launch_order import behind_ns

_MIN_DRAINED: Final = 5
DEFAULT_LATENCY_NS: Final = 10_000
"""Launch to start on an idle device where the trace has too few such launches: medians of 6.4 to 12.8 us on four
bare-metal platforms (H100, A100, B200, RTX 4090)."""
MIN_LATENCY_NS: Final = 2_000
MAX_LATENCY_NS: Final = 100_000
"""Chosen: one and a half times the slowest platform's 42-47 us, and room. A device whose launches into it always take
longer waits for something else, a peer or another device's stream, and must not hide that wait in its own latency."""
DEFAULT_TURNAROUND_NS: Final = 2_000
_MAX_TURNAROUND_NS: Final = 5_000
_WELL_QUEUED_NS: Final = 5_000


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """How the launches of one device relate to its activity. `rho` fractions are None without linked launches."""

    n_linked: int
    n_drained: int
    rho_count: float | None
    """Share of device operations launched after everything before them had ended."""
    rho_time: float | None
    """The same, weighted by duration."""
    floor_p5_ns: int | None
    floor_median_ns: int | None
    latency_ns: int
    """An issued operation that starts later than this waited for something else than the launch (phi)."""
    turnaround_ns: int
    """Gap between two queued operations of a stream (tau)."""
    behind_ns: tuple[int, int]
    """How far beyond the start and the end of the window the device works on what was launched before it."""
    n_early: int
    """Rows that start before their own launch call: impossible, a fault of the capture."""
    early_ns: int
    """By how much they do: 99 of 100 by less. So far apart are the clocks of host and device, at least."""


def launch_queue(trace: Trace, activity: Activity) -> Queue:
    """The queue facts of one device (docs/method.md)."""
    gpu, calls = trace.gpu, trace.calls
    rows = activity.rows
    all_launches, end = of_rows(gpu.launch_row, rows), of_rows(gpu.end_ns, rows)
    counted = np.flatnonzero(all_launches >= 0)
    launch = of_rows(all_launches, counted)
    is_replay = calls.kind[launch] == CallKind.GRAPH_LAUNCH
    if is_replay.any():
        is_counted = ~is_replay
        is_counted[np.unique(launch, return_index=True)[1]] = True  # of a replay, its first
        counted, launch = counted[is_counted], launch[is_counted]
    issued = calls.start_ns[launch]
    drained = of_rows(_previous_end(end), counted) < issued
    start, end = of_rows(of_rows(gpu.start_ns, rows), counted), of_rows(end, counted)
    lag = np.maximum(start - issued, 0)[drained]
    has_floor = lag.size >= _MIN_DRAINED
    usual = median(lag) if has_floor else DEFAULT_LATENCY_NS
    busy = int((end - start).sum())
    return Queue(
        n_linked=int(start.size),
        n_drained=int(drained.sum()),
        rho_count=float(drained.mean()) if start.size else None,
        rho_time=float((end - start)[drained].sum() / busy) if busy else None,
        floor_p5_ns=int(quantile(lag, 0.05)) if has_floor else None,
        floor_median_ns=usual if has_floor else None,
        latency_ns=min(max(MIN_LATENCY_NS, usual * 3 // 2), MAX_LATENCY_NS),
        turnaround_ns=_turnaround_ns(trace, activity),
        behind_ns=_behind_ns(trace, rows),
        n_early=int((start < issued).sum()),
        early_ns=int(quantile((issued - start)[start < issued], 0.99)) if (start < issued).any() else 0,
    )


def _behind_ns(trace: Trace, rows: NDArray[np.intp]) -> tuple[int, int]:
    if rows.size == 0:
        return 0, 0
    low, high = behind_ns(trace, int(trace.gpu.device[rows[0]]), trace.window_ns).tolist()
    return low, high


def _previous_end(end: I64) -> I64:
    """Per row in start order: the latest end among the rows before it; long ago for the first."""
    out = np.full(end.size, np.iinfo(np.int64).min, np.int64)
    np.maximum.accumulate(end[:-1], out=out[1:])
    return out


def _turnaround_ns(trace: Trace, activity: Activity) -> int:
    """The p75 of gaps on one stream while its next operation was already queued."""
    gpu, calls = trace.gpu, trace.calls
    rows = of_rows(activity.rows, np.flatnonzero(of_rows(gpu.launch_row, activity.rows) >= 0))
    following = next_equal(of_rows(gpu.stream, rows))  # rows are in order of start
    has_one = np.flatnonzero(following < rows.size)
    before, after = rows[has_one], rows[following[has_one]]
    ended = gpu.end_ns[before]
    queued = calls.end_ns[gpu.launch_row[after]] + _WELL_QUEUED_NS < ended
    gap = (gpu.start_ns[after] - ended)[queued]
    gap = gap[gap >= 0]
    if gap.size < _MIN_DRAINED:
        return DEFAULT_TURNAROUND_NS
    return min(max(int(quantile(gap, 0.75)), 1), _MAX_TURNAROUND_NS)
