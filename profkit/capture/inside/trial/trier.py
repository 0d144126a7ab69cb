"""A run of `profkit try` inside the process: one change, steps found as a capture finds them, timed, and out.

Nothing that goes wrong here may reach the script: every entry is guarded, a failure ends the trial with a reason.
Runs in the tried process: standard library and torch only.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch

from ...command import raised, tell
from ...options import Options
from .. import clock, store
from ..exits import in_backward
from ..hooks import Hooks
from ..leaving import leave
from ..probe.parts import Parts
from ..seen import Listener, guarded, why_no_step
from ..steps import StepFinder, name_of
from .changes import change_of
from .changes.base import wrapped
from .losses import Losses
from .record import Row, written
from .wrote import Wrote

LEAST: Final = 5
"""Steps after the settling ones without which a run tells nothing (chosen)."""


class Trier(Listener):
    """One trial in one process."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.home_thread = threading.main_thread().ident or 0
        self.phase: Any = self._phase
        self._n_settling, self._n_steps = int(options.trial["n_settling"]), int(options.trial["n_steps"])
        self._folder = Path(options.folder)
        self._finder = StepFinder(step_on=options.step_on, is_safe=self._is_safe, on_candidate=self._on_candidate)
        self._hooks = Hooks(self)
        self._change = change_of(str(options.trial["change"]), options.trial["how"])
        self._losses, self._wrote = Losses(), Wrote(options.folder)
        self._has_home = self._is_done = self._has_modules = False
        self._pid = os.getpid()
        self._queue = (0, 0)
        self._traits: dict[str, bool] = {}
        self._begin_again()

    def _begin_again(self) -> None:
        self._parts = Parts()
        self._rows: list[Row] = []
        self._ended_ns = self._n_loads = 0

    def begin(self) -> None:
        """Make the change, put the hooks in and wait for the steps."""
        self._wrote.begin()
        wrapped(torch, "save", self._saved)  # it opens its file in C++
        self._change.install()
        self._losses.install()
        self._hooks.install()
        self._follow()

    def after_fork(self) -> None:
        """In a forked child: a worker is none of the trial's, a rank begins anew."""
        self._pid = os.getpid()
        self.home_thread, self._has_home = threading.get_ident(), False
        if not self._is_done:
            self._begin_again()
            self._finder.forget()

    def _saved(self, original: Any, given: Any, place: Any = None, *args: Any, **kwargs: Any) -> Any:
        where = kwargs.get("f", place)
        if isinstance(where, (str, os.PathLike)):
            self._wrote.add(os.fspath(where))
        return original(given, *args, **kwargs) if place is None else original(given, place, *args, **kwargs)

    # ---------------------------------------------------------------------------------- what the hooks tell

    @guarded
    def optimizer_stepped(self, optimizer: Any, has_closure: bool) -> None:
        """An optimizer outside any other has made its step; the thread of the first one is the one that trains."""
        if not self._has_home:
            self._has_home, self.home_thread = True, threading.get_ident()
        for kind in ("fused", "foreach"):
            self._traits.setdefault(f"has_{kind}", not getattr(optimizer, "defaults", {}).get(kind, True))
        self._change.stepped()
        self._finder.optimizer_stepped(id(optimizer), has_closure=has_closure)
        self._follow()

    @guarded
    def data_wanted(self, iterator: Any) -> None:
        """The loop asks for a batch."""
        if threading.get_ident() != self.home_thread or self._is_done:
            return
        if not self._has_home:  # that of the training, not of a validation later
            n_workers = int(getattr(iterator, "_num_workers", 0))
            self._queue = n_workers, n_workers * int(getattr(iterator, "_prefetch_factor", 0) or 0)
        self._finder.data_wanted()
        self._follow()

    @guarded
    def forward_began(self, module: Any) -> None:
        """An outermost module is called."""
        if (
            not self._has_modules
            and isinstance(module, torch.nn.Module)
            and next(module.parameters(), None) is not None
        ):
            self._has_modules = True
            self._traits["has_convolutions"] = any(isinstance(one, torch.nn.Conv2d) for one in module.modules())
            self._traits["has_fp64"] = any(one.dtype == torch.float64 for one in module.parameters())
            self._traits["is_ddp"] = "DistributedDataParallel" in type(module).__name__
            self._traits["is_fsdp"] = "FullyShardedDataParallel" in type(module).__name__
            self._change.first_forward(module)
        self._finder.forward_began(id(module), name_of(module))
        self._follow()

    @guarded
    def backward_began(self) -> None:
        """A backward pass begins."""
        self._change.backward_began()
        super().backward_began()

    @guarded
    def backward_ended(self) -> None:
        """A backward pass has ended."""
        if not in_backward():
            self._change.backward_ended()
        super().backward_ended()

    @guarded
    def step(self, **_counts: Any) -> None:
        """The script tells that a step has ended."""
        self._finder.step_called()
        self._follow()

    def profiler_begins(self, profiler: Any) -> None:
        """The script profiles itself: its own affair, in all runs alike."""

    def profiler_ended(self, profiler: Any) -> None:
        """As above."""

    def _phase(self, name: str) -> Any:
        return _Phase(self, name)

    @guarded
    def phase_began(self, name: str) -> None:
        """A fetch, backward or an optimizer's step begins: so does a part of the step."""
        if not self._is_here():
            return
        if name == "data_loader":
            self._parts.enter("input")
            self._n_loads += 1
        elif name == "backward" or (name == "optimizer" and self._hooks.optimizer_depth == 1):
            self._parts.enter(name)

    @guarded
    def phase_ended(self, name: str) -> None:
        """A fetch has ended: the host has the batch."""
        if name == "data_loader" and self._is_here():
            self._parts.enter("forward")

    def _is_here(self) -> bool:
        return not self._is_done and threading.get_ident() == self.home_thread and not in_backward()

    # ------------------------------------------------------------------------------------------- boundaries

    def _follow(self) -> None:
        how = self._finder.forward_watch if self._has_modules else "once"
        self._hooks.watch_forward("none" if self._is_done else how)

    def _is_safe(self) -> bool:
        is_between = threading.get_ident() == self.home_thread and self._hooks.optimizer_depth == 0
        return is_between and not in_backward() and not clock.is_capturing_graph()

    @guarded
    def _on_candidate(self, source: str, is_step: bool) -> None:
        if source == "restart":
            self._begin_again()
            return
        if clock.cuda_in_use() and self._is_last():
            torch.cuda.synchronize()  # what was queued belongs to these steps
        now_ns = time.perf_counter_ns()
        parts_ns = self._parts.taken(now_ns)
        if self._ended_ns:
            self._rows.append(
                Row(
                    duration_ns=now_ns - self._ended_ns,
                    parts_ns=parts_ns,
                    n_loads=self._n_loads,
                    n_losses=self._losses.count,
                )
            )
        self._ended_ns, self._n_loads = now_ns, 0
        if is_step and len(self._finder.step_rows()) >= self._n_settling + self._n_steps + 1:
            self._end("")
            leave(self.options.folder)
        if source != "loader":
            self._parts.enter("forward")  # a fetch that comes first in this step takes over

    def _is_last(self) -> bool:
        """Whether the measured steps begin or end here, as far as is known before the boundary is placed."""
        n_steps = len(self._finder.step_rows())
        return n_steps in (self._n_settling, self._n_settling + 1) or n_steps >= self._n_settling + self._n_steps

    # ------------------------------------------------------------------------------------------------- ends

    @guarded
    def finish(self) -> None:
        """The process ends before all steps were seen: keep those that were."""
        if os.getpid() == self._pid and not self._is_done:
            ends = self._finder.step_rows()
            n_seen = len(ends) or self._finder.n_candidates
            needed = self._n_settling + LEAST + 1
            is_short = len(ends) < needed
            few = f"a trial needs {needed} steps, and the run ended after {n_seen}"
            self._end((few if n_seen else why_no_step(self._finder)) if is_short else "")

    def fail(self, error: BaseException) -> None:
        """Something of the trial itself went wrong: say so once, stop it, let the script run on."""
        reason = f"the trial failed: {raised(error)}"
        tell(f"{reason}; the script runs on")
        with suppress(Exception):
            self._end(reason)
        self._is_done = True

    def _end(self, reason: str) -> None:
        self._is_done = True
        self.phase = None
        self._wrote.end()
        self._losses.remove()
        self._hooks.remove()
        ends = self._finder.step_rows()
        is_known = bool(ends) and not reason
        facts = {
            "reason": reason,
            "pid": self._pid,
            "rank": store.rank(),
            "world_size": store.world_size(),
            "n_workers": self._queue[0],
            "n_queued": self._queue[1],
            "n_threads": torch.get_num_threads(),
            "n_cores": _cores(),
            "has_bf16": bool(store.has_bf16()),
            "uses_cuda": clock.cuda_in_use(),
            "traits": self._traits,
            "step_source": self._finder.described() if self._finder.n_candidates else "",
            "torch": str(torch.__version__),
            "done": self._change.done,
            "why_not": "" if self._change.done else self._change.why_not,
            "wrote": self._wrote.paths,
            "steps": _steps(self._rows, ends) if is_known else [],
            "losses": [repr(value) for value in self._losses.values()] if is_known else [],
        }
        written(self._folder, facts, f"{store.rank()}-{self._pid}")


def _steps(rows: Sequence[Row], ends: Sequence[int]) -> list[list[int]]:
    """The steps between boundaries, which are candidates by number: duration, parts, batches, losses until its end."""
    found = []
    for first, last in zip(ends, ends[1:]):  # noqa: B905, RUF007 - Python 3.9
        pieces = rows[first:last]
        parts = [sum(piece.parts_ns[name] for piece in pieces) for name in pieces[0].parts_ns]
        duration_ns = sum(piece.duration_ns for piece in pieces)
        found.append([duration_ns, *parts, sum(piece.n_loads for piece in pieces), pieces[-1].n_losses])
    return found


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Phase:
    """A part of the step, as the hooks open it."""

    def __init__(self, trier: Trier, name: str) -> None:
        self._trier, self._name = trier, name

    def __enter__(self) -> None:
        self._trier.phase_began(self._name)

    def __exit__(self, *_: object) -> None:
        self._trier.phase_ended(self._name)
