"""Who hears what a training loop does and finds its steps, and the guard around all that it does.

Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ..options import Options
from . import clock
from .exits import in_backward
from .hooks import Hooks
from .steps import StepFinder, name_of

_Function = TypeVar("_Function", bound=Callable[..., Any])


def guarded(function: _Function) -> _Function:
    """Turn an exception into the end of the capture (`fail`); the script never sees it."""

    @functools.wraps(function)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the script goes on
            self.fail(error)
            return None

    return wrapper  # type: ignore[return-value]


class Listener:
    """What the hooks of a process tell, by a method each, and the finder that makes steps of it.

    Whoever inherits says with `_on_candidate` what is done at a boundary, and with `_follow` what is watched.
    """

    phase: Any = None
    """`None`, or a function that gives a context manager around a phase, while steps are recorded."""
    home_thread: int
    """The thread that trains; calls of modules in other threads are not looked at."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.home_thread = threading.main_thread().ident or 0
        self._has_home = False
        self._pid = os.getpid()
        self._finder = StepFinder(step_on=options.step_on, is_safe=self._is_safe, on_candidate=self._on_candidate)
        self._hooks = Hooks(self)

    def fail(self, error: BaseException) -> None:
        """Something of profkit's own went wrong: say so once, stop, let the script run on."""
        raise NotImplementedError

    def _on_candidate(self, source: str, is_step: bool) -> None:
        """A boundary is here, which is that of a step as far as is known; "restart": what was before counts no more."""
        raise NotImplementedError

    def _follow(self) -> None:
        """See to it that calls of modules are watched as the finder needs it now."""
        self._hooks.watch_forward(self._finder.forward_watch)

    def _is_safe(self) -> bool:
        is_between = threading.get_ident() == self.home_thread and self._hooks.optimizer_depth == 0
        return is_between and not in_backward() and not clock.is_capturing_graph()

    @guarded
    def optimizer_made(self) -> None:
        """An optimizer was made: this is no inference."""
        self._finder.optimizer_made()
        self._follow()

    def optimizers_were_made(self) -> None:
        """Optimizers, nobody knows how many, were made before the capture began."""
        self._finder.optimizer_made()
        self._finder.has_unknown_optimizers = True

    @guarded
    def optimizer_stepped(self, optimizer: Any, has_closure: bool) -> None:
        """An optimizer outside any other has made its step; the thread of the first one is the one that trains."""
        if not self._has_home:
            self._has_home, self.home_thread = True, threading.get_ident()
        self._finder.optimizer_stepped(id(optimizer), has_closure=has_closure)
        self._follow()

    @guarded
    def data_wanted(self, iterator: Any) -> None:
        """The loop asks for a batch."""
        if threading.get_ident() == self.home_thread:
            self._finder.data_wanted()
            self._follow()

    def data_came(self, batch: Any) -> None:
        """A loader has given a batch, outside recorded steps; who finds steps does not look into it."""

    @guarded
    def gradients_zeroed(self) -> None:
        """Gradients were cleared."""
        self._finder.gradients_zeroed()
        self._follow()

    @guarded
    def backward_began(self) -> None:
        """A backward pass begins."""
        self._finder.backward_began()
        self._follow()

    @guarded
    def backward_ended(self) -> None:
        """A backward pass has ended; one inside another is part of that."""
        if not in_backward():
            self._finder.backward_ended()
            self._follow()

    @guarded
    def forward_began(self, module: Any) -> None:
        """An outermost module is called."""
        self._finder.forward_began(id(module), name_of(module))
        self._follow()

    @guarded
    def forward_ended(self, module: Any, duration_ns: int) -> None:
        """Its call has returned."""
        self._finder.forward_ended(id(module), duration_ns)

    @guarded
    def step(self, **_counts: Any) -> None:
        """The script tells that a step has ended."""
        self._finder.step_called()
        self._follow()

    def profiler_begins(self, profiler: Any) -> None:
        """The script profiles itself: its own affair, where profkit records nothing."""

    def profiler_ended(self, profiler: Any) -> None:
        """As above."""
