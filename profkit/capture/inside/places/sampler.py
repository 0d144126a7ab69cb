# ruff: noqa: PTH100 - texts, as the profiler has them
"""The stack of one thread looked at every few milliseconds, where a step makes too many Python calls to record each.

A call is known to run between two looks where both find it; what lies between looks that differ is left open. A call
that one look alone finds is told with next to no length: whoever reads it knows between which operators it lies. Runs
in the traced process: standard library and torch only.
"""

from __future__ import annotations

import linecache
import os
import sys
import threading
import time
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

from .looked import frames_now, nothing_collected
from .owners import is_own_path, is_package_path, shown_path

_EVERY_S: Final = 0.002
"""Chosen: such a step takes a tenth of a second and more."""
_SWITCH_S: Final = 0.0001
"""How long a look waits for Python code to let it go on, as in `worker_lines`: with the usual 5 ms it found a loop of
1 ms between operators never, and the operators behind it each time."""
_MOST_LOOKS: Final = 20_000
_MOST_CALLS: Final = 100_000
_MOST_CHARS: Final = 160


class _Call(NamedTuple):
    frame: int  # its address: the same in two looks is taken for the same call
    code: CodeType
    line: int  # from which it was called, 0 where nobody of the script's own did


class Sampler:
    """Looks at the stack of the thread that makes it, between `start` and `stop`; `found` says what ran."""

    def __init__(self) -> None:
        self._thread, self._native = threading.get_ident(), threading.get_native_id()
        self._looks: list[tuple[int, tuple[_Call, ...]]] = []
        self._is_own: dict[str, bool] = {}
        self._is_package: dict[str, bool] = {}
        self._usual_s = 0.0
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look_on, name="profkit sampler", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._usual_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._looking.start()

    def stop(self) -> None:
        """End it; the thread is gone then."""
        self._ended.set()
        if self._usual_s and sys.getswitchinterval() < 2 * _SWITCH_S:  # else the script has chosen one meanwhile
            sys.setswitchinterval(self._usual_s)
        if self._looking.is_alive():
            self._looking.join(1)

    def found(self) -> dict[str, Any]:
        """As `frames.found_in` does; with the calls themselves, which the profiler has not recorded, as `sampled`.

        Each is its name, start and end (ns of Unix), its id, that of the call around it or None, and the thread.
        """
        sampled: list[list[Any]] = []
        calls: dict[str, list[int]] = {"unix_ns": [], "line": [], "looked_unix_ns": [at for at, _ in self._looks]}
        texts: dict[str, str] = {}
        running: list[tuple[_Call, int]] = []  # with the row of each in `sampled`
        n_before = 0

        def keep(stack: tuple[_Call, ...], depth: int, start: int, end: int) -> None:
            call, parent = stack[depth], running[-1][1] if running else None
            running.append((call, len(sampled)))
            sampled.append([_name(call.code), start, end, len(sampled), parent, self._native])
            if call.line:
                calls["unix_ns"].append(start)
                calls["line"].append(call.line)
                self._keep_text(stack[depth - 1].code, call.line, texts)

        for (at, stack), (until, following) in zip(self._looks, self._looks[1:]):  # noqa: B905 - Python 3.9
            n_both = _n_common(stack, following)
            n_still = _n_common(tuple(call for call, _ in running), stack[:n_both])
            if n_before > n_both:  # inside the calls that end with this look
                self._keep_once(stack, n_before, at - 2 * len(stack), keep, running)
            del running[n_still:]
            for depth in range(n_still, n_both):  # each begins a nanosecond after the one around it
                keep(stack, depth, at + depth, until - depth)
            for depth, (_, row) in enumerate(running):
                sampled[row][2] = until - depth
            if n_before <= n_both:
                self._keep_once(stack, n_both, at, keep, running)
            n_before = n_both
            if len(sampled) > _MOST_CALLS:
                break
        own = sorted({shown_path(os.path.abspath(file)) for file, is_own in self._is_own.items() if is_own})
        return {
            "modules": {},
            "user_files": own,
            "package_files": sorted({shown_path(file) for file, is_theirs in self._is_package.items() if is_theirs}),
            "calls": calls,
            "texts": texts,
            "sampled": sampled,
        }

    @staticmethod
    def _keep_once(
        stack: tuple[_Call, ...], first: int, at: int, keep: Callable[..., None], running: list[tuple[_Call, int]]
    ) -> None:
        """Keep the calls from a depth on that this look alone has found."""
        n_around = len(running)
        for depth in range(first, len(stack)):
            keep(stack, depth, at + depth, at + 2 * len(stack) - depth)
        del running[n_around:]

    def _look_on(self) -> None:
        while not self._ended.wait(_EVERY_S) and len(self._looks) < _MOST_LOOKS:
            with nothing_collected():
                at = time.time_ns()
                frame = frames_now().get(self._thread)
                if frame is None:
                    return
                self._looks.append((at, self._stack(frame)))
                del frame

    def _stack(self, frame: FrameType | None) -> tuple[_Call, ...]:
        """The script's own calls and those of packages, the outermost first, and what the innermost own one calls."""
        found: list[tuple[int, CodeType, int]] = []
        below: FrameType | None = None
        has_own = False
        while frame is not None:
            file = frame.f_code.co_filename
            if is_own := self._owns(file):
                if below is not None and not has_own and (not found or found[-1][0] != id(below)):
                    found.append((id(below), below.f_code, 0))
                has_own = True
            if is_own or self._is_of_package(file):
                found.append((id(frame), frame.f_code, frame.f_lineno or 0))
            below, frame = frame, frame.f_back
        found.reverse()
        around = [0, *(line for _, _, line in found)]
        return tuple(_Call(key, code, line) for (key, code, _), line in zip(found, around))  # noqa: B905 - Python 3.9

    def _owns(self, file: str) -> bool:
        if file not in self._is_own:
            self._is_own[file] = is_own_path(file)
        return self._is_own[file]

    def _is_of_package(self, file: str) -> bool:
        if file not in self._is_package:
            self._is_package[file] = is_package_path(file)
        return self._is_package[file]

    def _keep_text(self, code: CodeType, line: int, texts: dict[str, str]) -> None:
        path = os.path.abspath(code.co_filename)
        place = f"{shown_path(path)}:{line}"
        if place not in texts:
            texts[place] = linecache.getline(path, line).strip()[:_MOST_CHARS]


def _n_common(one: tuple[_Call, ...], other: tuple[_Call, ...]) -> int:
    """How many calls both begin with."""
    alike = [mine == theirs for mine, theirs in zip(one, other)]  # noqa: B905 - Python 3.9
    return alike.index(False) if False in alike else len(alike)


def _name(code: CodeType) -> str:
    """As the profiler writes it."""
    return f"{shown_path(os.path.abspath(code.co_filename))}({code.co_firstlineno}): {code.co_name}"
