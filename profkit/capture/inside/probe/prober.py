"""The probe inside the process: it finds the steps as a capture does, delays some of them, and times all of them.

Nothing that goes wrong here may reach the script: every entry is guarded, a failure ends the probe with a reason.
Runs in the probed process: standard library and torch only.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

import torch

from ...command import raised, tell
from ...options import Options
from .. import clock, store
from ..exits import WaysOut, in_backward
from ..hooks import Hooks
from ..record.ranges import CopyWatch
from ..seen import Listener, guarded, why_no_step
from ..steps import StepFinder, name_of
from . import agreed
from .device import CollectiveWatch, Spinner
from .parts import Parts
from .plan import (
    AFTER,
    BEFORE,
    DEVICE,
    HOST,
    OVERRUN,
    SETTLING,
    SHORTEST_STEP_NS,
    Plan,
    Treatment,
    doses_for,
    ranks_of,
    steps_for,
)
from .record import Row, written
from .workers import Orders, Worker, slept

_LEFT = "the process left without its exit handlers (os._exit, or killed)"
_NO_PLAN = "the probe needs {needed} steps before the first delay, and the run ended after {seen}"


class Prober(Listener):
    """One probe in one process: it is told what the training loop does, and delays it by plan."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.home_thread = threading.main_thread().ident or 0
        self.phase: Any = self._phase
        self.stage = "before"
        self._folder = Path(options.folder)
        self._finder = StepFinder(step_on=options.step_on, is_safe=self._is_safe, on_candidate=self._on_candidate)
        self._hooks = Hooks(self)
        self._ways_out = WaysOut(self.finish)
        self._has_home = False
        self._copies, self._collectives = CopyWatch(), CollectiveWatch()
        self._spinner = Spinner()
        self._orders, self._worker = Orders(self._folder), Worker(self._folder)
        self._pid = os.getpid()
        self._queue = (0, 0)
        self._begin_again()

    def _begin_again(self) -> None:
        """Steps are counted anew: what was seen of another loop before goes."""
        self._parts = Parts()
        self._rows: list[Row] = []
        self._ended_ns = 0
        self._n_loads = 0
        self._plan: Optional[Plan] = None  # noqa: UP045 - Python 3.9
        self._n_orders = 0
        self._drawn: Optional[Treatment] = None  # noqa: UP045
        self._due: Optional[Treatment] = None  # noqa: UP045
        self._delayed_ns = self._given_ns = self._began_ns = self._announced_ns = 0

    def begin(self) -> None:
        """Put the hooks in and wait for the first steps."""
        self._worker.install()
        self._hooks.install()
        self._follow()

    def after_fork(self) -> None:
        """In a forked child: a worker has the fetchers it needs, a rank begins anew."""
        self._orders = Orders(self._folder)
        self._ways_out = WaysOut(self.finish)
        self._copies.end()
        self._collectives.end()
        self._pid = os.getpid()
        self.home_thread, self._has_home = threading.get_ident(), False
        if self.stage != "done":
            self.stage = "before"
            self._begin_again()
            self._finder.forget()

    # ---------------------------------------------------------------------------------- what the hooks tell

    @guarded
    def optimizer_stepped(self, optimizer: Any, has_closure: bool) -> None:
        """An optimizer outside any other has made its step; the thread of the first one is the one that trains."""
        if not self._has_home:
            self._has_home, self.home_thread = True, threading.get_ident()
            self._ways_out.guard()
        self._finder.optimizer_stepped(id(optimizer), has_closure=has_closure)
        self._follow()

    @guarded
    def data_wanted(self, iterator: Any) -> None:
        """The loop asks for a batch."""
        if threading.get_ident() != self.home_thread or self.stage == "done":
            return
        if self.stage == "before":
            n_workers = int(getattr(iterator, "_num_workers", 0))
            self._queue = n_workers, n_workers * int(getattr(iterator, "_prefetch_factor", 0) or 0)
        self._finder.data_wanted()
        self._follow()

    @guarded
    def forward_began(self, module: Any) -> None:
        """An outermost module is called."""
        self._finder.forward_began(id(module), name_of(module))
        self._follow()

    @guarded
    def step(self, **_counts: Any) -> None:
        """The script tells that a step has ended."""
        self._finder.step_called()
        self._follow()

    def profiler_begins(self, profiler: Any) -> None:
        """The script profiles itself: its own affair, and its steps are slower than without."""

    def profiler_ended(self, profiler: Any) -> None:
        """As above."""

    def _phase(self, name: str) -> Any:
        return _Phase(self, name)

    @guarded
    def phase_began(self, name: str) -> None:
        """A fetch, backward, an optimizer's step or a copy begins: a part of the step begins, and its place is here."""
        if not self._is_here():
            return
        if name == "data_loader":
            self._parts.enter("input")
            self._n_loads += 1
            if not self._queue[0]:
                self._deliver("input")
        elif name == "backward":
            self._parts.enter("backward")
            self._deliver("backward")
        elif name == "optimizer" and self._hooks.optimizer_depth == 1:
            self._parts.enter("optimizer")
            self._deliver("optimizer")
        elif name == "h2d":
            self._deliver("copy")

    @guarded
    def phase_ended(self, name: str) -> None:
        """A fetch has ended: the host has the batch."""
        if name == "data_loader" and self._is_here():
            self._enter_forward()

    def _is_here(self) -> bool:
        return self.stage != "done" and threading.get_ident() == self.home_thread and not in_backward()

    # ----------------------------------------------------------------------------------------------- delays

    def _enter_forward(self) -> None:
        self._parts.enter("forward")
        for place in ("forward", f"rank{store.rank()}", "device"):
            self._deliver(place)

    def _deliver(self, place: str) -> None:
        """Delay here and now, if the step's treatment is of this place."""
        if self._due is None or self._due[0] != place or self._plan is None:
            return
        delay_ns = self._plan.doses_ns[self._due[1]]
        self._due = None
        if place in DEVICE:
            self._delayed_ns = self._spinner.spin(delay_ns)
            return
        self._delayed_ns = slept(delay_ns)
        self._given_ns += self._delayed_ns - delay_ns
        self._parts.spare(self._delayed_ns)

    def _draw(self, number: int) -> None:
        """Take the treatment of the step that begins now; an order to the workers goes out at once."""
        self._drawn = self._due = None
        self._delayed_ns = 0
        plan = self._plan
        if plan is None or (drawn := plan.treatment(number)) is None:
            return
        elapsed_ns = time.perf_counter_ns() - self._began_ns
        is_alone = store.world_size() == 1  # ranks must all do the same
        if (
            is_alone
            and number
            and self._given_ns + plan.doses_ns[drawn[1]] > plan.cost * elapsed_ns / number * plan.n_steps
        ):
            return  # steps are shorter, or sleeps longer, than they were: all that may be delayed has been
        self._drawn = self._due = drawn
        self._given_ns += plan.doses_ns[drawn[1]]
        if drawn[0] == "input" and self._queue[0]:
            self._n_orders += 1
            self._orders.give(self._n_orders, plan.doses_ns[drawn[1]])

    def _collective_begins(self) -> None:
        if self._is_here():
            self._deliver("comm")

    # ------------------------------------------------------------------------------------------- boundaries

    def _follow(self) -> None:
        self._hooks.watch_forward("none" if self.stage == "done" else self._finder.forward_watch)

    def _is_safe(self) -> bool:
        is_between = threading.get_ident() == self.home_thread and self._hooks.optimizer_depth == 0
        return is_between and not in_backward() and not clock.is_capturing_graph()

    @guarded
    def _on_candidate(self, source: str, is_step: bool) -> None:
        now_ns = time.perf_counter_ns()
        if source == "restart":
            self._begin_again()
            self.stage = "before"
            return
        self._keep_row(now_ns)
        if self.stage == "before" and is_step:
            self._consider_start()
        if self.stage == "probe":
            self._go_on()
        if self.stage != "done" and source != "loader":
            self._enter_forward()  # a fetch that comes first in this step takes over

    def _keep_row(self, now_ns: int) -> None:
        """The step that ends now, as it was."""
        if self._ended_ns:
            place, dose = self._drawn or (None, None)
            self._rows.append(
                Row(
                    duration_ns=now_ns - self._ended_ns,
                    parts_ns=self._parts.taken(now_ns),
                    n_loads=self._n_loads,
                    place=place,
                    dose=dose,
                    delayed_ns=self._delayed_ns,
                )
            )
        else:
            self._parts.taken(now_ns)
        self._ended_ns, self._n_loads = now_ns, 0

    def _consider_start(self) -> None:
        """Fix the plan once enough untouched steps are timed; their boundaries are known to be steps only now."""
        if clock.cuda_in_use():
            self._spinner.calibrate()
        ends = self._finder.step_rows()
        if len(ends) < SETTLING + BEFORE + 1:
            return
        merged = [Row.joined(self._rows[first:last]) for first, last in zip(ends, ends[1:])]  # noqa: B905, RUF007
        self._rows = merged[-BEFORE:]
        typical_ns = sorted(row.duration_ns for row in self._rows)[BEFORE // 2]
        if typical_ns < SHORTEST_STEP_NS:
            self._end(f"steps take {typical_ns / 1e6:.2f} ms; delays are told from noise in steps of 1 ms or more")
            return
        self._finder.freeze()
        asked = self.options.probe
        mine = Plan(
            places=tuple(place for place in self._reached() if not asked["places"] or place in asked["places"]),
            doses_ns=doses_for(typical_ns),
            n_steps=int(asked["n_steps"]) or steps_for(typical_ns),
            seed=int(asked["seed"]),
            cost=float(asked["cost"]),
            step_ns=typical_ns,
        )
        if not mine.places:
            self._end(f"none of the places asked for is in these steps ({', '.join(self._reached())} are)")
            return
        written(self._folder, self._facts(_LEFT), None, [])  # what there is to say if it does
        self._plan = agreed.plan_of_all(self._folder, mine, store.world_size())
        self.stage, self._began_ns = "probe", time.perf_counter_ns()
        self._announce(self._plan)
        if self._queue[0]:
            self._orders.open()
        if "copy" in self._plan.places:
            self._copies.begin(self._phase)
        if "comm" in self._plan.places:
            self._collectives.begin(self._collective_begins)

    def _announce(self, plan: Plan) -> None:
        """Say how long the probed steps will take."""
        self._announced_ns = round((plan.n_steps * (1 + plan.most_cost) + AFTER) * plan.step_ns)
        if store.rank() == 0:
            step, whole = plan.step_ns / 1e6, self._announced_ns / 1e9
            tell(
                f"{plan.n_steps} steps of {step:.3g} ms are probed: about {whole:.3g} s, at most"
                f" {OVERRUN * whole:.3g} s; the script runs on after them"
            )

    def _is_overdue(self) -> bool:
        """Whether it takes far longer than announced; ranks stay together, whatever it takes."""
        spent_ns = time.perf_counter_ns() - self._began_ns
        return store.world_size() == 1 and spent_ns > OVERRUN * self._announced_ns

    def _reached(self) -> tuple[str, ...]:
        """The places that the untouched steps came by, and those of devices and ranks that there are."""
        n_loads = sum(row.n_loads for row in self._rows)
        found = [
            place for place in HOST if (n_loads if place == "input" else any(row.parts_ns[place] for row in self._rows))
        ]
        if clock.cuda_in_use() and self._spinner.is_ready:
            found += ["device", "copy", *(["comm"] if store.world_size() > 1 else [])]
        return (*found, *(f"rank{rank}" for rank in ranks_of(store.world_size())))

    def _go_on(self) -> None:
        plan = self._plan
        if plan is None:
            return
        if len(self._rows) == BEFORE + plan.n_steps + AFTER or self._is_overdue():
            self._end("")
            return
        self._draw(len(self._rows) - BEFORE)

    # ------------------------------------------------------------------------------------------------- ends

    @guarded
    def finish(self) -> None:
        """The process ends: keep what was measured."""
        if os.getpid() != self._pid or self.stage == "done":
            return
        if self._plan is not None:
            self._end("")
        else:
            n_seen = len(self._finder.step_rows()) or self._finder.n_candidates
            needed = SETTLING + BEFORE + 1
            self._end(_NO_PLAN.format(needed=needed, seen=n_seen) if n_seen else why_no_step(self._finder))

    def fail(self, error: BaseException) -> None:
        """Something of the probe itself went wrong: say so once, stop it, let the script run on."""
        reason = f"the probe failed: {raised(error)}"
        tell(f"{reason}; the script runs on")
        with suppress(Exception):
            self._end(reason)
        self.stage = "done"

    def _end(self, reason: str) -> None:
        self.stage = "done"
        self._due, self.phase = None, None
        self._copies.end()
        self._collectives.end()
        self._orders.shut()
        self._worker.remove()
        self._hooks.remove()
        self._ways_out.unguard()
        written(self._folder, self._facts(reason), self._plan, self._rows)

    def _facts(self, reason: str) -> dict[str, Any]:
        """What this process is, and why it was not probed, if it was not."""
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

    def __init__(self, prober: Prober, name: str) -> None:
        self._prober, self._name = prober, name

    def __enter__(self) -> None:
        self._prober.phase_began(self._name)

    def __exit__(self, *_: object) -> None:
        self._prober.phase_ended(self._name)
