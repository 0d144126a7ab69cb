"""Who holds the lock that the training thread waits for: the thread, and the line of its own code that took it.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import linecache
import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from .long_steps import shown
from .places.looked import nothing_collected

_TAKES: Final = re.compile(r"^(?:async )?with\s+(?:[\w\[\]]+\.)*(\w*lock)\b", re.IGNORECASE)
_LEAST: Final = 6
"""Looks at a line, from which a holder is told. Chosen, as for Python's own lock."""
_MOSTLY: Final = 0.6
"""Of the looks at a line that waits, those at which the same thread is inside such a block. Chosen: more than half."""
_MOST_FRAMES: Final = 60
_Line = tuple[str, int, str]


class Holders:
    """What other threads run inside blocks of a lock of the same name, when the training thread waits for it."""

    def __init__(self) -> None:
        self._names: dict[_Line, str] = {}
        self._waits: Counter[_Line] = Counter()
        self._holds: dict[_Line, Counter[tuple[str, _Line, _Line]]] = {}

    def look(self, at: _Line, frames: Callable[[], dict[int, Any]], mine: int, owns: Callable[[str], bool]) -> None:
        """The training thread, of that number, is at this line of its own code."""
        if at not in self._names:
            taken = _TAKES.match(linecache.getline(at[0], at[1]).strip())
            self._names[at] = taken[1] if taken else ""
        if not self._names[at]:
            return
        self._waits[at] += 1
        for thread, lines in _own_lines(frames, mine, owns):
            found = _block(lines, self._names[at])
            if found is not None:
                self._holds.setdefault(at, Counter())[(thread, *found)] += 1

    def told(self) -> dict[str, Any]:
        """`locks`: lines that wait, the thread that mostly holds what they wait for, its block and line; {} of none."""
        found = []
        for at, n in self._waits.items():
            by_block: Counter[tuple[str, _Line]] = Counter()
            for (thread, block, _), times in self._holds.get(at, Counter()).items():
                by_block[thread, block] += times
            if n < _LEAST or not by_block:
                continue
            (thread, block), times = by_block.most_common(1)[0]
            if times >= _MOSTLY * n:
                inside = {key[2]: each for key, each in self._holds[at].items() if key[:2] == (thread, block)}
                most = max(inside, key=lambda line: inside[line])
                found.append(
                    {
                        "waits": shown((at,), 1.0),
                        "thread": thread,
                        "block": shown((block,), times / n),
                        "inside": shown((most,), inside[most] / times),
                        "n_looks": n,
                    }
                )
        return {"locks": found} if found else {}


def _own_lines(
    frames: Callable[[], dict[int, Any]], mine: int, owns: Callable[[str], bool]
) -> list[tuple[str, list[tuple[_Line, int]]]]:
    """Each other thread's name and own lines, the innermost first, each with the first line of its function.

    No frame is held behind it: files are read then, which lets the others go on.
    """
    names = {one.ident or 0: one.name[:80] for one in threading.enumerate()}
    found = []
    with nothing_collected():
        every, frame = frames(), None
        for ident in names.keys() - {mine, threading.get_ident()}:
            frame, lines = every.get(ident), []
            for _ in range(_MOST_FRAMES):
                if frame is None:
                    break
                code = frame.f_code
                if owns(code.co_filename):
                    lines.append(((code.co_filename, frame.f_lineno or 0, code.co_name), code.co_firstlineno))
                frame = frame.f_back
            found.append((names[ident], lines))
        del every, frame
    return found


def _block(lines: list[tuple[_Line, int]], name: str) -> tuple[_Line, _Line] | None:
    """The `with` of that lock around what a thread runs, and its innermost own line; None of none."""
    for line, first in lines:
        taken = _with_around(line, name, first)
        if taken:
            return (line[0], taken, line[2]), lines[0][0]
    return None


def _with_around(line: _Line, name: str, first: int) -> int:
    """The number of the line of the same function that takes such a lock for a block around it; 0 of none."""
    file, number, _ = line
    text = linecache.getline(file, number)
    indent = len(text) - len(text.lstrip())
    for above in range(number - 1, first, -1):
        text = linecache.getline(file, above)
        depth = len(text) - len(text.lstrip())
        if text.strip() and depth < indent:
            indent = depth
            taken = _TAKES.match(text.strip())
            if taken and taken[1] == name:
                return above
    return 0
