"""Places inside an installed package that runs the user's loop: `trainer.train()` is a whole job in one line.

Such a loop is told by the trace alone: a call of the user's own code that was running when the recording began and
goes on for most of it. What lies in it is split where the package's own functions split its time: a function, or a line
that calls one, is named where it has enough of that time beside those named below it (hierarchical heavy hitters,
Cormode et al., 2003). Inside a module its own place is known: what counts is who calls the model.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
import numpy as np

from profkit.model.arrays import I64, Bool, distinct, looked_up
from profkit.model.code import CodePlace
from profkit.model.table import NO_ROW
from profkit.timeline.code.frames import Frame, Frames, Lines, nearest

_MOST: Final = 0.5
"""Share of the recording that a call has from which it is the loop. Chosen: two steps are recorded, a step is less."""
_LEAST: Final = 0.02
"""Share of the loop's time with which a place is named. Chosen: twice that of a line that is told (`sums`)."""
_CHAIN: Final = 0.9
"""Share of a caller's time with which a call is all that it does. Chosen."""
_BESIDE: Final = re.compile(
    r"on_(?:(?:sub)?step|train_batch|train_epoch|epoch|log|optimizer_step|pre_optimizer_step|before|after)(?:_\w+)?$"
    r"|_?log(?:_(?!prob|lik|dens|pdf|det|abs|soft|sigm|sum|normal)\w+)?$|_?save_checkpoint$"
)
"""Functions that trainers call beside training: the hooks of transformers' and Lightning's callbacks, logs, saves. No
logarithms."""
_DEEPEST: Final = 64
_MOST_ROWS: Final = 300_000


class Inside(msgspec.Struct, frozen=True, kw_only=True):
    """Where in a package frames are: per frame a number of `words`, -1 outside such a loop."""

    of_frame: I64
    words: tuple[tuple[str, str], ...] = ()
    """The line of the package that calls, and the function that it gets to; the second "" where that is the same."""
    package: str = ""
    """The package that runs the loop."""
    hook_of_frame: I64
    """Per frame a number of `hooks`, -1 outside."""
    hooks: tuple[str, ...] = ()
    """Functions that the loop calls beside training, the user's or a package's: callbacks, logging."""


class _Node(msgspec.Struct):
    """A call by the functions around it."""

    row: int
    parent: int
    ns: int = 0
    below_ns: int = 0
    """With all that is called in it."""
    is_named: bool = False


def inside_trainers(frames: Frames, lines: Lines) -> Inside:
    """What runs inside the loops of packages."""
    own, called, named = frames.own, frames.called, lines.named
    loop = np.where(looked_up(_loops(frames), called, none=False), called, NO_ROW)
    mine = np.flatnonzero(loop >= 0)
    none = np.full(loop.size, -1, np.int64)
    if not 0 < mine.size <= _MOST_ROWS:
        return Inside(of_frame=none, hook_of_frame=none)
    at = _at(frames, own, loop)
    node_of, nodes = _tree(frames, at, loop, lines.line)
    spent = _self_ns(frames)
    for row in mine.tolist():
        nodes[node_of[int(at[row])]].ns += int(spent[row])
    chosen = _named(nodes)
    words: dict[tuple[str, str], int] = {}
    number = [words.setdefault(_words(nodes, one, frames, lines), len(words)) for one in chosen]
    none[mine] = np.array([number[node_of[int(at[row])]] for row in mine.tolist()], np.int64)
    first = named.get(int(frames.rows.name[int(loop[mine[0]])]))
    hook, hooks = _hooks(frames, lines)
    return Inside(
        of_frame=none,
        words=tuple(words),
        package=package_of(first.file) if first is not None else "",
        hook_of_frame=hook,
        hooks=hooks,
    )


def _hooks(frames: Frames, lines: Lines) -> tuple[I64, tuple[str, ...]]:
    """Per frame the innermost function around it that a loop calls beside training, and their names."""
    named, rows = lines.named, np.arange(len(frames.rows))
    codes = [code for code, frame in named.items() if _BESIDE.match(frame.function)]
    of_someone = (frames.library == rows) | (frames.own == rows)
    marked = np.isin(frames.rows.name, codes) & of_someone & ~_lasting(frames)  # recording may begin in a callback
    is_inside = nearest(_loops(frames), frames.parent) >= 0
    row = inner = nearest(marked, frames.parent)
    for _ in range(_DEEPEST):  # the outermost of a package's that the same function of the user's leads to
        above, own = looked_up(inner, looked_up(frames.parent, row)), looked_up(frames.own, row)
        goes = (own != row) & (above >= 0) & (looked_up(frames.own, above) == own)
        if not goes.any():
            break
        row = np.where(goes, above, row)
    row = np.where(is_inside, row, NO_ROW)
    words: dict[str, int] = {}
    shown = {code: named[code].shown if named[code].is_own else _function(named[code]) for code in codes}
    number = {code: words.setdefault(each, len(words)) for code, each in shown.items()}
    hook = np.array([number[int(frames.rows.name[one])] if one >= 0 else -1 for one in row.tolist()], np.int64)
    return hook, tuple(words)


def package_of(file: str) -> str:
    """The package that a file, named as in a trace, is of."""
    inside = file.rpartition("-packages/")[2].split("/")
    return inside[0].removesuffix(".py")


def _loops(frames: Frames) -> Bool:
    """The packages' frames that were running when the recording began and for most of it."""
    found: Bool = _lasting(frames) & (frames.library == np.arange(len(frames.rows)))
    return found


def _lasting(frames: Frames) -> Bool:
    """The frames that were running when the recording began and for most of it."""
    rows = frames.rows
    if not len(rows):
        return np.zeros(0, np.bool_)
    first, last = int(rows.start_ns.min()), int(rows.end_ns.max())
    found: Bool = frames.is_early & (rows.end_ns - rows.start_ns >= _MOST * (last - first))
    return found


def _at(frames: Frames, own: I64, loop: I64) -> I64:
    """Per frame in a loop the innermost of the packages' functions around the outermost module there."""
    outer = frames.module.copy()
    for _ in range(_DEEPEST):
        higher = looked_up(frames.module, looked_up(frames.parent, outer))
        goes = (higher >= 0) & (higher > own)
        if not goes.any():
            break
        outer = np.where(goes, higher, outer)
    start = np.where(outer > own, looked_up(frames.parent, outer), np.arange(own.size))
    at = looked_up(frames.library, start)
    return np.where(at > loop, at, loop)


def _tree(frames: Frames, at: I64, loop: I64, line: I64) -> tuple[dict[int, int], list[_Node]]:
    """The calls of packages' functions by who calls them from which line; the number of its node for each frame."""
    nodes: list[_Node] = []
    known: dict[tuple[int, int, int], int] = {}
    node_of: dict[int, int] = {}
    for inner in distinct(at[loop >= 0]).tolist():
        row, waiting = inner, []
        while row not in node_of:
            waiting.append((row, above := _above(frames, row)))
            if row == int(loop[row]) or above < int(loop[row]) or len(waiting) > 2 * _DEEPEST:
                break
            row = above
        for one, above in reversed(waiting):
            parent = node_of.get(above, -1)
            key = (parent, int(frames.rows.name[one]), int(line[one]) if parent >= 0 else 0)
            if key not in known:
                known[key] = len(nodes)
                nodes.append(_Node(row=one, parent=parent))
            node_of[one] = known[key]
    return node_of, nodes


def _above(frames: Frames, row: int) -> int:
    """The function of a package around a frame."""
    around = int(frames.parent[row])
    return int(frames.library[around]) if around >= 0 else NO_ROW


def _self_ns(frames: Frames) -> I64:
    """Time of each frame without those that it calls, ns."""
    spent = frames.rows.end_ns - frames.rows.start_ns
    has = np.flatnonzero(frames.parent >= 0)
    inner = np.bincount(frames.parent[has], weights=spent[has], minlength=spent.size).astype(np.int64)
    alone: I64 = np.maximum(spent - inner, 0)
    return alone


def _named(nodes: list[_Node]) -> list[int]:
    """For each node the one that names it: itself, or the nearest around it that has enough time."""
    total = sum(one.ns for one in nodes)
    left = [one.ns for one in nodes]
    for place in range(len(nodes) - 1, -1, -1):  # a call comes after those around it
        one = nodes[place]
        one.below_ns += one.ns
        one.is_named = left[place] >= _LEAST * total or one.parent < 0
        if one.parent >= 0:
            nodes[one.parent].below_ns += one.below_ns
            left[one.parent] += 0 if one.is_named else left[place]
    by: list[int] = []
    for place, one in enumerate(nodes):
        by.append(place if one.is_named else by[one.parent])
    return by


def _words(nodes: list[_Node], place: int, frames: Frames, lines: Lines) -> tuple[str, str]:
    """The line that calls, where only this is called on the way here, and the function that is got to."""
    named, top = lines.named, place
    while nodes[top].parent >= 0:
        above = nodes[nodes[top].parent]
        if above.is_named or above.parent < 0 or nodes[place].below_ns < _CHAIN * above.below_ns:
            break
        top = nodes[top].parent
    function = _function(named.get(int(frames.rows.name[nodes[place].row])))
    if nodes[top].parent < 0:
        return function, ""
    caller = named.get(int(frames.rows.name[nodes[nodes[top].parent].row]))
    line = int(lines.line[nodes[top].row])
    if caller is None or not line:
        return function, ""
    text = lines.text(caller, line)
    return _of(caller, line, text), function if top != place or not text else ""


def _function(frame: Frame | None) -> str:
    return "" if frame is None else _of(frame, 0, "")


def _of(frame: Frame, line: int, text: str) -> str:
    """`transformers' trainer.py:1893 in _run_epoch(): self.optimizer.step()`."""
    package, file = package_of(frame.file), frame.file.rpartition("/")[2]
    place = CodePlace(file=file, function=frame.function, defined=0 if line else frame.line, line=line, text=text)
    return f"{package}'{'' if package.endswith('s') else 's'} {place.words}"
