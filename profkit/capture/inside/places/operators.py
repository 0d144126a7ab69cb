"""Lines of operators written as signs: `x * 2` calls no Python function, so the profiler sees no line that calls it.

While steps are recorded with stacks, a function mode that only passes calls on is one such function around each
operator. Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from typing import Any

import torch
from torch.autograd.profiler import record_function
from torch.overrides import TorchFunctionMode

from .equal_matrices import EqualMatrices
from .no_target import NoTarget
from .same_inputs import SameInputs
from .same_steps import SameSteps
from .zero_rows import ZeroRows


class _PassOn(TorchFunctionMode):  # type: ignore[misc]
    def __init__(self, *, is_sampled: bool) -> None:
        super().__init__()
        self.is_on, self.is_sampled = True, is_sampled
        self.same = SameInputs()
        self.steps = SameSteps()
        self.zero = ZeroRows()
        self.no_target = NoTarget()
        self.equal = EqualMatrices()

    def __torch_function__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not self.is_on:
            return func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if self.is_sampled:  # what takes long of many calls is left out
            result = func(*args, **(kwargs or {}))
        else:
            result = self._compared(func, name, args, kwargs or {})
            self.zero.watch(result, name, args)
        self.no_target.watch(result, name, args, kwargs or {})
        self.equal.watch(result, name, args)
        return result

    def _compared(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """What the operator makes of these, compared with the same step and with the one before."""
        steps: Any = self.steps
        steps.call, mark = None, ""
        if not args or type(args[0]) is not torch.Tensor or not args[0].requires_grad:  # most have a gradient
            mark = steps.ask(name, args, kwargs)
        if not mark:
            result = self.same.call(func, args, kwargs)
            if steps.call is not None:
                steps.note(result)
            return result
        with record_function(mark):
            result = self.same.call(func, args, kwargs)
            if steps.call is not None and (belied := steps.note(result)):
                with record_function(belied):
                    pass
        return result


class SignLines:
    """The mode, on this thread from `begin` to `end`; nothing where modes of the script's own, or a compiler, are used.

    Modes are a stack of each thread, and a script that leaves a block takes off what lies on top: so ours goes on only
    where the stack is empty, and comes off from under whatever the script has put on since.
    """

    def __init__(self) -> None:
        self._mode: _PassOn | None = None
        self._thread = 0

    def begin(self, *, is_sampled: bool = False) -> None:
        """Put the mode on, where that changes nothing for the script."""
        from torch.overrides import _len_torch_function_stack

        if self._mode is None and _len_torch_function_stack() == 0 and not _has_compiled():
            self._thread, self._mode = threading.get_ident(), _PassOn(is_sampled=is_sampled)
            self._mode.__enter__()

    def step(self) -> None:
        """A step ends and another one begins."""
        if self._mode is not None:
            self._mode.same.forget()
            self._mode.steps.step()
            self._mode.equal.forget()

    def end(self) -> None:
        """Take it off. From another thread that is not possible: there it stays, and passes on."""
        mode, self._mode = self._mode, None
        if mode is None:
            return
        mode.is_on = False
        mode.zero.end()
        mode.no_target.end()
        mode.same.forget()
        mode.steps.forget()
        mode.equal.forget()
        if threading.get_ident() != self._thread:
            return
        from torch.overrides import _len_torch_function_stack, _pop_mode, _push_mode

        above = []
        while _len_torch_function_stack():
            top = _pop_mode()
            if top is mode:
                break
            above.append(top)
        for one in reversed(above):
            _push_mode(one)


def _has_compiled() -> bool:
    """Whether torch.compile has compiled a function in this process: it would compile it again under another mode.

    Where its own count of that cannot be read, it may have.
    """
    if "torch._dynamo" not in sys.modules:
        return False
    with suppress(Exception):
        counts = sys.modules["torch._dynamo.utils"].counters  # a script may clear them
        seen = sys.modules["torch._dynamo.convert_frame"].input_codes.seen
        return bool(seen) or any(any(each.values()) for each in counts.values())
    return True
