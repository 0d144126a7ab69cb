"""Memory that grows step by step, and the container of the script's own that grows with it.

Runs in the traced process: standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from .places.owners import shown_path

_LEAST_SAMPLES: Final = 8
_LEAST_BYTES: Final = 32 * 2**20
"""Chosen: what a process holds swings by less."""
_STEADY: Final = 0.4
"""Of what a quarter of the steps should grow by, what each does at least: caches and arenas stop to grow. Chosen."""
_STEPS_BETWEEN: Final = 8
_MOST_OBJECTS: Final = 4000
_MOST_FRAMES: Final = 60
_IS_FUNCTION: Final = 1  # inspect.CO_OPTIMIZED
_MOST_CHARS: Final = 160
_CHAIN: Final = 16
"""Additions in a row in a graph, from which a sum keeps the graphs of all steps. Chosen: more than a loss has terms."""


class Grown:
    """Looks twice at the lengths of the script's own containers once memory grows; `told` says what grew."""

    def __init__(self) -> None:
        self._first: dict[tuple[int, str], tuple[int, Any]] = {}
        self._at_step = -1
        self._found: dict[str, Any] = {}
        self._is_done = False

    def look(self, frame: Any, memory: Sequence[tuple[int, int]], owns: Callable[[str], bool]) -> None:
        """Look at what the frames hold, if memory (steps so far, bytes) has grown for long enough."""
        if self._is_done or memory[-1][1] - memory[0][1] < _LEAST_BYTES:
            return
        step = memory[-1][0]
        if self._at_step >= 0 and step - self._at_step < _STEPS_BETWEEN:
            return
        lengths = _lengths(frame, owns)
        if self._at_step < 0:
            self._first, self._at_step = lengths, step
            return
        self._is_done = True
        n_steps = step - self._at_step
        grown = [
            (size - self._first[key][0], where)
            for key, (size, where) in lengths.items()
            if key in self._first and size - self._first[key][0] >= n_steps // 2
        ]
        self._first = {}
        kept = [one for one in grown if one[1]["has_graph"]] or [one for one in grown if one[1]["has_tensor"]]
        if kept:
            more, where = max(kept, key=lambda one: one[0])
            self._found = {**where, "per_step": round(more / n_steps, 2)}

    def told(self, memory: Sequence[tuple[int, int]]) -> dict[str, Any]:
        """`memory`: bytes per step, since when, the bytes grown, the container; {} where nothing grows steadily."""
        if len(memory) < _LEAST_SAMPLES:
            return {}
        first, last = memory[0], memory[-1]
        n_steps, grown = last[0] - first[0], last[1] - first[1]
        if n_steps < _LEAST_SAMPLES or grown < _LEAST_BYTES:
            return {}
        bounds = [memory[len(memory) * part // 4 - (part == 4)] for part in range(5)]
        rates = [
            (after[1] - before[1]) / max(after[0] - before[0], 1)
            for before, after in zip(bounds, bounds[1:])  # noqa: B905, RUF007 - Python 3.9
        ]
        per_step = grown / n_steps
        if min(rates) < _STEADY * per_step:
            return {}
        told = {"bytes_per_step": round(per_step), "grown_bytes": grown, "first_step": first[0], "n_steps": n_steps}
        return {"memory": {**told, **({"held": self._found} if self._found else {})}}


def _lengths(frame: Any, owns: Callable[[str], bool]) -> dict[tuple[int, str], tuple[int, Any]]:
    """Containers that the script's running functions and their objects hold: id and name to (length, where)."""
    found: dict[tuple[int, str], tuple[int, Any]] = {}
    n_left = _MOST_OBJECTS
    for _ in range(_MOST_FRAMES):
        if frame is None or n_left <= 0:
            break
        code = frame.f_code
        if owns(code.co_filename):
            held = locals_of(frame)[:n_left]
            for name, value in held:
                n_left -= 1
                _note(found, name, value, code)
                mine = getattr(value, "__dict__", None) if is_own_object(value, owns) else None
                for inner, part in list(mine.items())[: max(n_left, 0)] if isinstance(mine, dict) else ():
                    n_left -= 1
                    _note(found, f"{name}.{inner}", part, code)
            del held
        frame = frame.f_back
    return found


def locals_of(frame: Any) -> list[tuple[str, Any]]:
    """The names of a running function or module, with what they hold."""
    names = frame.f_locals
    held = list(names.items())
    if frame.f_code.co_flags & _IS_FUNCTION and sys.version_info < (3, 13) and sys.getrefcount(names) <= 3:
        names.clear()  # a copy, which would keep a step's tensors alive
    return held


def is_own_object(value: Any, owns: Callable[[str], bool]) -> bool:
    """Whether its class is of the script's own."""
    module = sys.modules.get(type(value).__module__)
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and owns(file) and not issubclass(type(value), type)


def _note(found: dict[tuple[int, str], tuple[int, Any]], name: str, value: Any, code: Any) -> None:
    kind = type(value)
    where: dict[str, Any] = {"name": name, "has_graph": False, "has_tensor": False}
    if kind in (list, deque, dict) and len(value):
        inner = next(reversed(list(value.values()) if kind is dict else value))
        parts = inner if type(inner) in (tuple, list) else inner.values() if type(inner) is dict else (inner,)
        where["has_tensor"] = any(hasattr(part, "grad_fn") for part in parts)
        where["has_graph"] = any(getattr(part, "grad_fn", None) is not None for part in parts)
        size = len(value)
    elif getattr(value, "grad_fn", None) is not None:
        size = _chain(value.grad_fn)
        where["has_tensor"] = where["has_graph"] = size >= _CHAIN
    else:
        return
    where.update(_line_of(name, code, is_sum=kind not in (list, deque, dict)))
    found[id(value) if kind in (list, deque, dict) else 0, name] = (size, where)


def _chain(node: Any) -> int:
    """How many nodes of the same kind follow each other in a graph, by their first inputs."""
    name, n = type(node).__name__, 0
    while node is not None and type(node).__name__ == name and n < 100_000:
        n += 1
        following = node.next_functions
        node = following[0][0] if following else None
    return n


def _line_of(name: str, code: Any, *, is_sum: bool) -> dict[str, Any]:
    """The line of that function's file in which something of this name is added to."""
    tail = re.escape(name.rpartition(".")[2])
    adds = (
        rf"\b{tail}\s*(\+=|=\s*{tail}\s*\+)"
        if is_sum
        else rf"\b{tail}(\[[^\]]*\]\s*=|\s*\+=|\.(append|appendleft|extend|add|update|setdefault)\()"
    )
    path = os.path.abspath(code.co_filename)  # noqa: PTH100 - a text
    lines = [(number, text) for number, text in enumerate(linecache.getlines(path), 1) if re.search(adds, text)]
    own = [one for one in lines if one[0] >= code.co_firstlineno] or lines
    if not own:
        return {}
    number, text = own[0]
    return {"file": shown_path(path), "line": number, "function": code.co_name, "text": text.strip()[:_MOST_CHARS]}
