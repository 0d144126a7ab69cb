"""The lines that call a part of the work: the calls around it that hold nothing of the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct
from profkit.model.code import CodePlace
from profkit.model.trace import Trace
from profkit.timeline.code.code import Joined
from profkit.timeline.code.frames import MODULE, PARTS
from profkit.timeline.code.join import call_words

PASSES_ON: Final = 0.9
"""From this share of its time in one call on, a function only passes on. Chosen: as a callback that evaluates."""


def callers(
    trace: Trace,
    joined: Joined,
    moments: tuple[NDArray[np.integer[Any]], I64],
    rest: tuple[NDArray[np.integer[Any]], I64, I64],
    telling: frozenset[str],
) -> list[CodePlace | None]:
    """Per moment (thread, ns): the line in the user's code that calls the outermost frame around it beside the rest.

    `rest` are threads and times, and which are the rest: a frame around one of them is not chosen. Where a line has
    no word of `telling` and its function only passes on, the line in there is chosen. None where no such line is known.
    """
    frames = joined.frames
    row = frames.at(*moments)
    thread, at_ns, chosen = rest
    is_shared = np.zeros(len(frames.rows), np.bool_)
    above = frames.at(thread[chosen], at_ns[chosen])
    while (above := distinct(above[above >= 0])).size:
        above = above[~is_shared[above]]
        is_shared[above] = True
        above = frames.parent[above]
    known: dict[int, CodePlace | None] = {}
    out = []
    for one in row.tolist():
        at, path = one, list[int]()
        while at >= 0 and not is_shared[at]:
            path.append(at)
            at = int(frames.parent[at])
        best = None
        for called, caller in _calls(trace, joined, [at, *path[::-1]]) if path and at >= 0 else ():
            if called not in known:
                known[called] = _place(trace, joined, called, caller)
            best = known[called] or best
            if best is None or best.single_words & telling:
                break
        out.append(best)
    return out


def _calls(trace: Trace, joined: Joined, path: list[int]) -> Iterator[tuple[int, int]]:
    """The call by which the first frame leads to the others, then those in the functions that only pass it on."""
    rows = joined.frames.rows
    yield path[1], path[0]
    before: tuple[int, int] | None = None
    for inner, frame in zip([*path[2:], -1], path[1:], strict=True):
        found = joined.lines.named.get(int(rows.name[frame]))
        if trace.name(int(rows.name[frame])).startswith(MODULE) or (found is not None and found.function in PARTS):
            return
        if found is None or not found.is_own:
            continue
        if before is not None:
            yield before
        lasts = rows.end_ns[[inner, frame]] - rows.start_ns[[inner, frame]]
        if inner < 0 or lasts[0] < PASSES_ON * lasts[1]:
            return
        before = inner, frame


def _place(trace: Trace, joined: Joined, called: int, caller: int) -> CodePlace | None:
    """The line of a frame's caller that calls it, where that is the user's own."""
    name, line = joined.frames.rows.name, int(joined.lines.line[called])
    frame = joined.lines.named.get(int(name[caller]))
    if frame is None or not frame.is_own or not line:
        return None
    return CodePlace(
        file=frame.file,
        function=frame.function,
        line=line,
        text=joined.lines.text(frame, line),
        call=call_words(trace.name(int(name[called]))),
    )
