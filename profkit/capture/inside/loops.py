"""The loops of a run, told apart by which optimizers step in them: how long each takes, and which one is recorded.

A run trains in one loop after another: a teacher is warmed up, then the student is distilled. The recording is of the
first that lasts; whether that is the job shows later. Standard library only, no torch, Python 3.9 syntax.
"""

from __future__ import annotations

import weakref
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from ..beside import units
from ..lines import LONGER
from .steps import MIN_CALLS, reach

_OTHER_PACE: Final = 2.0
"""Steps of the same optimizer that all take so many times as long, or as short, are another loop's (chosen: a machine
that others use as well makes steps up to that much longer)..."""
_IN_A_ROW: Final = 16
"""...where so many follow each other without one of the old pace (chosen: a rollout before each 16 updates is none)."""
_MOST_AGAIN: Final = 2
"""Recordings that are made anew because another loop is longer (chosen: each stalls the script)."""
_OVERTAKES: Final = 2
"""...the second time for one that is so many times longer still (chosen: loops that alternate overtake each other)."""
_MOST_LOOPS: Final = 64


@dataclass
class Loop:
    """Optimizers that step in turns, how often they did, and what the steps took that were timed without a profiler."""

    names: tuple[str, ...]
    first_optimizer: int
    first_call: int
    is_other_pace: bool = False
    n_calls: int = 0
    n_timed: int = 0
    timed_ns: int = 0
    longest_ns: int = 0

    def add(self, n_calls: int, n_timed: int, timed_ns: int) -> None:
        """Count more steps, or fewer, of which so many were timed."""
        self.n_calls += n_calls
        self.n_timed += n_timed
        self.timed_ns += timed_ns
        self.longest_ns = max(self.longest_ns, timed_ns if n_timed == 1 else 0)

    @property
    def usual_ns(self) -> int:
        """What a step takes, but for the longest: the first of a loop waits for what stands before it."""
        return (self.timed_ns - self.longest_ns) // (self.n_timed - 1) if self.n_timed > 1 else self.timed_ns

    @property
    def spent_ns(self) -> int:
        """What all its steps took, as if those recorded had taken as long as the others usually do."""
        more = self.n_calls - self.n_timed if self.n_timed > 1 else 0  # of one step nobody knows what the next takes
        return self.timed_ns + self.usual_ns * more

    @property
    def name(self) -> str:
        """How it is called: by the classes of its optimizers, and what a step of one takes."""
        step = f", {units().format_ns(self.usual_ns)} a step" if self.n_timed else ""
        return " and ".join(self.names) + step

    def told(self) -> dict[str, Any]:
        """As plain values."""
        first, spent_ns = self.first_optimizer, self.spent_ns
        told = {"optimizers": list(self.names), "first_optimizer": first, "n_calls": self.n_calls, "spent_ns": spent_ns}
        return {**told, "is_other_pace": self.is_other_pace}


class Keys:
    """Numbers for optimizers, from 1 on in the order of their first steps: an address comes again when one is gone.

    One that is made anew where one like it is gone, over as many tensors of the same shapes, goes on with its number:
    a loop that makes a fresh one for each client, fold or restart is one loop.
    """

    def __init__(self) -> None:
        self._known: Any = weakref.WeakKeyDictionary()
        self._alike: dict[Any, list[Any]] = {}
        self._n = 0

    def of(self, optimizer: Any) -> int:
        """The number of this one; of a class that cannot be held weakly or compares by value, the address."""
        try:
            number: int = self._known.get(optimizer, 0)
            if not number:
                number = self._known[optimizer] = self._inherited(optimizer)
        except Exception:  # noqa: BLE001 - the script's own class may be of any kind
            return id(optimizer)
        return number

    def _inherited(self, optimizer: Any) -> int:
        """The number of the first like it that is gone, else the next number."""
        groups = getattr(optimizer, "param_groups", None) or []
        shapes = tuple(tuple(one.shape) for group in groups for one in group["params"])
        alike = self._alike.setdefault((type(optimizer), shapes), []) if shapes else []
        for slot in alike:
            if slot[0]() is None:
                slot[0] = weakref.ref(optimizer)
                return int(slot[1])
        self._n += 1
        alike.append([weakref.ref(optimizer), self._n])
        return self._n


class Loops:
    """Told of each step of an optimizer; knows the loop that runs, the recorded one, and which is longer.

    `waited_ns` says how long the thread that steps has been ready and waited for a core, until now.
    """

    def __init__(self, waited_ns: Callable[[], int] = lambda: 0) -> None:
        self.n_again = 0
        self._waited_ns = waited_ns
        self._first = (0, 0)  # when the first step was, and what the thread had waited by then
        self._usual_alone_ns: float = 0
        self._row_waited_ns = 0
        self._loops: dict[Any, Loop] = {}
        self._names: dict[int, str] = {}
        self._recent: deque[int] = deque()
        self._in_reach: Counter[int] = Counter()
        self._key: Any = frozenset()
        self._pace = self._n_paces = self._own_pace = 0
        self._own_key: Any = None
        self._recorded: Loop | None = None
        self._kept: Loop | None = None
        self._usual_ns = 0
        self._n_calls = 0
        self._last_ns = 0
        self._lead_ns = 0
        self._row: list[int] = []
        self._stretch = Loop((), 0, 0)
        self._is_recorded_left = False
        self._passage: Loop | None = None

    def stepped(self, key: int, name: str, now_ns: int, *, is_timed: bool, leads: bool = False) -> None:
        """An optimizer (its number, its class) has stepped; it `leads` where it ends a step of the recorded loop."""
        self._names.setdefault(key, name)
        self._n_calls += 1
        if self._n_calls == 1:
            self._first = now_ns, self._waited_ns()
        is_new = self._come(key)
        loop = self._running()
        if loop is None:
            names = tuple(sorted({self._names[one] for one in self._in_reach}))
            loop = Loop(names, max(self._in_reach), self._n_calls)
            self._loops[self._key, self._pace] = loop
        is_timed = is_timed and self._last_ns > 0
        # what profkit took since may have been counted twice
        spent_ns = max(now_ns - self._last_ns, 0) if is_timed and not is_new else 0
        self._stretch.add(1, int(spent_ns > 0), spent_ns)
        loop.add(1, int(spent_ns > 0), spent_ns)
        if self._passage is not None:
            loop.add(self._passage.n_calls, self._passage.n_timed, self._passage.timed_ns)
            if self._is_recorded_left:
                self._recorded, self._own_key = loop, self._key
            self._passage = None
        if leads:
            if is_timed and self._lead_ns:
                self._watch_pace(max(now_ns - self._lead_ns, 0))
            self._lead_ns = now_ns
        self._last_ns = now_ns

    def skip(self, spent_ns: int) -> None:
        """So much of the time since the last step is profkit's own."""
        self._last_ns += spent_ns if self._last_ns else 0
        self._lead_ns += spent_ns if self._lead_ns else 0

    def record(self, usual_ns: int) -> None:
        """The loop that runs is the one that is recorded; its step usually takes so long."""
        self._recorded, self._usual_ns = self._running(), usual_ns
        passed_ns, waited_ns = self._last_ns - self._first[0], self._waited_ns() - self._first[1]
        self._usual_alone_ns = usual_ns * (1 - min(waited_ns / passed_ns, 1.0)) if passed_ns > 0 else usual_ns
        self._own_key, self._own_pace = self._key, self._pace
        self._row.clear()

    def has_left(self, leader: int | None) -> bool:
        """Whether the optimizer that ends the steps of the recorded loop steps no more, while others do."""
        return leader is not None and self._in_reach[leader] == 0

    def is_longer(self) -> bool:
        """Whether the loop that runs is another than the recorded one and has taken clearly more time."""
        running, recorded = self._running(), self._recorded
        if running is None or recorded is None or running is recorded or self.n_again >= _MOST_AGAIN:
            return False
        least_ns = LONGER * _OVERTAKES**self.n_again * recorded.spent_ns
        return running.n_calls >= MIN_CALLS and running.spent_ns > least_ns

    @property
    def is_other_pace(self) -> bool:
        """Whether the loop that runs is the recorded one's own optimizers at another pace."""
        running = self._running()
        return running is not None and running.is_other_pace and self._key == self._own_key

    def join_paces(self) -> None:
        """Take them for one loop whose steps grow, whatever their pace from now on."""
        recorded = self._recorded
        for key, pace in [one for one in self._loops if one[0] == self._own_key]:
            loop = self._loops[key, pace]
            if recorded is not None and loop is not recorded:
                recorded.add(loop.n_calls, loop.n_timed, loop.timed_ns)
                del self._loops[key, pace]
        self._pace, self._usual_ns = self._own_pace, 0

    def place_to_agree(self) -> str:
        """A name for the place that all ranks come to, where they may settle on a new recording; "" where none is.

        That is after 8, 16, 32... steps of a loop.
        """
        running = self._running()
        if running is None or running is self._recorded or running.n_calls < MIN_CALLS:
            return ""
        return "" if running.n_calls & (running.n_calls - 1) else f"loop{running.first_call}_{running.n_calls}"

    def why_again(self) -> str:
        """That another loop is recorded now, and why."""
        running, recorded = self._running(), self._recorded
        if running is None or recorded is None:
            return "another loop is recorded"
        spent, before = (units().format_ns(one.spent_ns) for one in (running, recorded))
        took = f"has taken {spent} by now, the recorded one took {before}"
        return f"the loop that runs now ({running.name}) {took}: it is recorded in its place"

    def keep(self) -> None:
        """What is recorded of the loop is written: it takes the place of what was before."""
        self._kept = self._recorded

    def told(self) -> list[dict[str, Any]]:
        """The loops that took time as plain values, in their order, the recorded one marked so."""
        known = sorted(self._loops.values(), key=lambda one: one.first_call)
        least = max((one.spent_ns for one in known), default=0) / 100  # what is less is on its way from one to the next
        return [
            {**one.told(), "is_recorded": one is self._kept}
            for one in known
            if one is self._kept or (one.n_calls >= MIN_CALLS and one.spent_ns >= least)
        ]

    def _running(self) -> Loop | None:
        found = self._loops.get((self._key, self._pace))
        if found is None and len(self._loops) >= _MOST_LOOPS:
            return next(iter(self._loops.values()))
        return found

    def _come(self, key: int) -> bool:
        """Take this call among the last ones; whether another set of optimizers steps in turns now."""
        n_known = len(self._in_reach)
        self._recent.append(key)
        self._in_reach[key] += 1
        while len(self._recent) > reach(len(self._names)):
            old = self._recent.popleft()
            self._in_reach[old] -= 1
            if not self._in_reach[old]:
                del self._in_reach[old]
        if n_known == len(self._in_reach) and key in self._key:
            return False
        before, n_reach = self._running(), reach(len(self._names))
        if before is not None and self._key > self._in_reach.keys() and self._stretch.n_calls < n_reach:
            self._is_recorded_left = before is self._recorded
            self._passage = self._stretch  # from one loop to the next: these steps were the next one's
            before.add(-self._passage.n_calls, -self._passage.n_timed, -self._passage.timed_ns)
        self._stretch = Loop((), 0, 0)
        self._key = frozenset(self._in_reach)
        self._pace = self._own_pace if self._key == self._own_key else 0
        self._row.clear()
        return True

    def _watch_pace(self, spent_ns: int) -> None:
        """Tell apart what the recorded loop's own optimizer does at another pace, on cores that it has alone."""
        recorded, running = self._recorded, self._running()
        if recorded is None or not self._usual_ns or running is None:
            return
        is_other = not _is_like(spent_ns, self._usual_ns)
        if is_other == (self._pace != self._own_pace):
            self._row.clear()
            return
        if not self._row:
            self._row_waited_ns = self._waited_ns()
        self._row.append(spent_ns)
        if len(self._row) < _IN_A_ROW:
            return
        alone_ns = (sum(self._row[1:]) - (self._waited_ns() - self._row_waited_ns)) / (_IN_A_ROW - 1)
        if is_other and _is_like(alone_ns, self._usual_alone_ns):  # other programs came, or went
            self._row.clear()
            return
        if is_other:
            self._n_paces += 1
        self._pace = self._n_paces if is_other else self._own_pace
        moved = self._running()
        if moved is None:
            moved = self._loops[self._key, self._pace] = Loop(
                running.names, running.first_optimizer, self._n_calls - len(self._row), is_other_pace=True
            )
        for loop, sign in ((running, -1), (moved, 1)):
            loop.add(sign * len(self._row), sign * len(self._row), sign * sum(self._row))
        self._row.clear()


def _is_like(spent_ns: float, usual_ns: float) -> bool:
    """Whether a step keeps the pace of the usual one."""
    return usual_ns / _OTHER_PACE < spent_ns < usual_ns * _OTHER_PACE
