"""The places of the timed steps, from the steps that their capture recorded once more with Python stacks.

Operators have the places of those that they are matched with. Moments between operators are looked up between the same
two operators of the other window, as far along as they are here: the other window's steps are slower, in Python most of
all, and its own times are used for nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct, looked_up
from profkit.model.code import CodePlace, Phase
from profkit.model.intervals import Intervals
from profkit.model.trace import I8, I32, SpanKind, Trace
from profkit.timeline.code.code import Beside, Code, Stretch
from profkit.timeline.code.match import Match
from profkit.timeline.input import BY_WORKERS

_Edges = tuple[tuple[int, int], tuple[int, int]]
"""Where a step begins and ends, and where the one it is matched with does."""


def carry(theirs: Code, trace: Trace, match: Match) -> Code:
    """The places of a window's operators, taken over by those of the timed trace."""
    first, last = match.first, match.last
    phase = _both(theirs.phase_of_op, first, last)
    places, place = _places(theirs, first, last)
    return Code(
        places=places,
        modules=theirs.modules,
        ops=trace.ops,
        place_of_op=place,
        module_of_op=_both(theirs.module_of_op, first, last),
        phase_of_op=np.where(phase < 0, Phase.OTHER, phase).astype(np.int8),
        matched=match.share,
        trainer=theirs.trainer,
        beside=Beside(code=replace(theirs, places=places), stretches=_stretches(trace, match)),
    )


def _both(values: I32 | I8, first: I64, last: I64) -> NDArray[Any]:
    """What both matches say, -1 where they differ or there is none."""
    one, two = looked_up(values, first), looked_up(values, last)
    return np.where((first >= 0) & (last >= 0) & (one == two), one, -1)


def _places(theirs: Code, first: I64, last: I64) -> tuple[tuple[CodePlace, ...], I32]:
    """The places, with some more that name no module: of operators whose matches agree in all but that."""
    place = _both(theirs.place_of_op, first, last)
    if not theirs.place_of_op.size:
        return theirs.places, place
    numbers: dict[CodePlace, int] = {}
    bare = [numbers.setdefault(replace(one, module=""), len(theirs.places) + len(numbers)) for one in theirs.places]
    line = np.array([*bare, -1], np.int32)[theirs.place_of_op]  # -1 is the last
    found = _both(line, first, last)
    return (*theirs.places, *numbers), np.where((place < 0) & (found >= 0), found, place).astype(np.int32)


def _stretches(trace: Trace, match: Match) -> tuple[Stretch, ...]:
    """Where times of each thread and step of the timed trace lie in the other one."""
    other = trace.again
    assert other is not None  # noqa: S101 - `carried` has looked
    numbers = {(one.pid, one.tid): number for number, one in enumerate(other.threads)}
    found = []
    for number, place in enumerate(match.step_of.tolist()):
        if place < 0:
            continue
        step, their_step = trace.steps[number], other.steps[place]
        low, high = np.searchsorted(trace.ops.start_ns, (step.start_ns, step.end_ns))
        rows = np.arange(low, high)
        for thread in distinct(trace.ops.thread[rows]).tolist():
            named = trace.threads[thread]
            theirs = numbers.get((named.pid, named.tid))
            if theirs is None:
                continue
            mine = rows[trace.ops.thread[rows] == thread]
            edges = ((step.start_ns, step.end_ns), (their_step.start_ns, their_step.end_ns))
            loads = _loads(trace, other, (thread, theirs), edges)
            at, their_at = _anchors(trace, other, mine, match.rows[mine], loads, edges)
            lost = np.sort(trace.ops.start_ns[mine[match.rows[mine] < 0]])
            lost = np.concatenate(
                (lost[~loads[0].contains(lost)], _collections(trace, other, (thread, theirs), at, their_at))
            )
            lost.sort()
            found.append(Stretch(thread=thread, other_thread=theirs, at_ns=at, other_ns=their_at, lost_ns=lost))
    return tuple(found)


def _anchors(
    trace: Trace, other: Trace, rows: I64, theirs: I64, loads: tuple[Intervals, Intervals], edges: _Edges
) -> tuple[I64, I64]:
    """Times of one thread in a step and the same moments in the other window: edges of the step and of operators.

    Those of waits for loader workers as well, in place of the operators in them.
    """
    known = (theirs >= 0) & ~loads[0].contains(trace.ops.start_ns[rows])
    mine, theirs = rows[known], theirs[known]
    at = [trace.ops.start_ns[mine], trace.ops.end_ns[mine], loads[0].start_ns, loads[0].end_ns]
    other_at = [other.ops.start_ns[theirs], other.ops.end_ns[theirs], loads[1].start_ns, loads[1].end_ns]
    return _in_order(np.concatenate(at), np.concatenate(other_at), edges)


def _in_order(at: I64, other_at: I64, edges: _Edges) -> tuple[I64, I64]:
    """Pairs of times with the edges of their steps, those that run the same way in both."""
    at = np.concatenate(([edges[0][0]], at, [edges[0][1]]))
    other_at = np.concatenate(([edges[1][0]], other_at, [edges[1][1]]))
    order = np.lexsort((other_at, at))
    at, other_at = at[order], other_at[order]
    in_order = (other_at >= np.maximum.accumulate(other_at)) & (other_at <= edges[1][1]) & (at <= edges[0][1])
    return at[in_order], other_at[in_order]


def _collections(trace: Trace, other: Trace, threads: tuple[int, int], at: I64, their_at: I64) -> I64:
    """When collections of garbage begin that the other window does not have between the same two moments.

    They come when they come: what the host does there without them is not what waits for them.
    """
    begun = []
    for one, thread, edges in ((trace, threads[0], at), (other, threads[1], their_at)):
        rows = np.flatnonzero((one.spans.kind == SpanKind.GC) & (one.spans.thread == thread))
        start = one.spans.start_ns[rows]
        place = np.searchsorted(edges, start, "right")
        names = [one.name(code) for code in one.spans.name[rows].tolist()]
        begun.append((start, list(zip(place.tolist(), names, strict=True))))
    (start, mine), (_, theirs) = begun
    known = set(theirs)
    return start[[key not in known for key in mine]]


def _loads(trace: Trace, other: Trace, threads: tuple[int, int], edges: _Edges) -> tuple[Intervals, Intervals]:
    """Waits for the workers of a DataLoader in a step and in the other one; none where they are not as many.

    Nothing of the user's runs in them, and the operators there (what is made of the batches that have come) are others
    each time.
    """
    found = []
    for one, thread, (low, high) in zip((trace, other), threads, edges, strict=True):
        spans = one.spans
        loads = np.flatnonzero((spans.kind == SpanKind.LOADER) & (spans.thread == thread))
        loads = loads[(spans.start_ns[loads] >= low) & (spans.end_ns[loads] <= high)]
        found.append(Intervals.of_rows(spans, loads[one.named(spans.name[loads], BY_WORKERS)]))
    mine, theirs = found
    return (mine, theirs) if len(mine) == len(theirs) else (Intervals.empty(), Intervals.empty())
