"""Whether another thread of Python keeps the lock (GIL) from the training thread, as profkit capture saw it.

Part of what `scheduling` answers.
"""

from __future__ import annotations

from typing import Final

import msgspec

from profkit.analyzers.base import Scope, scope_of
from profkit.findings.patterns import GIL
from profkit.model.documents.rank_report import TableView
from profkit.model.finding import Evidence, Finding
from profkit.timeline import Facts
from profkit.timeline.code.helpers import PythonThread, python_threads
from profkit.timeline.scheduled import ranks_here, usable_cores
from profkit.units import format_fraction

_CONFIDENCE: Final = 0.85
"""Three readings bound it; none of them is a wait for the lock itself. Chosen."""
_MOST_SHOWN: Final = 20
_WORTH_A_NAME: Final = 0.1
"""Of what all of them ran, from which a thread is named. Chosen."""


class Threads(msgspec.Struct, frozen=True, kw_only=True):
    """The other threads of Python, the one that ran longest first; times in ns over the recorded steps."""

    scope: Scope
    span_ns: int
    threads: tuple[PythonThread, ...]
    holding: tuple[PythonThread, ...]
    """Those that hold the lock while others want it."""
    slept_ns: int
    """The training thread, but for waits for data and ranks, outside innermost operators."""
    idle_ns: int = 0
    """The training thread did not run, for whatever reason."""
    longer: float = 1.0
    """Length of a step without the profiler over that of a recorded one, at least 1: with it, threads ask for the lock at
    other moments."""
    filled: float = 0.0
    """Share (0-1) of the time in operators that run on a thread for each core; 0 where they leave a core free."""

    @property
    def lost_share(self) -> float:
        """Share (0-1) of the recorded time that the training thread lost by the lock."""
        return self._of_holders(self.slept_ns)

    def beside_share(self, waited_ns: int) -> float:
        """The same of its waits for a core, which these threads take as well, and of operators' for theirs.

        Where operators have a thread for each core, one of these waits while a holder runs.
        """
        lost = self._of_holders(self.slept_ns + waited_ns)
        return lost + self.filled * (self._run_ns / self.span_ns - lost) - self.lost_share

    @property
    def most_share(self) -> float:
        """The most (0-1) that it can have lost: the time in which these threads run or are ready to run.

        Of that not what the training thread runs itself, unless operators' threads wait for each other, which counts as
        running. All that a step takes more without the profiler may be theirs.
        """
        wanted = sum(one.run_ns + one.wait_ns for one in self.holding)
        recorded = min(wanted if self.filled else min(wanted, self.idle_ns), self.span_ns) / self.span_ns
        return 1 - (1 - recorded) / self.longer

    @property
    def _run_ns(self) -> int:
        return min(sum(one.run_ns for one in self.holding), self.span_ns)

    def _of_holders(self, ns: int) -> float:
        return min(ns, self._run_ns) / self.span_ns


def threads_of(facts: Facts, span: int, run: int, wait: int) -> Threads | None:
    """By how long (ns) the training thread ran and waited of a span; None where the capture saw no other thread."""
    threads = python_threads(facts.trace)
    if not threads:
        return None
    holding = tuple(one for one in threads if one.held_share >= GIL.limit("held"))
    asleep = (span - run - wait) / span
    slept = min(asleep - _elsewhere(facts), _outside(facts))
    return Threads(
        scope=scope_of(facts),
        span_ns=span,
        threads=threads,
        holding=holding,
        slept_ns=round(max(slept, 0.0) * span),
        idle_ns=max(round(min(span - run, span if facts.main_device is None else _outside(facts) * span)), 0),
        longer=_longer(facts),
        filled=_filled(facts),
    )


def _longer(facts: Facts) -> float:
    plain_ns, with_ns = facts.trace.meta.unprofiled_step_ns, facts.trace.meta.profiled_step_ns or facts.step_ns
    return max(plain_ns / with_ns, 1.0) if plain_ns and with_ns else 1.0


def _filled(facts: Facts) -> float:
    """The share of the window in operators, of a CPU whose operators may run on a thread for each core or more."""
    told = facts.trace.meta.scheduling
    cores, threads = usable_cores(told), told.get("threads", 1)
    is_full = cores is not None and threads > 1 and threads * ranks_here(told) >= cores
    return facts.budget.fraction("compute") if is_full and facts.cpu is not None else 0.0


def _elsewhere(facts: Facts) -> float:
    """The share of the window in which the training thread sleeps for something else: data, other ranks, the device."""
    parts = ("idle_data", "comm_exposed", *(() if facts.cpu is not None else ("idle_sync",)))
    return sum(facts.budget.fraction(name) for name in parts)


def _outside(facts: Facts) -> float:
    """The most (0-1) that can be lost: of a CPU the time outside innermost operators, of a GPU what the host costs."""
    whole = max(facts.window_ns, 1)
    if facts.main_device is not None:
        return facts.main_device.gains.all_host_ns / whole
    return 1 - (facts.cpu.operators.total_ns / whole if facts.cpu is not None else 0.0)


def judge_threads(result: Threads, waited_ns: int = 0) -> tuple[Finding, ...]:
    """`host.gil` where the lock was kept for long enough; `waited_ns` waited the training thread for cores of this job's."""
    share, scope = result.lost_share, result.scope
    if share < GIL.limit("window"):
        return ()
    beside, first = result.beside_share(waited_ns), result.holding[0]
    waiter = "it, or another thread of its operators," if result.filled else "it"
    also = f"; for {format_fraction(beside)} {waiter} waited for a core beside it" if beside else ""
    lost = f"the training thread slept for {format_fraction(result.slept_ns / result.span_ns)} of the recorded time with no data, rank or operator to wait for; meanwhile {_ran(result)}{also}"
    held = format_fraction(min(sum(one.held_share for one in result.holding), 1.0))
    looks = f"looks that asked for the lock had to wait for it in {held} of that time"
    least, held_least = (f"< {format_fraction(GIL.limit(name))}" for name in ("window", "held"))
    return (
        GIL.found(
            title=f"the thread {first.shown} holds the lock of Python (GIL) that the training thread needs",
            fraction=share + beside,
            confidence=_CONFIDENCE,
            recoverable_ns=scope.per_step(round((share + beside) * scope.window_ns)),
            most_recoverable_ns=scope.per_step(round(max(result.most_share, share + beside) * scope.window_ns)),
            evidence=(
                Evidence(lost, "threads.lost_share", share, "fraction", least),
                Evidence(looks, "threads.held_share", first.held_share, "fraction", held_least),
            ),
            fix=f"move what the thread {first.shown} does into a process of its own, or let it do less: numpy and torch let the lock go, plain Python keeps it",
        ),
    )


def _ran(result: Threads) -> str:
    total = sum(one.run_ns for one in result.holding)
    named = [one for one in result.holding if one.run_ns >= _WORTH_A_NAME * total]
    return " and ".join(
        f"{one.shown} ran for {format_fraction(min(one.run_ns / result.span_ns, 1.0))}"
        + (f", at {one.lines[0].place.words}" if one.lines and len(named) > 1 else "")
        for one in named[:3]
    )


def table(result: Threads) -> TableView:
    """The threads, with what each ran."""
    return TableView(
        title="other threads of Python",
        headers=("thread", "ran", "waited for a core", "awaited", "holds the lock"),
        units=("text", "ns", "ns", "ns", "fraction"),
        rows=tuple(
            (one.shown, one.run_ns, one.wait_ns, one.awaited_ns, one.held_share)
            for one in result.threads[:_MOST_SHOWN]
            if one.run_ns
        ),
    )
