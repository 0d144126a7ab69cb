"""`Code`: the places of a trace, and which of them each operator and each moment of a thread belongs to."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, Bool, looked_up
from profkit.model.code import CodePlace, Phase
from profkit.model.intervals import Intervals
from profkit.model.trace import I8, I32, CpuOps
from profkit.timeline.code.frames import Frames, Lines
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
    is_deeper: Bool
    """Whether a frame of the user's own is there inside the operator: a backward pass of their own, a hook."""


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """The frames of the same trace, joined."""

    frames: Frames
    lines: Lines
    place_of_frame: I32
    module_of_frame: I32
    is_backward: Bool
    """Per place, whether it is where the backward pass is called."""
    phases: Phases


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Where the times of one thread in one step lie in another window: pairs of times, both in order."""

    thread: int
    other_thread: int
    at_ns: I64
    other_ns: I64
    lost_ns: I64
    """When operators and collections begin that the other window lacks: of what lies beside them nothing is known."""

    def other(self, at_ns: I64) -> I64:
        """Times of this thread as times of the other window, -1 outside the stretch and beside what is lost."""
        after = np.searchsorted(self.at_ns, at_ns, "right")
        inside = (after > 0) & (after < self.at_ns.size)
        low, high = self.at_ns[np.maximum(after - 1, 0)], self.at_ns[np.minimum(after, self.at_ns.size - 1)]
        n_lost = np.searchsorted(self.lost_ns, high) - np.searchsorted(self.lost_ns, low)
        there = np.interp(at_ns, self.at_ns, self.other_ns).astype(np.int64)
        known: I64 = np.where(inside & (n_lost == 0), there, -1)
        return known

    def changes(self, other_ns: I64) -> I64:
        """Times of the other window as times of this thread, where they lie in the stretch."""
        low, high = self.other_ns[0], self.other_ns[-1]
        mine = other_ns[(other_ns > low) & (other_ns < high)]
        there: I64 = np.interp(mine, self.other_ns, self.at_ns).astype(np.int64)
        return there


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """The code of another window of the same process, and where the times of this one lie in it."""

    code: Code
    stretches: tuple[Stretch, ...]

    def at(self, thread: NDArray[np.integer[Any]], at_ns: I64) -> Moments:
        """Where each (thread, time) of this window is."""
        there, whose = np.full(at_ns.size, -1, np.int64), np.full(at_ns.size, -1, np.int64)
        for one in self.stretches:
            mine = np.flatnonzero((thread == one.thread) & (at_ns >= one.at_ns[0]) & (at_ns < one.at_ns[-1]))
            there[mine], whose[mine] = one.other(at_ns[mine]), one.other_thread
        seen = self.code.at(whose, there)
        known = there >= 0
        return Moments(
            place=np.where(known, seen.place, -1).astype(np.int32),
            module=np.where(known, seen.module, -1).astype(np.int32),
            phase=np.where(known, seen.phase, Phase.OTHER).astype(np.int8),
            is_deeper=known & seen.is_deeper,
        )

    def changes(self, thread: int) -> list[I64]:
        """When the innermost frame of a thread changes."""
        frames = self.code.joined.frames.innermost if self.code.joined is not None else {}
        mine = [one for one in self.stretches if one.thread == thread and one.other_thread in frames]
        return [one.changes(frames[one.other_thread][0]) for one in mine]


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
    """None where the frames are another window's."""
    beside: Beside | None = None
    """That other window: it says where the moments between operators are."""
    matched: float | None = None
    """The part of the operators in steps that were found in that other window, 0-1."""
    trainer: str = ""
    """The installed package that runs the user's loop (`transformers`), "" where the user's own code does."""

    @property
    def functions(self) -> I32:
        """Per place the number of its line, or where none is known of its function, shape (n_places,)."""
        first: dict[str, int] = {}
        return np.array([first.setdefault(f"{one.file} {one.name}", len(first)) for one in self.places], np.int32)

    def at(self, thread: NDArray[np.integer[Any]], at_ns: I64) -> Moments:
        """Where each (thread, time) is: the innermost of its frames and operators says it."""
        op = enclosing_op(self.ops, thread.astype(np.int32), at_ns)
        place, module = looked_up(self.place_of_op, op), looked_up(self.module_of_op, op)
        phase = looked_up(self.phase_of_op, op, Phase.OTHER)
        if self.joined is None:
            return _or_beside(self.beside, (thread, at_ns, op >= 0), (place, module, phase))
        seen = in_frames(self.joined, thread, at_ns)
        frames = self.joined.frames
        # a frame inside the operator knows better than the operator, and where there is none, it alone knows
        own = looked_up(frames.own, seen.row)
        deeper = (own >= 0) & ((op < 0) | (looked_up(frames.rows.start_ns, own) >= looked_up(self.ops.start_ns, op)))
        place = np.where(deeper | (op < 0), seen.place, place)
        phase = np.where(op < 0, seen.phase, phase)
        bare = np.array([code not in frames.innermost for code in range(int(thread.max(initial=0)) + 1)], np.bool_)
        lost = np.flatnonzero((place < 0) & bare[np.maximum(thread, 0)])
        if lost.size:  # autograd's threads work for the one that called the backward pass
            place[lost] = calling_backward(self.joined, at_ns[lost])
            phase[lost[place[lost] >= 0]] = Phase.BACKWARD
        module = np.where(deeper | (op < 0), seen.module, module)
        return Moments(place=place, module=module, phase=phase, is_deeper=deeper & (op >= 0))

    def during(self, thread: int, times: Intervals) -> tuple[I64, I64]:
        """The times of a thread cut where its frames and operators change: a time in each piece and its length, ns."""
        edges = [times.start_ns]
        if self.joined is not None and thread in self.joined.frames.innermost:
            edges.append(self.joined.frames.innermost[thread][0])
        if self.beside is not None:
            edges += self.beside.changes(thread)
        mine = np.flatnonzero(self.ops.thread == thread)
        edges += [self.ops.start_ns[mine], self.ops.end_ns[mine]]
        start = np.sort(np.concatenate(edges), kind="stable")
        length = times.covered_ns(start, np.append(start[1:], np.iinfo(np.int64).max // 2))
        kept = length > 0
        return start[kept], length[kept]


def _or_beside(
    beside: Beside | None,
    moments: tuple[NDArray[np.integer[Any]], I64, Bool],
    of_ops: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
) -> Moments:
    """What operators say of moments (thread, time, whether an operator is there), or another window that knows better.

    It does beside operators, and inside one where a frame of the user's own runs there.
    """
    thread, at_ns, has_op = moments
    place, module, phase = (column.copy() for column in of_ops)
    deeper = np.zeros(at_ns.size, np.bool_)
    if beside is not None:
        found = beside.at(thread, at_ns)
        deeper = found.is_deeper & has_op
        nearer = deeper | ~has_op
        place[nearer], module[nearer] = found.place[nearer], found.module[nearer]
        phase[~has_op] = found.phase[~has_op]
    return Moments(place=place, module=module, phase=phase, is_deeper=deeper)


def calling_backward(joined: Joined, at_ns: I64) -> I32:
    """The place that calls the backward pass at each time, on whichever thread; `NO_PLACE` for none."""
    out = np.full(at_ns.size, NO_PLACE, np.int32)
    for thread in joined.frames.innermost:
        row = joined.frames.at(np.full(at_ns.size, thread, np.int32), at_ns)
        place = looked_up(joined.place_of_frame, row, NO_PLACE)
        calls = looked_up(joined.is_backward, place, none=False)
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
    place, module = looked_up(joined.place_of_frame, row), looked_up(joined.module_of_frame, row)
    phase = joined.phases.at(thread, at_ns, in_module=module >= 0)
    phase[(phase == Phase.OTHER) & looked_up(joined.is_backward, place, none=False)] = Phase.BACKWARD
    return InFrames(row=row, place=place, module=module, phase=phase)
