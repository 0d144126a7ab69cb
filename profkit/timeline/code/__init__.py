"""Where in the user's code: each operator, call and moment of the host joined with a line, a function and a module.

In: a trace recorded with Python stacks, or one with such a window beside it. Out: `Code`, and from it `PlaceShare`s,
the first of which is the line to look at. Begin with `join.of_frames`, or `carry.carry` where the frames are another
window's; `frames` nests the frames and tells whose they are, `modules` names the modules, `phases` tells forward,
backward and optimizer apart, `match` finds operators again, `sums` adds times up by place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from profkit.timeline.code.sums import Rows, rows_of_places, shares, training_functions

if TYPE_CHECKING:
    from profkit.model.trace import Trace
    from profkit.timeline.code.code import Code
    from profkit.timeline.code.match import Match

__all__ = ["Rows", "carried", "code_of", "matched", "rows_of_places", "shares", "training_functions"]


def code_of(trace: Trace) -> Code | None:
    """The places of a trace; None where it holds no Python frames, and nothing of them is loaded."""
    if len(trace.python) == 0:
        return None
    from profkit.timeline.code.join import of_frames

    return of_frames(trace)


def matched(trace: Trace) -> Match | None:
    """The operators of a timed trace in its capture's second window; None where there is none.

    The trace has the steps that its host marked.
    """
    if trace.again is None or len(trace.python):
        return None
    from profkit.timeline.code.match import match_ops

    return match_ops(trace, trace.again)


def carried(trace: Trace, match: Match | None = None) -> Code | None:
    """The places of a timed trace from its capture's second window; None where there is none, or nothing in it fits."""
    match = matched(trace) if match is None else match
    if match is None or trace.again is None:
        return None
    from profkit.timeline.code.carry import carry

    theirs = code_of(trace.again) if match.share else None
    return None if theirs is None else carry(theirs, trace, match)
