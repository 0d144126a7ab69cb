"""The probe inside the process: it finds the steps as a capture does, delays some of them, and times all of them.

Nothing that goes wrong here may reach the script: every entry is guarded, a failure ends the probe with a reason.
Runs in the probed process: standard library and torch only.
"""

from __future__ import annotations

import os
import time
from typing import Any, Final

from ...command import tell
from ...options import Options
from .. import clock, store
from ..exits import WaysOut
from ..listener import guarded
from ..record.ranges import CopyWatch
from ..timed import TimedLoop
from .device import CollectiveWatch, Spinner
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
    plan_of_all,
    ranks_of,
    steps_for,
)
from .record import Row, written
from .workers import Orders, Worker, slept

_LEFT: Final = "the process left without its exit handlers (os._exit, or killed)"


class Prober(TimedLoop):
    """One probe in one process: it is told what the training loop does, and delays it by plan."""

    name = "probe"

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._ways_out = WaysOut(self.finish)
        self._copies, self._collectives = CopyWatch(), CollectiveWatch()
        self._spinner = Spinner()
        self._orders, self._worker = Orders(self._folder), Worker(self._folder)

    def _begin_again(self) -> None:
        super()._begin_again()
        self._plan: Plan | None = None
        self._n_orders = 0
        self._drawn: Treatment | None = None
        self._due: Treatment | None = None
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
        super().after_fork()

    @guarded
    def optimizer_stepped(self, optimizer: Any, has_closure: bool) -> None:
        """An optimizer outside any other has made its step."""
        if not self._has_home:
            self._ways_out.guard()
        super().optimizer_stepped(optimizer, has_closure)

    # ----------------------------------------------------------------------------------------------- delays

    def _enter_forward(self) -> None:
        super()._enter_forward()
        for place in ("forward", f"rank{store.rank()}", "device"):
            self._come_by(place)

    def _come_by(self, place: str) -> None:
        """Delay here and now, if the step's treatment is of this place; workers have their orders."""
        if self._due is None or self._due[0] != place or self._plan is None or (place == "input" and self._queue[0]):
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
            self._come_by("comm")

    # ------------------------------------------------------------------------------------------- boundaries

    @guarded
    def _on_candidate(self, source: str, is_step: bool) -> None:
        now_ns = time.perf_counter_ns()
        if source == "restart":
            self._begin_again()
            self.stage = "before"
            return
        place, dose = self._drawn or (None, None)
        self._keep_row(now_ns, place=place, dose=dose, delayed_ns=self._delayed_ns)
        if self.stage == "before" and is_step:
            self._consider_start()
        if self.stage == "probe":
            self._go_on()
        if self.stage != "done" and source != "loader":
            self._enter_forward()  # a fetch that comes first in this step takes over

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
        self._plan = plan_of_all(self._folder, mine, store.world_size())
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
            self._end(self._why_too_few(f"the probe needs {SETTLING + BEFORE + 1} steps before the first delay"))

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
