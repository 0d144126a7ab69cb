"""`Code`: the places of a trace, and which of them each operator and each moment of a thread belongs to."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, Bool, distinct_codes
from profkit.model.code import CodePlace, Phase
from profkit.model.intervals import Intervals
from profkit.model.trace import I8, I32, CpuOps
from profkit.timeline.code.frames import Frames
from profkit.timeline.code.modules import Module
from profkit.timeline.code.phases import Phases
from profkit.timeline.host import enclosing_op

NO_PLACE = -1
"""Of rows and moments of which no place is known."""


class Moments(msgspec.Struct, frozen=True, kw_only=True):
    """Where moments of threads are, shape (n,) each."""

    place: I32
    """In `Code.places`, `NO_PLACE` for none."""
    module: I32
    """In `Code.modules`, -1 for none."""
    phase: I8


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The frames of the same trace, joined."""

    frames: Frames
    place_of_frame: I32
    module_of_frame: I32
    is_backward: Bool
    """Per place, whether it is where the backward pass is called."""
    phases: Phases


class Code(msgspec.Struct, frozen=True, kw_only=True):
    """Where each operator of a trace, and each moment of its threads, is in the user's code."""

    places: tuple[CodePlace, ...]
    modules: tuple[Module, ...]
    ops: CpuOps
    """The operators that the columns below are of: those of the trace."""
    place_of_op: I32
    """Per operator its place, `NO_PLACE` for none, shape (n_ops,)."""
    module_of_op: I32
    """Per operator its module, -1 for none; in the backward pass that of the forward operator."""
    phase_of_op: I8
    """Per operator its `Phase`."""
    joined: Joined | None = None
    """None where the frames are another trace's: only operators have places then, and what lies between them."""
    before_op: I32 | None = None
    """Where the frames are another trace's: per operator the place of what its thread does before it
    (`places_before`)."""

    @property
    def functions(self) -> I32:
        """Per place the number of its line, or where none is known of its function, shape (n_places,)."""
        first: dict[str, int] = {}
        return np.array([first.setdefault(f"{one.file} {one.name}", len(first)) for one in self.places], np.int32)

    def at(self, thread: NDArray[np.integer[Any]], at_ns: I64) -> Moments:
        """Where each (thread, time) is: the innermost of its frames and operators says it."""
        op = enclosing_op(self.ops, thread.astype(np.int32), at_ns) if len(self.ops) else np.full(at_ns.size, -1)
        inside = np.maximum(op, 0)
        none = np.full(at_ns.size, -1, np.int32)
        has_ops = len(self.ops) > 0
        place = np.where(op >= 0, self.place_of_op[inside], -1).astype(np.int32) if has_ops else none.copy()
        module = np.where(op >= 0, self.module_of_op[inside], -1).astype(np.int32) if has_ops else none
        told = self.phase_of_op[inside] if has_ops else np.zeros(at_ns.size, np.int8)
        phase = np.where(op >= 0, told, Phase.OTHER).astype(np.int8)
        if self.joined is None:
            between = np.flatnonzero(op < 0)
            place[between] = self._before(thread[between], at_ns[between])
            return Moments(place=place, module=module, phase=phase)
        seen = in_frames(self.joined, thread, at_ns)
        frames = self.joined.frames
        # a frame inside the operator knows better than the operator, and where there is none, it alone knows
        own = frames.own[np.maximum(seen.row, 0)] if len(frames.rows) else none
        deeper = (own >= 0) & (seen.row >= 0)
        if has_ops:
            deeper &= (op < 0) | (frames.rows.start_ns[np.maximum(own, 0)] >= self.ops.start_ns[inside])
        place = np.where(deeper | (op < 0), seen.place, place)
        phase = np.where(op < 0, seen.phase, phase)
        bare = np.array([code not in frames.innermost for code in range(int(thread.max(initial=0)) + 1)], np.bool_)
        lost = np.flatnonzero((place < 0) & bare[np.maximum(thread, 0)])
        if lost.size:  # autograd's threads work for the one that called the backward pass
            place[lost] = calling_backward(self.joined, at_ns[lost])
            phase[lost[place[lost] >= 0]] = Phase.BACKWARD
        return Moments(place=place, module=np.where(deeper | (op < 0), seen.module, module), phase=phase)

    def _before(self, thread: NDArray[np.integer[Any]], at_ns: I64) -> I32:
        """Of moments outside operators the place of what comes before the next one."""
        out = np.full(at_ns.size, NO_PLACE, np.int32)
        if self.before_op is None:
            return out
        for code in distinct_codes(thread).tolist():
            rows, mine = np.flatnonzero(self.ops.thread == code), np.flatnonzero(thread == code)
            following = np.searchsorted(self.ops.start_ns[rows], at_ns[mine])
            has = following < rows.size
            out[mine[has]] = self.before_op[rows[following[has]]]
        return out

    def during(self, thread: int, times: Intervals) -> tuple[I64, I64]:
        """The times of a thread cut where its frames and operators change: a time in each piece and its length, ns."""
        edges = [times.start_ns]
        if self.joined is not None and thread in self.joined.frames.innermost:
            edges.append(self.joined.frames.innermost[thread][0])
        mine = np.flatnonzero(self.ops.thread == thread)
        edges += [self.ops.start_ns[mine], self.ops.end_ns[mine]]
        start = np.sort(np.concatenate(edges))
        length = times.covered_ns(start, np.append(start[1:], np.iinfo(np.int64).max // 2))
        kept = length > 0
        return start[kept], length[kept]


def places_before(code: Code) -> I32:
    """Per operator the place that has most of the time since its thread left the operators before it.

    `NO_PLACE` for those inside others, which nothing comes before. The code must be of a trace with its own frames.
    """
    out = np.full(len(code.ops), NO_PLACE, np.int32)
    for thread, (since, _) in code.joined.frames.innermost.items() if code.joined is not None else ():
        rows = np.flatnonzero(code.ops.thread == thread)
        if rows.size == 0 or since.size == 0:
            continue
        start, end = code.ops.start_ns[rows], code.ops.end_ns[rows]
        gaps = Intervals.of(start, end).gaps(min(int(since[0]), int(start[0])), int(end.max()))
        at, ns = code.during(thread, gaps)
        place = code.at(np.full(at.size, thread, np.int32), at).place
        gap = np.searchsorted(gaps.start_ns, at, "right") - 1
        keys, part = np.unique(gap * (len(code.places) + 1) + place + 1, return_inverse=True)
        spent = np.bincount(part.reshape(-1), weights=ns, minlength=keys.size)
        order = np.argsort(spent, kind="stable")  # what comes last holds: that with most time
        of_gap, best = np.divmod(keys[order], len(code.places) + 1)
        most = np.full(len(gaps), NO_PLACE, np.int32)
        most[of_gap] = best - 1
        out[rows[np.searchsorted(start, gaps.end_ns)]] = most
    return out


def calling_backward(joined: Joined, at_ns: I64) -> I32:
    """The place that calls the backward pass at each time, on whichever thread; `NO_PLACE` for none."""
    out = np.full(at_ns.size, NO_PLACE, np.int32)
    for thread in joined.frames.innermost:
        row = joined.frames.at(np.full(at_ns.size, thread, np.int32), at_ns)
        place = np.where(row >= 0, joined.place_of_frame[np.maximum(row, 0)], NO_PLACE)
        calls = (place >= 0) & joined.is_backward[np.maximum(place, 0)]
        out[calls] = place[calls]
    return out


class InFrames(msgspec.Struct, frozen=True, kw_only=True):
    """What the frames alone say of moments, shape (n,) each."""

    row: I64
    place: I32
    module: I32
    phase: I8


def in_frames(joined: Joined, thread: NDArray[np.integer[Any]], at_ns: I64) -> InFrames:
    """What the frames say of each (thread, time)."""
    row = joined.frames.at(thread, at_ns)
    inside, has = np.maximum(row, 0), row >= 0
    if len(joined.frames.rows) == 0:
        none = np.full(row.size, -1, np.int32)
        return InFrames(row=row, place=none, module=none, phase=np.full(row.size, Phase.OTHER, np.int8))
    place = np.where(has, joined.place_of_frame[inside], -1).astype(np.int32)
    module = np.where(has, joined.module_of_frame[inside], -1).astype(np.int32)
    phase = joined.phases.at(thread, at_ns, in_module=module >= 0)
    waits = (phase == Phase.OTHER) & (place >= 0) & joined.is_backward[np.maximum(place, 0)]
    phase[waits] = Phase.BACKWARD
    return InFrames(row=row, place=place, module=module, phase=phase)
