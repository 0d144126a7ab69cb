"""A training loop whose steps are timed by their parts, with nothing recorded: what a probe and a trial have in common.

Nothing that goes wrong here may reach the script: every entry is guarded, a failure ends it with a reason.
Runs in the traced process: standard library and torch only.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch

from ..command import raised, tell
from ..options import Options
from . import clock, store
from .exits import in_backward
from .listener import Listener, guarded
from .probe.plan import HOST
from .probe.record import Parts, Row
from .seen import why_no_step

_PLACES: Final = {"data_loader": "input", "backward": "backward", "optimizer": "optimizer", "h2d": "copy"}
"""What begins with each phase of the hooks."""


class TimedLoop(Listener):
    """Counts steps from `_begin_again` on: `_rows` has one for each boundary, `stage` is "done" at the end."""

    name = ""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.phase = self._phase
        self.stage = "before"
        self._folder = Path(options.folder)
        self._queue = (0, 0)
        self._begin_again()

    def _begin_again(self) -> None:
        """Steps are counted anew: what was seen of another loop before goes."""
        self._parts = Parts()
        self._rows: list[Row] = []
        self._ended_ns = self._n_loads = 0

    def after_fork(self) -> None:
        """In a forked child: a worker needs no more than the hooks it has, a rank begins anew."""
        self._pid = os.getpid()
        self.home_thread, self._has_home = threading.get_ident(), False
        if self.stage != "done":
            self.stage = "before"
            self._begin_again()
            self._finder.forget()

    @guarded
    def data_wanted(self, iterator: Any) -> None:
        """The loop asks for a batch."""
        if threading.get_ident() != self.home_thread or self.stage == "done":
            return
        if self._is_of_training():
            n_workers = int(getattr(iterator, "_num_workers", 0))
            self._queue = n_workers, n_workers * int(getattr(iterator, "_prefetch_factor", 0) or 0)
        super().data_wanted(iterator)

    def _is_of_training(self) -> bool:
        """Whether a fetch now is of the loader whose workers count, not of a validation's."""
        return self.stage == "before"

    def _phase(self, name: str) -> Any:
        return _Phase(self, name)

    @guarded
    def phase_began(self, name: str) -> None:
        """A fetch, backward, an optimizer's step or a copy begins: a part of the step begins, and its place is here."""
        is_inner = name == "optimizer" and self._hooks.optimizer_depth != 1
        if name not in _PLACES or is_inner or not self._is_here():
            return
        if name == "data_loader":
            self._n_loads += 1
        if _PLACES[name] in HOST:
            self._parts.enter(_PLACES[name])
        self._come_by(_PLACES[name])

    @guarded
    def phase_ended(self, name: str) -> None:
        """A fetch has ended: the host has the batch."""
        if name == "data_loader" and self._is_here():
            self._enter_forward()

    def _come_by(self, place: str) -> None:
        """The step that runs comes by this place."""

    def _enter_forward(self) -> None:
        self._parts.enter("forward")

    def _is_here(self) -> bool:
        return self.stage != "done" and threading.get_ident() == self.home_thread and not in_backward()

    def _follow(self) -> None:
        if self.stage == "done":
            self._hooks.watch_forward("none")
        else:
            super()._follow()

    def _keep_row(self, now_ns: int, **of_step: Any) -> None:
        """The step that ends now, as it was; `of_step`: more fields of its row."""
        parts_ns = self._parts.taken(now_ns)
        if self._ended_ns:
            self._rows.append(Row(now_ns - self._ended_ns, parts_ns, self._n_loads, **of_step))
        self._ended_ns, self._n_loads = now_ns, 0

    def fail(self, error: BaseException) -> None:
        """Something of the probe or trial itself went wrong: say so once, stop it, let the script run on."""
        reason = f"the {self.name} failed: {raised(error)}"
        tell(f"{reason}; the script runs on")
        with suppress(Exception):
            self._end(reason)
        self.stage = "done"

    def _end(self, reason: str) -> None:
        """Unhook everything and leave a record."""
        raise NotImplementedError

    def _why_too_few(self, needs: str) -> str:
        """That the run ended after too few steps for what it needs, or why it came to none."""
        n_seen = len(self._finder.step_rows()) or self._finder.n_candidates
        return f"{needs}, and the run ended after {n_seen}" if n_seen else why_no_step(self._finder)

    def _facts(self, reason: str) -> dict[str, Any]:
        """What this process is, and why nothing was measured, if nothing was."""
        return {
            "reason": reason,
            "pid": self._pid,
            "rank": store.rank(),
            "world_size": store.world_size(),
            "n_workers": self._queue[0],
            "n_queued": self._queue[1],
            "uses_cuda": clock.cuda_in_use(),
            "step_source": self._finder.described() if self._finder.n_candidates else "",
            "torch": str(torch.__version__),
        }


class _Phase:
    """A part of the step, as the hooks open it."""

    def __init__(self, loop: TimedLoop, name: str) -> None:
        self._loop, self._name = loop, name

    def __enter__(self) -> None:
        self._loop.phase_began(self._name)

    def __exit__(self, *_: object) -> None:
        self._loop.phase_ended(self._name)
