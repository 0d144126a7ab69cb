"""What a recording lost: launches without a device row, device rows without a launch; and the steps that lost nothing.

Buffers that overflow and threads that vanish take whole stretches. What stands between them is as sound as ever.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.findings.capture import FEW_STEPS, LOST, QUALITY, UNLINKED
from profkit.model.arrays import I64, is_member, is_one_of, median, place_among
from profkit.model.trace import CallKind, Trace
from profkit.timeline.launch_order import before_capture
from profkit.timeline.pace import Paced
from profkit.timeline.steps import edges, steps_in_window

_LEAST: Final = 20
"""Launches with their device rows that show what ran before the profiler stopped. Chosen: as a trace has at least."""
_HELD: Final = 0.5
"""Of the usual number of launches, with which a step still has all threads of its host. Chosen: forward and backward
pass launch about as many."""


class Launches(msgspec.Struct, frozen=True):
    """The launches of the window: their rows in `RuntimeCalls`, in order, and which have no device row."""

    rows: I64
    is_lost: NDArray[np.bool_]
    n_captured: int
    """Beside them, launches that a stream capture recorded: these run nothing."""
    n_queued: int
    """The last ones, made while the device worked at earlier ones: none had begun when the recording ended."""

    @property
    def n_counted(self) -> int:
        """The launches without the last tenth, whose kernels may run after the profiler stopped listening, or more."""
        return self.rows.size - max(self.rows.size // 10 * (self.rows.size > _LEAST), self.n_queued)

    @property
    def lost_share(self) -> float | None:
        """The share of these without a device row, 0-1; None without launches."""
        return float(self.is_lost[: self.n_counted].mean()) if self.rows.size else None


def launches(trace: Trace) -> Launches:
    """The launches of kernels and graphs in the window."""
    calls, (low, high) = trace.calls, trace.window_ns
    is_launch = is_one_of(calls.kind, (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH)) & (calls.correlation > 0)
    rows = np.flatnonzero(is_launch & (calls.start_ns >= low) & (calls.start_ns < high))
    captured = _during_capture(trace, rows)
    rows = rows[~captured]
    is_lost = ~is_member(calls.correlation[rows], np.sort(trace.gpu.correlation, kind="stable"))
    return Launches(rows, is_lost, int(captured.sum()), _queued(trace, rows, is_lost))


def _queued(trace: Trace, rows: I64, is_lost: NDArray[np.bool_]) -> int:
    """How many of the last launches have no device row since they waited behind what the device still worked at.

    All of them were made before the last device row ended: where rows are lost, the host soon goes on for longer.
    """
    n_kept = int(np.flatnonzero(~is_lost).max(initial=-1)) + 1
    if n_kept < _LEAST or n_kept == rows.size:
        return 0
    is_behind = trace.calls.start_ns[rows[-1]] < trace.gpu.end_ns.max()
    return rows.size - n_kept if is_behind else 0


def _during_capture(trace: Trace, rows: I64) -> NDArray[np.bool_]:
    """Which launches fall between a stream's begin and end of capture."""
    marks = np.flatnonzero(trace.calls.kind == CallKind.CAPTURE)
    if marks.size == 0:
        return np.zeros(rows.size, np.bool_)
    is_begin = np.array(["Begin" in trace.name(code) for code in trace.calls.name[marks]])
    begun = place_among(trace.calls.start_ns[marks[is_begin]], trace.calls.start_ns[rows], after=True)
    ended = place_among(trace.calls.start_ns[marks[~is_begin]], trace.calls.start_ns[rows], after=True)
    captured: NDArray[np.bool_] = begun > ended
    return captured


def complete(trace: Trace) -> Paced:
    """The trace cut to its longest run of marked steps that lost nothing; as it is where none, or all, lost some."""
    steps, least = steps_in_window(trace), int(QUALITY.limit(FEW_STEPS.id))
    if not trace.is_marked or not trace.device_indices or len(steps) < least:
        return Paced(trace)
    asked, (start, end) = launches(trace), edges(steps)
    at = trace.calls.start_ns[asked.rows]
    low, high = place_among(at, start), place_among(at, end)
    lost = np.append(0, np.cumsum(asked.is_lost))
    n_asked, n_lost = high - low, lost[high] - lost[low]
    has_host = n_asked >= _HELD * median(n_asked)
    if (asked.lost_share or 0) <= QUALITY.limit(LOST.id) and (has_host.all() or not _is_unlinked(trace)):
        return Paced(trace)
    is_whole = (n_lost <= QUALITY.limit(LOST.id) * n_asked) & has_host
    first, last = _longest(is_whole)
    if last - first < least:
        return Paced(trace)
    window = steps[first].start_ns, steps[last].start_ns if last < len(steps) else trace.window_ns[1]
    note = (
        f"records are lost in {int((~is_whole).sum())} of {len(steps)} steps: only {last - first} without loss are used"
    )
    return Paced(replace(trace, window_ns=window), note)


def _is_unlinked(trace: Trace) -> bool:
    """Whether more device rows than usual lack their launches, beside those launched before the capture began."""
    rows = np.flatnonzero(trace.gpu.launch_row < 0)
    return rows.size - int(before_capture(trace, rows).sum()) > QUALITY.limit(UNLINKED.id) * len(trace.gpu)


def _longest(is_whole: NDArray[np.bool_]) -> tuple[int, int]:
    """The longest run of true values: its first place, and the place behind it; twice 0 without any."""
    edge = np.flatnonzero(np.diff(np.concatenate(([0], is_whole.astype(np.int8), [0]))))
    if edge.size == 0:
        return 0, 0
    place = int((edge[1::2] - edge[::2]).argmax())
    return int(edge[2 * place]), int(edge[2 * place + 1])
