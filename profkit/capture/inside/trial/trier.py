"""A run of `profkit try` inside the process: one change, steps found as a capture finds them, timed, and out.

Nothing that goes wrong here may reach the script: every entry is guarded, a failure ends the trial with a reason.
Runs in the tried process: standard library and torch only.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import Any, Final

import torch

from ...beside import files
from ...options import Options
from .. import clock, store
from ..exits import in_backward, leave
from ..listener import guarded
from ..probe.record import Row
from ..timed import TimedLoop
from .beside import Losses, Wrote
from .changes import change_of
from .changes.base import wrapped

LEAST: Final = 5
"""Steps after the settling ones without which a run tells nothing (chosen)."""
_SUFFIX: Final = ".tried"


class Trier(TimedLoop):
    """One trial in one process."""

    name = "trial"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._n_settling, self._n_steps = int(options.trial["n_settling"]), int(options.trial["n_steps"])
        self._change = change_of(str(options.trial["change"]), options.trial["how"])
        self._losses, self._wrote = Losses(), Wrote(options.folder)
        self._has_modules = False
        self._traits: dict[str, bool] = {}

    def begin(self) -> None:
        """Make the change, put the hooks in and wait for the steps."""
        self._wrote.begin()
        wrapped(torch, "save", self._saved)  # it opens its file in C++
        self._change.install()
        self._losses.install()
        self._hooks.install()
        self._follow()

    def _saved(self, original: Any, given: Any, place: Any = None, *args: Any, **kwargs: Any) -> Any:
        where = kwargs.get("f", place)
        if isinstance(where, (str, os.PathLike)):
            self._wrote.add(os.fspath(where))
        return original(given, *args, **kwargs) if place is None else original(given, place, *args, **kwargs)

    # ---------------------------------------------------------------------------------- what the hooks tell

    @guarded
    def optimizer_stepped(self, optimizer: Any, has_closure: bool) -> None:
        """An optimizer outside any other has made its step."""
        for kind in ("fused", "foreach"):
            self._traits.setdefault(f"has_{kind}", not getattr(optimizer, "defaults", {}).get(kind, True))
        self._change.stepped()
        super().optimizer_stepped(optimizer, has_closure)

    def _is_of_training(self) -> bool:
        return not self._has_home

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
        super().forward_began(module)

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

    # ------------------------------------------------------------------------------------------- boundaries

    def _follow(self) -> None:
        if self._has_modules or self.stage == "done":
            super()._follow()
        else:
            self._hooks.watch_forward("once")

    @guarded
    def _on_candidate(self, source: str, is_step: bool) -> None:
        if source == "restart":
            self._begin_again()
            return
        if clock.cuda_in_use() and self._is_last():
            torch.cuda.synchronize()  # what was queued belongs to these steps
        self._keep_row(time.perf_counter_ns(), n_losses=self._losses.count)
        if is_step and len(self._finder.step_rows()) >= self._n_settling + self._n_steps + 1:
            self._end("")
            leave(self.options.folder)
        if source != "loader":
            self._enter_forward()  # a fetch that comes first in this step takes over

    def _is_last(self) -> bool:
        """Whether the measured steps begin or end here, as far as is known before the boundary is placed."""
        n_steps = len(self._finder.step_rows())
        return n_steps in (self._n_settling, self._n_settling + 1) or n_steps >= self._n_settling + self._n_steps

    # ------------------------------------------------------------------------------------------------- ends

    @guarded
    def finish(self) -> None:
        """The process ends before all steps were seen: keep those that were."""
        if os.getpid() == self._pid and self.stage != "done":
            needed = self._n_settling + LEAST + 1
            is_short = len(self._finder.step_rows()) < needed
            self._end(self._why_too_few(f"a trial needs {needed} steps") if is_short else "")

    def _end(self, reason: str) -> None:
        self.stage = "done"
        self.phase = None
        self._wrote.end()
        self._hooks.remove()  # they lie around the losses' wrapper
        self._losses.remove()
        ends = self._finder.step_rows()
        is_known = bool(ends) and not reason
        facts = {
            **self._facts(reason),
            "n_threads": torch.get_num_threads(),
            "n_cores": store.cores(),
            "has_bf16": bool(store.has_bf16()),
            "traits": self._traits,
            "done": self._change.done,
            "why_not": "" if self._change.done else self._change.why_not,
            "wrote": self._wrote.paths,
            "steps": _steps(self._rows, ends) if is_known else [],
            "losses": [repr(value) for value in self._losses.values()] if is_known else [],
        }
        files().write_whole(self._folder / f"{store.rank()}-{self._pid}{_SUFFIX}", json.dumps(facts).encode())


def _steps(rows: Sequence[Row], ends: Sequence[int]) -> list[list[int]]:
    """The steps between boundaries, which are candidates by number: duration, parts, batches, losses until its end."""
    steps = (Row.joined(rows[first:last]) for first, last in zip(ends, ends[1:]))  # noqa: B905, RUF007 - Python 3.9
    return [[one.duration_ns, *one.parts_ns.values(), one.n_loads, one.n_losses] for one in steps]
