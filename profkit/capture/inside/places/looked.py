"""What a look at a stack tells of the line that took the time before it.

A thread that looks waits until the other one lets it go on. Python does that after a call, at the end of a pass of a
loop and where a function begins, so a look finds the other thread there, and not where its time went: after
`known = word in words` it is seen at the end of the loop. All lines that may have run since the last such point are
counted as possible: one of them is told, several in one loop by the line that the loop begins with, others by their
function. Runs in the script's processes: standard library only.
"""

from __future__ import annotations

import dis
import gc
import re
import sys
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

_CALL: Final = re.compile(r"CALL(?!_INTRINSIC)")
_LETS_GO: Final = re.compile(r"CALL(?!_INTRINSIC)|RESUME|JUMP_BACKWARD$|JUMP_ABSOLUTE$|POP_JUMP_BACKWARD")
_NO_NEXT: Final = re.compile(r"RETURN|RAISE|RERAISE|JUMP_(?:FORWARD|BACKWARD|ABSOLUTE)")
_QUICK: Final = re.compile(
    r"(?:LOAD|STORE|DELETE)_(?!SUBSCR|SLICE)|POP_|JUMP|COPY|SWAP|DUP|ROT_|PUSH_|PRECALL|KW_NAMES|NOP|NOT_TAKEN|CACHE"
    r"|EXTENDED|MAKE_|RETURN|IS_OP|UNARY_NOT|TO_BOOL|GET_ITER|END_|SETUP|RAISE|RERAISE|BUILD_(?:TUPLE|SLICE|LIST|MAP)"
)
"""Instructions that move what is there, whatever it is: none of them takes long."""
_NAMED: Final = re.compile(r"LOAD_(?:GLOBAL|NAME|METHOD|ATTR|DEREF)")
_STAYS: Final = frozenset(("len", "isinstance", "type", "append"))
"""Calls that Python may have replaced by instructions of their own, which let no other thread go on."""
_LONGEST: Final = 20_000
"""Bytes of a function's instructions of which lines are told. Chosen: some 500 lines."""
_AFTER: Final = 3
"""In the argument of `RESUME`: it goes on after a yield or an await."""
_START: Final = 100
"""Bytes within which a function's own instructions begin. Chosen."""


class _Held:
    """Whether a look keeps garbage from being collected, and the lock that lets one thread at a time do so."""

    def __init__(self) -> None:
        self.lock, self.is_on = threading.RLock(), False


_HELD: Final = _Held()


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Collect no garbage meanwhile: a thread that looks would else run the finalizers of the script's own objects.

    Some have to be run by the thread that made them, and one that frees a tensor while Python ends aborts the process.
    """
    with _HELD.lock:
        if not gc.isenabled():
            yield
            return
        _HELD.is_on = True
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
            _HELD.is_on = False


def frames_now() -> dict[int, FrameType]:
    """The frame that each thread runs: Python may collect garbage while it makes them, and locks itself out then.

    It holds the lock on its list of threads meanwhile (CPython issue 106883), and the finalizer of a loader waits.
    """
    with nothing_collected():
        return sys._current_frames()  # noqa: SLF001


def collect_after_fork() -> None:
    """In a child that was forked meanwhile, nobody else goes on with it."""
    if _HELD.is_on:
        gc.enable()
    _HELD.lock, _HELD.is_on = threading.RLock(), False


class Code:
    """One function's instructions, and between which points of them it lets other threads go on."""

    def __init__(self, code: CodeType) -> None:
        self._steps = list(dis.get_instructions(code)) if len(code.co_code) <= _LONGEST else []
        self._at = [one.offset for one in self._steps]
        starts = [(at, line) for at, line in dis.findlinestarts(code) if line]  # some have none
        offsets = [at for at, _ in starts]
        self._line = [starts[max(bisect_right(offsets, at) - 1, 0)][1] if starts else 0 for at in self._at]
        self._before: list[list[int]] = [[] for _ in self._steps]
        for place, one in enumerate(self._steps):
            if place + 1 < len(self._steps) and not _NO_NEXT.match(one.opname):
                self._before[place + 1].append(place)
            if (target := self._target(place)) is not None:
                self._before[target].append(place)

    def line(self, offset: int, may_return: Callable[[str], bool]) -> int | None:
        """The line that took the time before this point, or that the loop begins with; 0 for one of several.

        None for a point at which no other thread is let go on but by what runs there. `may_return`: whether a function
        of the script's own may be called by a name, whose last lines may have run since.
        """
        if not self._steps:
            return 0
        here = self._place(offset)
        if not self._lets_go(here):
            return None
        lines = self._possible(here, may_return)
        if not lines or _CALL.match(self._steps[here].opname):
            lines.add(self._line[here])
        return lines.pop() if len(lines) == 1 else self._loop(here, lines)

    def calls(self, offset: int) -> bool:
        """Whether something is called at this point."""
        return bool(self._steps) and _CALL.match(self._steps[self._place(offset)].opname) is not None

    def _place(self, offset: int) -> int:
        return max(bisect_right(self._at, offset) - 1, 0)

    def _target(self, place: int) -> int | None:
        one = self._steps[place]
        is_jump = one.opcode in dis.hasjrel or one.opcode in dis.hasjabs
        return self._place(one.argval) if is_jump and isinstance(one.argval, int) else None

    def _lets_go(self, place: int) -> bool:
        name, target = self._steps[place].opname, self._target(place)
        is_back = name.startswith("POP_JUMP") and target is not None and target <= place
        return is_back or _LETS_GO.match(name) is not None

    def _possible(self, here: int, may_return: Callable[[str], bool]) -> set[int]:
        """The lines of what may have run since the thread last let others go on, but for what is quick."""
        lines: set[int] = set()
        seen, left = {here}, [here]
        while left:
            for place in self._before[left.pop()]:
                if place in seen:
                    continue
                seen.add(place)
                is_call, names = _CALL.match(self._steps[place].opname), self._names(place)
                if not self._lets_go(place) or (is_call and not _STAYS.isdisjoint(names)):
                    left.append(place)
                    is_worth = not self._is_quick(place, names)
                else:
                    is_worth = is_call is not None and any(map(may_return, names))
                if is_worth:
                    lines.add(self._line[place])
        return lines

    def _is_quick(self, place: int, names: list[str]) -> bool:
        name = self._steps[place].opname
        if _CALL.match(name):
            return _STAYS.issuperset(names)
        return ("range" in names) if name == "FOR_ITER" else _QUICK.match(name) is not None

    def _names(self, place: int) -> list[str]:
        """The names that are looked up in the line of an instruction."""
        line = self._line[place]
        return [
            str(one.argval)
            for one, its in zip(self._steps, self._line)  # noqa: B905 - Python 3.9
            if its == line and _NAMED.match(one.opname)
        ]

    def _loop(self, here: int, lines: set[int]) -> int:
        """The line that the innermost loop begins with which has all of these lines; 0 for none."""
        for place in range(here, len(self._steps)):
            first = self._target(place)
            if first is None or not first <= here <= place or not self._lets_go(place):
                continue
            is_for = self._steps[first].opname == "FOR_ITER"
            if not is_for and not self._steps[place].opname.startswith("POP_JUMP"):
                return 0
            begins = self._line[first if is_for else place]
            if lines and lines <= {begins, *self._line[first : place + 1]}:
                return begins
        return 0


def may_return(names: Mapping[str, Any], owns: Callable[[str], bool], name: str) -> bool:
    """Whether a function of the script's own goes by this name, as far as a module's names tell."""
    found = [names.get(name)]
    for value in list(names.values()):
        if isinstance(value, type):
            found += [vars(one).get(name) for one in value.__mro__]
        elif isinstance(value, ModuleType):
            found.append(vars(value).get(name))
    for value in found:
        plain = getattr(value, "__func__", value) if isinstance(value, (staticmethod, classmethod)) else value
        plain = plain.fget if isinstance(plain, property) else plain
        plain = vars(plain).get("__wrapped__", plain) if isinstance(plain, FunctionType) else plain
        if isinstance(plain, FunctionType) and owns(plain.__code__.co_filename):
            return True
    return False


class Moment(NamedTuple):
    """Where a frame is when it is looked at."""

    code: CodeType
    offset: int
    """Of the instruction that it has begun last, in bytes."""
    line: int
    names: Mapping[str, Any]
    """What its module knows."""


class Lines:
    """The line that took the time before each look at one thread."""

    def __init__(self, owns: Callable[[str], bool]) -> None:
        self._owns = owns
        self._codes: dict[CodeType, Code] = {}
        self._known: dict[tuple[CodeType, int], int | None] = {}
        self._is_start: dict[tuple[CodeType, int], bool] = {}
        self._last: tuple[object, int] = (None, 0)

    def is_at_start(self, at: Moment) -> bool:
        """Whether nothing of the frame's function has run yet: the time is its caller's."""
        offset, code = at.offset, at.code
        if not 0 <= offset < _START:
            return offset < 0
        key = (code, offset)
        if key not in self._is_start:
            name, argument = code.co_code[offset : offset + 2]
            self._is_start[key] = dis.opname[name] == "RESUME" and not argument & _AFTER
        return self._is_start[key]

    def line(self, at: Moment, *, is_prompt: bool) -> int:
        """The line that took the time before; 0 where it is one of several.

        `is_prompt`: the look has not had to wait, so that what is called there has let others go on by itself. Not
        where the look before was at the same place: then the thread may have had no core since.
        """
        key = (at.code, at.offset)
        if key not in self._known:
            if at.code not in self._codes:
                self._codes[at.code] = Code(at.code)
            self._known[key] = self._codes[at.code].line(at.offset, lambda name: may_return(at.names, self._owns, name))
        told = self._known[key]
        if told is None:
            told = at.line
        elif key == self._last[0]:
            told = self._last[1]
        elif is_prompt and self._codes[at.code].calls(at.offset):
            told = at.line
        self._last = (key, told)
        return told
