"""The peak of each device's memory, what holds it, and how it grows."""

from __future__ import annotations

from typing import Final, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.analyzers.allocations.kinds import Lives, Part, parts_of
from profkit.analyzers.base import Scope, scope_of
from profkit.findings.memory import LEAK
from profkit.model.arrays import I64, coded, looked_up, median
from profkit.model.code import Phase
from profkit.model.trace import CpuOps
from profkit.timeline import Facts
from profkit.timeline.allocations import Pool, pools
from profkit.timeline.code.phases import Phases, backward_of, phases_of
from profkit.timeline.host import enclosing_op, outermost
from profkit.timeline.steps import EDGES_ON_DEVICE, edges, step_of, steps_in_window

_MOST: Final = 10
"""Holders of the table."""
_NODE: Final = "autograd::engine::evaluate_function: "


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """Allocations that live at one moment and were made at one place."""

    phase: Phase
    """In which they were made."""
    where: str
    """The line of the user's code, or the outermost operator; "" where neither is known."""
    is_line: bool
    n: int
    n_bytes: int


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Memory at the end of each step, where it rises in every step."""

    steps: tuple[int, int]
    """The numbers of the first and the last step."""
    first_bytes: int
    last_bytes: int
    each_bytes: int
    """By which it rises, the median."""
    least_bytes: int
    most_bytes: int
    n_steps: int
    """How often it was read."""
    holders: tuple[Holder, ...]
    """What the steps between the first and the last allocated and never freed, the largest first."""


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one device over the recording, bytes."""

    is_host: bool
    device: int
    peak_bytes: int
    """Allocated, at the highest. Of the host only what was allocated since the recording began."""
    reserved_bytes: int | None
    """From the driver at that moment."""
    capacity_bytes: int | None
    step: int | None
    """The number of the step with the peak; None outside of steps."""
    phase: Phase
    where: str
    """What allocates at the peak, as in `Holder`."""
    earlier_bytes: int | None
    """Of the peak what lived when the recording began; None where allocations and totals do not add up."""
    holders: tuple[Holder, ...]
    """What holds the rest, the largest first."""
    parts: tuple[Part, ...]
    """All of the peak by what it is held for; empty where allocations and totals do not add up."""
    n_holders: int
    growth: Growth | None

    @property
    def name(self) -> str:
        """Whose memory it is."""
        return "the host" if self.is_host else f"GPU {self.device}"

    @property
    def unused_bytes(self) -> int:
        """Reserved and in no tensor at the peak."""
        return 0 if self.reserved_bytes is None else self.reserved_bytes - self.peak_bytes


class Allocations(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of each device that the trace has events of, devices before the host."""

    scope: Scope
    held: tuple[Held, ...]


def measure(facts: Facts) -> Allocations | None:
    """Find the peak of each device, what holds it, and whether memory grows; None where no device has totals."""
    found = pools(facts.trace)
    if not found:
        return None
    places = _Places.of(facts)
    lives = Lives.of(facts.trace, places.phases.backward)
    return Allocations(scope=scope_of(facts), held=tuple(_held(facts, pool, places, lives) for pool in found))


class _Places(msgspec.Struct, frozen=True, kw_only=True):
    """Where each (thread, time) is: a phase, and a line or an operator."""

    facts: Facts
    phases: Phases
    tops: CpuOps
    """The operators that lie in no other one."""

    @classmethod
    def of(cls, facts: Facts) -> Self:
        """The places of a trace."""
        trace = facts.trace
        tops = trace.ops.take(outermost(trace.ops))
        return cls(facts=facts, phases=phases_of(trace, backward_of(trace)), tops=tops)

    def at(
        self, thread: NDArray[np.int32], at_ns: I64
    ) -> tuple[NDArray[np.int8], list[tuple[str, bool]], NDArray[np.intp]]:
        """The phase of each, the places (words, whether a line), and per moment which of these it has."""
        code, trace = self.facts.code, self.facts.trace
        op = enclosing_op(self.tops, thread, at_ns) if len(self.tops) else np.full(at_ns.size, -1, np.int64)
        of_op = looked_up(self.tops.name, op)
        if code is None:
            phase = self.phases.at(thread, at_ns, in_module=np.zeros(at_ns.size, np.bool_))
            line = np.full(at_ns.size, -1, np.int64)
        else:
            moments = code.at(thread, at_ns)
            phase, line = moments.phase, moments.place.astype(np.int64)
        key = np.where(line >= 0, line, -2 - of_op)
        values, which = coded(key)
        places = [
            (code.places[value].words, True)
            if value >= 0 and code is not None
            else (trace.name(-2 - value).removeprefix(_NODE), False)
            for value in values.tolist()
        ]
        return phase, places, which.reshape(-1)

    def holders(self, pool: Pool, rows: NDArray[np.intp]) -> tuple[Holder, ...]:
        """These allocations of a pool by phase and place, the largest first."""
        if rows.size == 0:
            return ()
        phase, places, which = self.at(pool.thread[rows], pool.start_ns[rows])
        key = which * len(Phase) + phase
        n, n_bytes = np.bincount(key), np.bincount(key, weights=pool.n_bytes[rows])
        return tuple(
            Holder(
                phase=Phase(one % len(Phase)),
                where=places[one // len(Phase)][0],
                is_line=places[one // len(Phase)][1],
                n=int(n[one]),
                n_bytes=int(n_bytes[one]),
            )
            for one in np.argsort(-n_bytes, kind="stable").tolist()
            if n[one]
        )


def _held(facts: Facts, pool: Pool, places: _Places, lives: Lives) -> Held:
    trace = facts.trace
    peak = int(pool.allocated_bytes.argmax())
    moment = slice(peak, peak + 1)
    phase, where, _ = places.at(pool.thread[moment], pool.start_ns[moment])
    steps = trace.steps
    step = int(step_of(pool.start_ns[moment], steps)[0])
    rows = pool.held(peak)
    peak_bytes = int(pool.allocated_bytes[peak])
    earlier = peak_bytes - int(pool.n_bytes[rows].sum())
    adds_up = pool.ended is not None and earlier >= 0
    holders = places.holders(pool, rows) if adds_up else ()
    capacity = trace.memory_bytes(pool.device)
    return Held(
        is_host=pool.is_host,
        device=pool.device,
        peak_bytes=peak_bytes,
        reserved_bytes=None if pool.reserved_bytes is None else int(pool.reserved_bytes[peak]),
        capacity_bytes=(capacity or None) if not pool.is_host else None,
        step=steps[step].number if step >= 0 else None,
        phase=Phase(int(phase[0])),
        where=where[0][0],
        earlier_bytes=earlier if adds_up else None,
        holders=holders[:_MOST],
        parts=parts_of(pool, peak, earlier, lives) if adds_up else (),
        n_holders=len(holders),
        growth=_growth(facts, pool, places),
    )


def _growth(facts: Facts, pool: Pool, places: _Places) -> Growth | None:
    """How memory rises from the end of one step to the end of the next; None where it does not rise in each."""
    steps = steps_in_window(facts.trace)
    if len(steps) < LEAK.limit("steps") or facts.trace.step_source in EDGES_ON_DEVICE:
        return None  # the host allocates, and where steps begin with kernels it is ahead of them by any amount
    last = np.searchsorted(pool.start_ns, edges(steps)[1]) - 1
    if last[0] < 0:
        return None
    total = pool.allocated_bytes[last]
    rise = np.diff(total)
    if bool((rise <= 0).any()):
        return None
    kept = pool.held(int(last[-1]))
    kept = kept[(kept > last[0]) & (kept <= last[-2])]
    return Growth(
        steps=(steps[0].number, steps[-1].number),
        first_bytes=int(total[0]),
        last_bytes=int(total[-1]),
        each_bytes=median(rise),
        least_bytes=int(rise.min()),
        most_bytes=int(rise.max()),
        n_steps=len(steps),
        holders=places.holders(pool, kept)[:_MOST],
    )
