"""A trace as the hand-over looks at it: its budget step by step, its launches, and what its host did meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from profkit.analyzers.base import Scope, scope_of
from profkit.crosscheck.launches import Launches, launches_of
from profkit.model.arrays import I64, distinct_codes, median
from profkit.model.documents.rank_report import RankReport
from profkit.model.documents.report import Verdict
from profkit.model.finding import Evidence
from profkit.model.intervals import Intervals
from profkit.model.trace import CallKind, SpanKind, Step, Trace
from profkit.pipeline import Analysed
from profkit.timeline.facts import DeviceFacts, Facts
from profkit.timeline.host import os_waits
from profkit.timeline.rates import capability_of
from profkit.timeline.steps import edges, whole_steps

_MAX_RANGES: Final = 2000
"""Distinct names of ranges that are looked at; emit_nvtx's operators are not ranges here. Chosen: a model has fewer
modules, and each name costs a pass over the ranges."""


class CallTimes(msgspec.Struct, frozen=True, kw_only=True):
    """How often a kind of CUDA call is made per step and how long one takes, median and in all per step, ns."""

    count: float
    median_ns: int
    total_ns: int


class HostSide(msgspec.Struct, frozen=True, kw_only=True):
    """What the host did, per step, ns; pairs are (name, ns), the longest first."""

    waits: tuple[tuple[str, int], ...]
    """Calls of the operating system in which the launching threads were while the device idled."""
    calls: dict[str, CallTimes]
    """Of the launching threads: "launch", "sync", "copy", "alloc"."""
    idle_by_range: tuple[tuple[str, int], ...]
    """Idle device time inside each range of the launching threads; ranges lie in each other."""


class Portrait(msgspec.Struct, frozen=True, kw_only=True):
    """One trace, in a few MB at most. `parts_ns` and `step_ns` have one value per step of the window.

    Without steps both are empty, and the whole window stands for one step of the launches.
    """

    tool: str
    rank: RankReport
    verdict: Verdict
    device: int
    compute_capability: str
    """Of that device, as ncu writes it (`9.0`); "" where the trace does not say."""
    step_numbers: tuple[int, ...]
    step_ns: I64
    parts_ns: dict[str, I64]
    launches: Launches
    host: HostSide
    unprofiled_step_ns: int | None
    scope: Scope

    @property
    def mean_step_ns(self) -> int:
        """Mean of its steps; 0 without any."""
        return int(self.step_ns.sum()) // max(self.step_ns.size, 1)

    @property
    def compute_ns(self) -> int:
        """How long any compute kernel runs in a step, mean; without steps, in the window."""
        if self.step_ns.size:
            return int(self.parts_ns["compute"].sum()) // self.step_ns.size
        return next((device.budget.compute for device in self.rank.devices if device.device == self.device), 0)

    @property
    def possessive(self) -> str:
        """The tool's name as an owner: `nsys'`."""
        return self.tool + ("'" if self.tool.endswith("s") else "'s")

    @property
    def device_name(self) -> str:
        """What the trace calls its busiest device, "" where it does not say."""
        return next((device.name for device in self.rank.devices if device.device == self.device), "")

    def share(self, part: str) -> float:
        """A part as a share of all its steps, 0-1."""
        total = int(self.step_ns.sum())
        return int(self.parts_ns[part].sum()) / total if total else 0.0


def seen(statement: str, metric: str, value: float, unit: str = "ns") -> Evidence:
    """A number of the hand-over; `metric` is said without its `handover.`."""
    return Evidence(statement=statement, metric=f"handover.{metric}", value=float(value), unit=unit)


def portrait_of(analysed: Analysed) -> Portrait:
    """The portrait of a trace; one without a device has no launches and no parts."""
    facts = analysed.facts
    trace, main = facts.trace, facts.main_device
    steps = whole_steps(trace) if main is not None else ()
    low, high = trace.window_ns
    start, end = edges(steps)
    whole = (Step(index=0, number=0, start_ns=low, end_ns=high),)
    return Portrait(
        tool=trace.meta.traits.tool,
        rank=analysed.rank,
        verdict=analysed.verdict,
        device=main.device if main is not None else -1,
        compute_capability=_capability(trace, main.device) if main is not None else "",
        step_numbers=tuple(step.number for step in steps),
        step_ns=end - start,
        parts_ns={name: times.covered_ns(start, end) for name, times in facts.parts.items() if main is not None},
        launches=launches_of(trace, main.device if main is not None else -1, steps or whole),
        host=_host(facts, main, steps),
        unprofiled_step_ns=trace.meta.unprofiled_step_ns,
        scope=scope_of(facts),
    )


def _capability(trace: Trace, device: int) -> str:
    """What the file says of a device, as ncu writes it; "" where it does not."""
    found = capability_of(trace, device)
    return "" if found is None else f"{found[0]}.{found[1]}"


def _host(facts: Facts, main: DeviceFacts | None, steps: Sequence[Step]) -> HostSide:
    if main is None or not steps:
        return HostSide(waits=(), calls={}, idle_by_range=())
    inside = Intervals.pairs((step.start_ns, step.end_ns) for step in steps)
    idle = inside - main.activity.any
    n = len(steps)
    waits = os_waits(facts.trace, facts.host.threads, idle)
    return HostSide(
        waits=tuple((name, total // n) for name, total in waits),
        calls=_calls(facts, inside, n),
        idle_by_range=_idle_by_range(facts.trace, facts.host.threads, idle, n),
    )


_CALL_KINDS: Final = {
    "launch": (CallKind.LAUNCH, CallKind.GRAPH_LAUNCH),
    "sync": (CallKind.SYNC,),
    "copy": (CallKind.COPY,),
    "alloc": (CallKind.ALLOC,),
}


def _calls(facts: Facts, inside: Intervals, n_steps: int) -> dict[str, CallTimes]:
    calls = facts.trace.calls
    mine = np.isin(calls.thread, facts.host.threads) & inside.contains(calls.start_ns)
    found: dict[str, CallTimes] = {}
    for name, kinds in _CALL_KINDS.items():
        rows = np.flatnonzero(mine & np.isin(calls.kind, kinds))
        if rows.size:
            spent = calls.end_ns[rows] - calls.start_ns[rows]
            found[name] = CallTimes(
                count=rows.size / n_steps, median_ns=median(spent), total_ns=int(spent.sum()) // n_steps
            )
    return found


def _idle_by_range(
    trace: Trace, threads: tuple[int, ...], idle: Intervals, n_steps: int
) -> tuple[tuple[str, int], ...]:
    spans = trace.spans
    mine = np.flatnonzero(np.isin(spans.thread, threads) & (spans.kind != SpanKind.STEP))
    spent: list[tuple[str, int]] = []
    for code in distinct_codes(spans.name[mine])[:_MAX_RANGES]:
        rows = mine[spans.name[mine] == code]
        total = (Intervals.of(spans.start_ns[rows], spans.end_ns[rows]) & idle).total_ns
        if total // n_steps:
            spent.append((trace.name(int(code)), total // n_steps))
    return tuple(sorted(spent, key=lambda item: -item[1]))
