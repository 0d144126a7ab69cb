"""The whole run beside the recorded window: how long each step takes, where the rare long ones spend it, what grows.

A thread of its own looks at the stack of the training thread a few times a step, but never while steps are recorded.
Runs in the traced process: standard library and torch only, Python 3.9 syntax.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import weakref
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from ..beside import files
from .grown import Grown
from .holders import Holders
from .hot_lines import hot_lines
from .long_steps import MODEL, Look, middle, told_of, usual_of
from .places.looked import frames_now, nothing_collected
from .places.owners import is_own_path, is_package_path
from .slower import cpu_of, slower_of
from .subnormal import held_subnormals

_LEAST_EVERY_S: Final = 0.02
_MOST_EVERY_S: Final = 0.25
_LOOKS_A_STEP: Final = 4
_EAGER_LOOKS: Final = 500
_LATER_EVERY_S: Final = 0.05
"""A look costs a loop that is all Python 0.2 ms (measured on 2 cores: 4.4 % at 200 a second, 1.4 +- 1.7 % at 50): 0.1 s
in all for the first ones, which short runs need, then below 0.5 %."""
_MEMORY_EVERY_NS: Final = 50_000_000
_MOST_STEPS: Final = 200_000
_MOST_LOOKS: Final = 200_000
_MOST_FRAMES: Final = 60
_MOST_MODELS: Final = 8
_LEAST_STEPS: Final = 16
"""Before the script's tensors are looked at for subnormal numbers. Chosen."""
_AROUND_LOOK: Final = 12
"""Steps on each side of a look whose median is the step there: a recording may be among them. Chosen."""
_MOST_SUNK: Final = 8
"""Names of what fills with subnormal numbers: a batch that is made of a state holds more of them than that. Chosen."""
_PAGES: Final = "/proc/self/statm"
_Function = TypeVar("_Function", bound=Callable[..., Any])


def _contained(function: _Function) -> _Function:
    """Turn an exception into the end of the looking: the capture stays as it is."""

    @functools.wraps(function)
    def wrapper(self: WholeRun, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except Exception:  # noqa: BLE001 - whatever it is, what was recorded is there
            self.is_over = True
            return None

    return wrapper  # type: ignore[return-value]


class WholeRun:
    """The steps of one process from the first to the last: `begin`, `boundary` at each step's end, `told`."""

    def __init__(self) -> None:
        self.is_over = False
        self._began = array("q")
        self._ended = array("q")
        self._is_plain = bytearray()
        self._cpu_ns = array("q")  # of the training thread in each step; 0 where nobody has read it
        self._cpu_began_ns = 0
        self._events: list[tuple[Any, Any]] = []  # of the device, at the begin and the end of each step
        self._looks: list[Look] = []
        self._waited = array("q")  # ns for which each look stands
        self._is_own: dict[str, bool] = {}
        self._is_package: dict[str, bool] = {}
        self._memory: list[tuple[int, int]] = []
        self._grown = Grown()
        self._holders = Holders()
        self._models: Any = weakref.WeakSet()
        self._hooks: list[int] = []  # of the models, after 1, 2, 4, 8... steps
        self._subnormal: list[tuple[int, dict[str, int]]] = []  # step, values of what functions hold, after as many
        self._thread = self._read_ns = 0
        self._every_s = _LEAST_EVERY_S
        self._goes, self._stopped = threading.Event(), threading.Event()
        self._looking: threading.Thread | None = None

    @_contained
    def begin(self, marks: Sequence[Any]) -> None:
        """Take the steps between marks (`clock.Mark`), which nothing has recorded."""
        for first, second in zip(marks, marks[1:]):  # noqa: B905, RUF007 - Python 3.9
            self._began.append(first.began_ns)
            self._ended.append(second.ended_ns)
            self._is_plain.append(1)
            self._cpu_ns.append(0)
            self._events.append((first.began, second.ended))

    @_contained
    def boundary(self, ended_ns: int, ended: Any, *, is_plain: bool, began: Any = None) -> None:
        """A step has ended and another one begins now; nothing records it if it `is_plain`."""
        if self.is_over:
            return
        if len(self._began) > len(self._ended):
            self._ended.append(ended_ns)
            self._cpu_ns.append(max(time.thread_time_ns() - self._cpu_began_ns, 0))
            self._events[-1] = (self._events[-1][0], ended)
        if len(self._began) >= _MOST_STEPS or len(self._looks) >= _MOST_LOOKS:
            self.stop()
            return
        self._is_plain.append(is_plain)
        self._events.append((began, None))
        is_at_double = not len(self._began) & (len(self._began) - 1)
        if is_at_double and is_plain and began is None and len(self._began) >= _LEAST_STEPS:
            with suppress(Exception):  # the script's own classes may be of any kind
                held = held_subnormals(sys._getframe(), self._owns)  # noqa: SLF001
                self._subnormal.append((len(self._ended), held))
        if self._models and is_at_double:
            self._hooks.append(sum(_n_hooks(module) for model in self._models for module in model.modules()))
        if is_plain != self._goes.is_set():
            self._turn(is_on=is_plain)
        self._cpu_began_ns = time.thread_time_ns()
        self._began.append(time.perf_counter_ns())

    def saw(self, model: Any) -> None:
        """The loop calls this module."""
        if len(self._models) < _MOST_MODELS and self._began:
            with suppress(Exception):
                self._models.add(model)

    def grows(self) -> bool:
        """Whether the steps so far take longer and longer."""
        with suppress(Exception):
            n = len(self._ended)
            spent = {place: self._spent_ns(place) for place in range(n) if self._is_plain[place]}
            return bool(slower_of(spent, ([], []), []))
        return False

    def stop(self) -> None:
        """Look no longer; the thread is gone then: one that Python ends while it frees a tensor aborts the process."""
        self.is_over = True
        self._stopped.set()
        self._goes.set()
        if self._looking not in (None, threading.current_thread()):
            self._looking.join(1)

    def after_fork(self) -> None:
        """In a forked child there is no thread that looks."""
        self.is_over, self._looking = True, None

    def told(self) -> dict[str, Any]:
        """What the steps of the run show (`long_steps.told_of`), and what memory grew; {} where nothing does."""
        with suppress(Exception):
            n = len(self._ended)
            known = [place for place in range(n) if self._is_plain[place]]
            spent = {place: self._spent_ns(place) for place in known}
            edges = (list(self._began[:n]), list(self._ended))
            looks = list(self._looks)
            is_ahead = any(began is not None for began, _ in self._events)  # of a GPU, which takes the time
            usual = usual_of(spent) if spent else {}
            cpu = {} if is_ahead else {place: self._cpu_ns[place] for place in usual if self._cpu_ns[place]}
            return {
                **told_of(spent, edges, looks, self._others(n)),
                **({} if is_ahead else hot_lines(looks, list(self._waited), edges)),
                **cpu_of(cpu),
                **slower_of(usual, edges, [] if is_ahead else looks),
                **self._grown.told(list(self._memory)),
                **self._holders.told(),
                **_piled(self._hooks),
                **_sunk(self._subnormal, cpu),
            }
        return {}

    def _others(self, n: int) -> dict[int, int]:
        """The recorded steps, but for the last of a recording: there it is written."""
        return {place: self._spent_ns(place) for place in range(n - 1) if not any(self._is_plain[place : place + 2])}

    def _spent_ns(self, place: int) -> int:
        """How long a step took: by the device's events where there are any, since the host runs ahead of a GPU."""
        began, ended = self._events[place]
        if began is not None and ended is not None and ended.query():
            return int(began.elapsed_time(ended) * 1e6)
        return int(self._ended[place] - self._began[place])

    def _turn(self, *, is_on: bool) -> None:
        if not is_on:
            self._goes.clear()
            return
        spent = sorted(end - begin for begin, end in zip(self._began, self._ended))  # noqa: B905 - Python 3.9
        usual_s = spent[len(spent) // 2] / 1e9 if spent else 0.0
        self._every_s = min(max(usual_s / _LOOKS_A_STEP, _LEAST_EVERY_S), _MOST_EVERY_S)
        self._thread = threading.get_ident()
        self._goes.set()
        if self._looking is None:
            self._looking = threading.Thread(target=self._look_on, name="profkit looks", daemon=True)
            self._looking.start()

    def _look_on(self) -> None:
        pid = os.getpid()
        while self._goes.wait() and not self.is_over and os.getpid() == pid:
            is_eager = len(self._looks) < _EAGER_LOOKS
            slept_ns = time.perf_counter_ns()
            self._stopped.wait(self._every_s if is_eager else max(self._every_s, _LATER_EVERY_S))
            if not self._goes.is_set() or self.is_over:
                continue
            try:
                self._look(slept_ns)
            except Exception:  # noqa: BLE001 - frames change while they are looked at
                self.is_over = True

    def _look(self, slept_ns: int) -> None:
        at_ns = time.perf_counter_ns()
        is_due = at_ns - self._read_ns >= _MEMORY_EVERY_NS
        held = _held_bytes() if is_due else 0  # before there are frames: to read a file lets the others go on
        with nothing_collected():
            frame = frames_now().get(self._thread)
            if frame is None:
                self.is_over = True
                return
            self._looks.append(self._stack(at_ns, frame))
            self._waited.append(at_ns - slept_ns)
            if is_due:
                self._read_ns = at_ns
                self._memory.append((len(self._ended), held))
                self._grown.look(frame, self._memory, self._owns)
            del frame
        if self._looks[-1].own:
            self._holders.look(self._looks[-1].own[-1], frames_now, self._thread, self._owns)

    def _stack(self, at_ns: int, frame: Any) -> Look:
        """The lines of the script's own code that run, the outermost first, and what the innermost calls."""
        own: list[tuple[str, int, str]] = []
        whole: list[tuple[str, int, str]] = []
        below, below_names = "", []
        for _ in range(_MOST_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            line = (code.co_filename, frame.f_lineno or 0, code.co_name)
            is_own = self._owns(code.co_filename)
            if is_own or self._is_of_package(code.co_filename):
                whole.append(line)
            if is_own:
                own.append(line)
            elif not own:
                below = code.co_name
                below_names.append(code.co_name)
            elif code.co_name in _WAYS:
                below_names.append(code.co_name)
            frame = frame.f_back
        way = next((_WAYS[name] for name in below_names if name in _WAYS), "")
        return Look(at_ns, tuple(reversed(own)), below, way, tuple(reversed(whole)))

    def _is_of_package(self, file: str) -> bool:
        if file not in self._is_package:
            self._is_package[file] = is_package_path(file)
        return self._is_package[file]

    def _owns(self, file: str) -> bool:
        if file not in self._is_own:
            self._is_own[file] = is_own_path(file)
        return self._is_own[file]


_WAYS: Final = {
    "_get_iterator": "start",
    "_shutdown_workers": "start",
    "_reset": "start",
    "_try_get_data": "wait",
    "_next_data": "load",
    "save": "save",
    "_call_impl": MODEL,
    "_str_intern": "text",
}
"""Functions of torch that tell what a line outside or inside of them does: a loader, a save, a module, text."""


def _n_hooks(module: Any) -> int:
    return sum(len(getattr(module, name, ())) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks"))


def _piled(counts: Sequence[int]) -> dict[str, Any]:
    """`hooks`, at first and in the end, where they become more each time that the steps have doubled; {} else."""
    known = [one for one in counts if one]
    rises = [second > first for first, second in zip(known, known[1:])]  # noqa: B905, RUF007 - Python 3.9
    is_piling = len(rises) > 1 and rises[-1] and rises[-2]
    return {"hooks": [counts[0], known[-1]]} if is_piling else {}


def _sunk(looks: Sequence[tuple[int, dict[str, int]]], cpu: Mapping[int, int]) -> dict[str, Any]:
    """`subnormal`: what holds most more such values at the last look than at the first, how many; {} of none.

    With `others` that hold more. `first_ns`, `last_ns`: the CPU time of steps around these looks, `mean_ns`: of all.
    """
    if len(looks) < 2:
        return {}
    (first_at, first), (last_at, last) = looks[0], looks[-1]
    more = [name for name in last if last[name] > first.get(name, 0)] or list(last)
    more.sort(key=lambda name: first.get(name, 0) - last[name])
    told: list[dict[str, Any]] = [{"of": name, "n_first": first.get(name, 0), "n_last": last[name]} for name in more]
    if not told:
        return {}
    around = [[ns for place, ns in cpu.items() if abs(place - at) <= _AROUND_LOOK] for at in (first_at, last_at)]
    times = {"first_ns": middle(around[0]), "last_ns": middle(around[1])} if all(around) else {}
    mean = {"mean_ns": round(sum(cpu.values()) / len(cpu))} if times else {}
    return {"subnormal": {**told[0], **times, **mean, "others": told[1:_MOST_SUNK]}}


def _held_bytes() -> int:
    """The memory that is held: of the GPU's allocator where CUDA is in use, else the process's own pages."""
    import torch

    if torch.cuda.is_initialized():
        return int(torch.cuda.memory_allocated())
    with suppress(OSError, ValueError, IndexError):
        _, resident, shared = files().read_small(_PAGES, 256).split()[:3]
        return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return 0
