"""The places in torch that a capture watches, and their return to what they were.

Eight functions are wrapped while a capture looks for steps; each wrapper tells the watcher and calls what it wraps.
Under torch.compile the wrappers vanish: `is_compiling()` is a constant there. Standard library and torch only.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.profiler import profile as autograd_profile
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import Optimizer
from torch.utils.data.dataloader import _BaseDataLoaderIter

from .patches import Patches

if TYPE_CHECKING:
    from .listener import Listener

_MARK = "_profkit_wrapped"


class Hooks:
    """The wrappers of one process; `install` puts them in, `remove` takes every one out."""

    def __init__(self, watcher: Listener) -> None:
        self._watcher: Listener | None = watcher
        self._patches = Patches()
        self._undo: list[Callable[[], None]] = []  # of the steps of optimizers
        self.optimizer_depth = 0
        self.fetch_depth = 0
        self._how = "none"
        self._armed: list[Any] = []
        self._is_inside = False
        self._is_warning_off = False

    def install(self, again_for: Listener | None = None) -> None:
        """Wrap optimizer steps (of classes used from now on), loader, backward and the start of profilers."""
        self._watcher = watcher = self._watcher or again_for
        if watcher is None:
            return
        for owner, name, wrapped in (
            (Optimizer, "_patch_step_function", self._patching),
            (Optimizer, "zero_grad", self._zero_grad),
            (_BaseDataLoaderIter, "__next__", self._next),
            (torch.autograd, "backward", self._backward),
            (torch, "compile", self._compile),
            (autograd_profile, "_prepare_trace", self._prepare),
            (autograd_profile, "__exit__", self._exit),
        ):
            self._patches.wrap(owner, name, wrapped)
        for optimizer_class in _subclasses(Optimizer):  # session(): optimizers made before
            if getattr(optimizer_class.step, "hooked", False):
                watcher.optimizers_were_made()
                self._wrap_step_of(optimizer_class)

    def remove(self) -> None:
        """Put everything back; a wrapper that somebody else has wrapped or bound passes on without a word."""
        self.watch_forward("none")
        self._watcher = None
        self._patches.take_out()
        while self._undo:
            self._undo.pop()()

    def watch_steps(self, watcher: Listener) -> None:
        """After `remove`: tell the watcher of optimizers and their steps again, and of nothing else."""
        self._watcher = watcher
        self._patches.wrap(Optimizer, "_patch_step_function", self._patching)
        for optimizer_class in _subclasses(Optimizer):
            if getattr(optimizer_class.step, "hooked", False):
                self._wrap_step_of(optimizer_class)

    def watch_forward(self, how: str) -> None:
        """Watch calls of outermost modules: "none" of them, the next one ("once"), or "all".

        By a global hook that takes itself out at each outermost call. Not by replacing `Module.__call__`: on Python
        3.11 that made every call of a module slower for good, even after it was put back.
        """
        self._how = how
        if how == "none":
            self._disarm()
        elif not self._armed and not self._is_inside and self._watcher is not None:
            if not self._is_warning_off:
                _ignore_warning_of_hooks()
                self._is_warning_off = True
            self._armed.append(register_module_forward_pre_hook(self._forward_begins))

    def _disarm(self) -> None:
        while self._armed:
            self._armed.pop().remove()

    def _forward_begins(self, module: Any, _arguments: Any) -> None:
        watcher = self._watcher
        if torch.compiler.is_compiling() or watcher is None or threading.get_ident() != watcher.home_thread:
            return
        if torch.jit.is_tracing() or _is_compilers_own(module) or self.fetch_depth:  # a transform of the dataset's
            return
        self._disarm()
        self._is_inside = True
        watcher.forward_began(module)
        if self._how == "all":
            try:
                self._open_forward(module)
            except Exception as error:  # noqa: BLE001 - whatever kind of module this is, it is not to notice
                self._is_inside = False
                watcher.fail(error)
        else:
            self._is_inside = False

    def _open_forward(self, module: Any) -> None:
        phase = self._phase("forward")
        begun_ns = time.perf_counter_ns()

        def forward_ended(ended: Any, *_: Any) -> None:
            if ended is module:
                handle.remove()
                phase.__exit__(None, None, None)
                self._is_inside = False
                if self._watcher is not None:
                    self._watcher.forward_ended(module, time.perf_counter_ns() - begun_ns)
                self.watch_forward(self._how)

        try:
            handle = module.register_forward_hook(forward_ended, always_call=True)
        except RuntimeError:  # a ScriptModule takes none
            handle = register_module_forward_hook(forward_ended, always_call=True)
        phase.__enter__()

    def _phase(self, name: str, by_torch: str = "") -> AbstractContextManager[Any]:
        phase = self._watcher.phase if self._watcher is not None else None
        if by_torch and getattr(phase, "is_for_tool", False):  # torch's own range there does not reach a tool
            name = by_torch
        found: AbstractContextManager[Any] = phase(name) if phase is not None else nullcontext()
        return found

    # ------------------------------------------------------------------------------------------------ wrappers

    def _patching(self, original: Any) -> Any:
        def _patch_step_function(optimizer: Any) -> None:
            original(optimizer)
            if self._watcher is not None:
                self._watcher.optimizer_made()
                try:
                    self._wrap_step_of(type(optimizer))
                except Exception as error:  # noqa: BLE001 - whatever its class forbids
                    self._watcher.fail(error)

        return _patch_step_function

    def _wrap_step_of(self, optimizer_class: Any) -> None:
        if getattr(optimizer_class.step, _MARK, False):
            return
        inner = optimizer_class.step

        @functools.wraps(inner)
        def step(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or self._watcher is None:
                return inner(*args, **kwargs)
            self.optimizer_depth += 1
            try:
                with self._phase("optimizer"):
                    result = inner(*args, **kwargs)
            finally:
                self.optimizer_depth -= 1
            if self.optimizer_depth == 0 and self._watcher is not None:
                closure = args[1] if len(args) > 1 else kwargs.get("closure")
                self._watcher.optimizer_stepped(args[0], closure is not None)
            return result

        own = "step" in vars(optimizer_class)
        setattr(step, _MARK, True)
        optimizer_class.step = step

        def put_back() -> None:
            # A compiled function may guard on the class: to change it now would compile it anew.
            if has_compiled() or vars(optimizer_class).get("step") is not step:
                return
            if own:
                optimizer_class.step = inner
            else:
                del optimizer_class.step

        self._undo.append(put_back)

    def _zero_grad(self, original: Any) -> Any:
        def zero_grad(*args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling() and self._watcher is not None:
                self._watcher.gradients_zeroed()
            return original(*args, **kwargs)

        return zero_grad

    def _next(self, original: Any) -> Any:
        def __next__(iterator: Any) -> Any:  # noqa: N807
            watcher = self._watcher
            if watcher is None:
                return original(iterator)
            watcher.data_wanted(iterator)
            is_home = threading.get_ident() == watcher.home_thread
            self.fetch_depth += is_home
            try:
                if watcher.phase is not None:
                    with self._phase("data_loader", _name_of_fetch(iterator)):
                        return original(iterator)
                batch = original(iterator)
                if is_home:
                    watcher.data_came(batch)
                return batch
            finally:
                self.fetch_depth -= is_home

        return __next__

    def _backward(self, original: Any) -> Any:
        def backward(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or self._watcher is None:
                return original(*args, **kwargs)
            self._watcher.backward_began()
            with self._phase("backward"):
                result = original(*args, **kwargs)
            if self._watcher is not None:
                self._watcher.backward_ended()
            return result

        return backward

    def _compile(self, original: Any) -> Any:
        def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001
            made = original(*args, **kwargs)
            given = args[0] if args else kwargs.get("model")
            is_function = isinstance(given, (FunctionType, MethodType)) and given.__name__ != "_call_impl"
            return self._told_of_calls(made) if is_function and self._watcher is not None else made

        return compile

    def _told_of_calls(self, made: Any) -> Any:
        """A compiled function whose outermost calls the watcher hears of: a whole step may be inside."""

        @functools.wraps(made)
        def compiled(*args: Any, **kwargs: Any) -> Any:
            watcher = self._watcher
            if torch.compiler.is_compiling() or watcher is None or self._is_inside:
                return made(*args, **kwargs)
            if threading.get_ident() != watcher.home_thread:
                return made(*args, **kwargs)
            watcher.forward_began(compiled)
            self._is_inside, begun_ns = True, time.perf_counter_ns()
            try:
                return made(*args, **kwargs)
            finally:
                self._is_inside = False
                watcher.forward_ended(compiled, time.perf_counter_ns() - begun_ns)

        return compiled

    def _prepare(self, original: Any) -> Any:
        def _prepare_trace(profiler: Any) -> Any:
            if self._watcher is not None:
                self._watcher.profiler_begins(profiler)
            return original(profiler)

        return _prepare_trace

    def _exit(self, original: Any) -> Any:
        def __exit__(profiler: Any, *error: Any) -> Any:  # noqa: N807
            if self._watcher is not None:
                self._watcher.profiler_ended(profiler)
            return original(profiler, *error)

        return __exit__


def _name_of_fetch(iterator: Any) -> str:
    """What torch calls the range of a fetch, which says how the loader works; "" where this torch does not say."""
    name = getattr(iterator, "_profile_name", "")
    return name if isinstance(name, str) else ""


def _ignore_warning_of_hooks() -> None:
    """Silence torch, which warns of global hooks where a module is compiled.

    Not by `filterwarnings`: every warning that the script has shown once would be shown once more.
    """
    message = re.compile(".*when there are global hooks on modules", re.IGNORECASE)
    warnings.filters.insert(0, ("ignore", message, Warning, None, 0))  # type: ignore[attr-defined]


def _is_compilers_own(module: Any) -> bool:
    """Whether this is a graph that a backend of torch.compile runs as a module, inside what it compiled."""
    graph_module = getattr(sys.modules.get("torch.fx.graph_module"), "GraphModule", None)
    return graph_module is not None and isinstance(module, graph_module) and has_compiled()


def has_compiled() -> bool:
    """Whether torch.compile has compiled something in this process."""
    dynamo: Any = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"] or dynamo.counters["stats"])


def _subclasses(root: Any) -> list[Any]:
    found: list[Any] = []
    for child in root.__subclasses__():
        found += [child, *_subclasses(child)]
    return found
