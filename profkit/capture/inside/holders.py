"""Who holds the lock that the training thread waits for: the thread, and the line of its own code that took it.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import linecache
import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Optional

from .long_steps import shown

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
        every = frames()
        for one in threading.enumerate():
            frame = every.get(one.ident or 0)
            if one.ident not in (mine, threading.get_ident()) and frame is not None:
                found = _block(frame, self._names[at], owns)
                if found is not None:
                    self._holds.setdefault(at, Counter())[(one.name[:80], *found)] += 1
        del every

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


def _block(frame: Any, name: str, owns: Callable[[str], bool]) -> Optional[tuple[_Line, _Line]]:  # noqa: UP045 - Python 3.9
    """The `with` of that lock around what a thread runs, and its innermost own line; None of none."""
    innermost: Optional[_Line] = None  # noqa: UP045
    for _ in range(_MOST_FRAMES):
        if frame is None:
            break
        code = frame.f_code
        if owns(code.co_filename):
            line = (code.co_filename, frame.f_lineno or 0, code.co_name)
            innermost = innermost or line
            taken = _with_around(line, name, code.co_firstlineno)
            if taken:
                return (line[0], taken, line[2]), innermost
        frame = frame.f_back
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
