"""The lines that call a part of the work: the calls around it that hold nothing of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, distinct
from profkit.model.code import CodePlace
from profkit.model.trace import Trace
from profkit.timeline.code.code import Joined
from profkit.timeline.code.frames import read_frame
from profkit.timeline.code.join import call_lines, call_words


def callers(
    trace: Trace,
    joined: Joined,
    moments: tuple[NDArray[np.integer[Any]], I64],
    rest: tuple[NDArray[np.integer[Any]], I64, I64],
) -> list[CodePlace | None]:
    """Per moment (thread, ns): the line in the user's code that calls the outermost frame around it beside the rest.

    `rest` are threads and times, and which are the rest: a frame around one of them is not chosen. None where
    no such line is known.
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
    line = call_lines(trace, frames)
    texts = trace.meta.metadata.get("profkit_source_lines")
    said: Mapping[str, Any] = texts if isinstance(texts, Mapping) else {}
    known: dict[int, CodePlace | None] = {}
    out = []
    for one in row.tolist():
        at, last = one, -1
        while at >= 0 and not is_shared[at]:
            at, last = int(frames.parent[at]), at
        if last not in known:
            known[last] = _place(trace, joined, (last, at), (line, said)) if last >= 0 and at >= 0 else None
        out.append(known[last])
    return out


def _place(
    trace: Trace, joined: Joined, rows: tuple[int, int], told: tuple[I64, Mapping[str, Any]]
) -> CodePlace | None:
    """The line of a frame's caller that calls it, where that is the user's own."""
    (called, caller), (lines, said) = rows, told
    name, line = joined.frames.rows.name, int(lines[called])
    frame = read_frame(trace.name(int(name[caller])), trace.meta.metadata)
    if frame is None or not frame.is_own or not line:
        return None
    text = said.get(f"{frame.file}:{line}")
    return CodePlace(
        file=frame.file,
        function=frame.function,
        line=line,
        text=text.strip() if isinstance(text, str) else "",
        call=call_words(trace.name(int(name[called]))),
    )
