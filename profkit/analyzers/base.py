"""The shape of an analyzer: measure (no thresholds), judge (thresholds only), present (no judgement)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.findings.capture import COST
from profkit.model.arrays import I64, distinct_codes, looked_up, of_rows
from profkit.model.budget import NO_TIME, Budget, column
from profkit.model.code import PlaceShare
from profkit.model.documents.rank_report import Section, TableView
from profkit.model.finding import Evidence, Finding, Skipped
from profkit.model.intervals import Intervals
from profkit.model.trace import Trace, Traits
from profkit.shell import CommandLine, recorded, stand_in
from profkit.timeline import DeviceFacts, Facts, IdlePlaces
from profkit.timeline.code import Rows
from profkit.timeline.idle import ending_rows
from profkit.timeline.totals import Sampled
from profkit.units import format_count, format_fraction, format_ns

RECORD_A_DEVICE: Final = "profile with ProfilerActivity.CUDA on a machine with a GPU"
"""How to get what only a device's trace holds."""
PLACED: Final = 0.2
"""Chosen: from that share on, a place of idle time is worth a look before all others."""
MIN_SAMPLES: Final = 30
"""Chosen: a share of 30 samples is known to 18 points (95 %), of fewer to less."""
_WORTH_A_NAME: Final = 0.1
"""Share of the samples from which a module or function is named. Chosen."""
_MOST_MODULES: Final = 3
_ALL: Final = 0.95
"""Share of a module's samples from which one function stands for it. Chosen."""

R = TypeVar("R")


class Analyzer(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """One question. `measure` may answer that the trace cannot tell; `judge` and `present` see only its result."""

    name: str
    question: str
    needs: str
    """What the trace must hold, for `profkit info`."""
    measure: Callable[[Facts], R | Skipped]
    present: Callable[[R], Section]
    judge: Callable[[R], tuple[Finding, ...]] = lambda _: ()
    rows: Callable[[Facts, R], Mapping[str, Rows]] = lambda _, __: {}
    """What the time of each of its findings consists of, by the finding's id: from that follow the places in the user's
    code. Asked only where a finding was made and frames were recorded."""
    places: Callable[[Facts, R], Mapping[str, tuple[PlaceShare, ...]]] = lambda _, __: {}
    """Places that other processes than this one have of a finding's cause, by its id: they come first."""


class Vendor(StrEnum):
    """Who makes the device, and its profilers."""

    NVIDIA = "nvidia"
    AMD = "amd"
    INTEL = "intel"


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Over what a result was measured: turns totals into shares and into time per step."""

    window_ns: int
    n_steps: int
    has_steps: bool
    is_cpu: bool
    command: CommandLine
    """What the user runs, for commands that can be pasted."""
    vendor: Vendor = Vendor.NVIDIA
    """Whose device it is: each has tools of its own."""
    traits: Traits
    """What the trace's kind holds, and how its user records it again."""
    step_ns: int | None = None
    """The mean step, as the report has it."""
    budget: Budget = NO_TIME
    is_of_ranks: bool = False
    """Whether the job has several ranks."""
    is_of_torch: bool = True
    """Whether PyTorch ran: other programs are not told what only PyTorch has."""
    long_kernels: Mapping[str, str] = {}
    """As `Facts.long_kernels`."""

    @property
    def each(self) -> str:
        """What `per_step` is per, in a sentence."""
        return "per step" if self.has_steps else "in the window"

    def fraction(self, total_ns: int) -> float:
        """A total as a share of the window (0-1)."""
        return total_ns / self.window_ns if self.window_ns else 0.0

    def share(self, total_ns: int, *parts: str) -> str:
        """The same in a sentence: of a time in these parts of the budget, as the bar shows them."""
        return format_fraction(self.budget.shown(*parts, total_ns=total_ns))

    def per_step(self, total: int) -> int:
        """A total of the window per step, of the mean length; without steps, all of it."""
        if self.step_ns and self.window_ns:
            return total * self.step_ns // self.window_ns
        return total // self.n_steps

    def time(self, total_ns: int) -> str:
        """The same of a time, in a sentence: `1.20 ms per step`."""
        return f"{format_ns(self.per_step(total_ns))} {self.each}"


def scope_of(facts: Facts) -> Scope:
    """The scope of a trace's results."""
    meta = facts.trace.meta
    return Scope(
        window_ns=facts.window_ns,
        n_steps=facts.n_steps,
        has_steps=bool(facts.trace.steps),
        is_cpu=facts.cpu is not None,
        command=recorded(meta.command)
        or stand_in(meta.metadata.get("profkit_command"), meta.world_size, is_of_torch=facts.is_of_torch),
        vendor=_vendor(facts),
        traits=meta.traits,
        step_ns=facts.step_ns,
        budget=facts.budget,
        is_of_ranks=(facts.trace.meta.world_size or 1) > 1,
        is_of_torch=facts.is_of_torch,
        long_kernels=facts.long_kernels,
    )


def bare_step_ns(recorded_ns: int | None, plain_ns: int | None, profiled_ns: int | None) -> int | None:
    """The mean step as it is without the profiler; None where that is not known, or where the profiler costs little.

    `plain_ns` is the mean step without it, `profiled_ns` the one with it by the same clock; where that is not known it
    is that of the trace.
    """
    if not plain_ns or not recorded_ns:
        return None
    with_ns = profiled_ns or recorded_ns
    if with_ns <= (1 + COST.allows.value) * plain_ns:
        return None
    if recorded_ns > (1 + COST.allows.value) * with_ns:  # a validation is in one of the recorded steps
        return round(recorded_ns * plain_ns / with_ns)
    return plain_ns


def by_name(trace: Trace, codes: NDArray[np.int32], durations_ns: I64) -> tuple[tuple[str, int, int], ...]:
    """Name, how often and how long in all, ns, of rows with these codes of names: the longest first."""
    counts, total = np.bincount(codes), np.bincount(codes, weights=durations_ns)
    order = np.argsort(-total, kind="stable")
    return tuple((trace.name(int(code)), int(counts[code]), int(total[code])) for code in order if counts[code])


def before_launches(facts: Facts, main: DeviceFacts) -> tuple[Intervals, NDArray[np.intp]]:
    """The gaps of a device's activity, and the row of the call that launches what ends each, -1 where none is known."""
    gaps = main.activity.any.gaps(*facts.trace.window_ns)
    row = ending_rows(facts.trace, main.activity, gaps.end_ns)
    return gaps, looked_up(facts.trace.gpu.launch_row, row)


def launched_by_operators(facts: Facts, main: DeviceFacts) -> tuple[NDArray[np.int32], I64]:
    """Of each device row that an operator launches: the code of that operator's name, and how long the row takes, ns."""
    gpu, rows = facts.trace.gpu, main.activity.rows
    launch = of_rows(gpu.launch_row, rows)
    linked = np.flatnonzero(launch >= 0)
    op = facts.op_of_call[of_rows(launch, linked)]
    known = np.flatnonzero(op >= 0)
    rows = of_rows(of_rows(rows, linked), known)
    return facts.trace.ops.name[of_rows(op, known)], of_rows(gpu.end_ns, rows) - of_rows(gpu.start_ns, rows)


def busiest_thread(facts: Facts, threads: Sequence[int]) -> tuple[int, ...]:
    """Of these threads the one with most operators: several at a time would count the same time twice."""
    counts = np.bincount(facts.trace.ops.thread, minlength=max(threads, default=0) + 1)
    return tuple(sorted(threads, key=lambda thread: -int(counts[thread]))[:1])


def idle_before(places: IdlePlaces, scope: Scope, *parts: str) -> tuple[Evidence, ...]:
    """Where most of the idle time of these causes lies; nothing where that is not known."""
    first = places.first(parts)
    if first is None:
        return ()
    place, share = first
    gaps = f"{place.n_gaps:,} gap{'' if place.n_gaps == 1 else 's'}"
    statement = (
        f"{format_fraction(share)} of this idle time is {place.words} ({gaps})"
        if share >= PLACED
        else f"this idle time is spread: the largest part, {format_fraction(share)}, is {place.words} ({gaps})"
    )
    return (Evidence.share("launches.first_place_share", share, statement),)


def sampled_evidence(samples: Sequence[Sampled], *, is_cpu: bool, when: str = "") -> Iterator[Evidence]:
    """In which code the launching thread ran meanwhile, where the tool sampled it often enough; `when` is meanwhile."""
    n = sum(one.n for one in samples)
    if n < MIN_SAMPLES:
        return
    modules = [(module, share) for module, share in _shares((one.module, one.n) for one in samples) if module]
    named = [_in_module(samples, *each) for each in modules[:_MOST_MODULES] if each[1] >= _WORTH_A_NAME]
    if not named:
        return
    when = when or ("between operators" if is_cpu else "while the GPU waits for a launch")
    who = "training" if is_cpu else "launching"
    caller, share = _shares((one.caller, one.n) for one in samples)[0]
    called = f"; {format_fraction(share)} are in {caller} or in a library that it calls" if caller else ""
    yield Evidence.count(
        "launches.n_samples",
        n,
        f"{when}, {format_count(n)} CPU samples find the {who} thread {', '.join(named)}"
        + (called if share >= _WORTH_A_NAME else ""),
    )


def _in_module(samples: Sequence[Sampled], module: str, share: float) -> str:
    """A module with its share of the samples, and the function that has most of these, if that has a name."""
    functions = _shares((one.function, one.n) for one in samples if one.module == module)
    function, of_module = next((pair for pair in functions if pair[0]), ("", 0.0))
    if of_module >= _ALL:
        return f"{format_fraction(share * of_module)} in {function} ({module})"
    most = f" (most often {function}, {format_fraction(share * of_module)})" if of_module >= _WORTH_A_NAME else ""
    return f"{format_fraction(share)} in {module}{most}"


def _shares(counts: Iterable[tuple[str, int]]) -> list[tuple[str, float]]:
    """Names with their shares (0-1) of all, the largest first."""
    total: dict[str, int] = {}
    for name, n in counts:
        total[name] = total.get(name, 0) + n
    n_all = sum(total.values())
    return sorted(((name, n / n_all) for name, n in total.items()), key=lambda pair: -pair[1])


def places_table(places: IdlePlaces) -> Iterator[TableView]:
    """Idle time by the operation that ends it, and by what launches that; empty without any.

    A column in which nothing stands is left out.
    """
    rows = [
        (
            place.before or "end of the window",
            place.op,
            place.line or place.span,
            place.meanwhile,
            column(place.cause, is_cpu=False),
            place.n_gaps,
            place.idle_ns,
        )
        for place in places.places
    ]
    texts = dict.fromkeys(("before", "launched by", "from", "host meanwhile", "mostly"), "text")
    columns = list((texts | {"gaps": "count", "idle": "ns"}).items())
    kept = [place for place, (_, unit) in enumerate(columns) if unit != "text" or any(row[place] for row in rows)]
    if rows:
        yield TableView.of(
            "idle time by what ends it",
            dict(columns[place] for place in kept),
            (tuple(row[place] for place in kept) for row in rows),
            note="Gaps between operations that were queued in time are left out.",
        )


_INTEL_CALL: Final = re.compile(r"(?:ur|ze)[A-Z]")
"""Unified Runtime and Level Zero."""


def _vendor(facts: Facts) -> Vendor:
    """The maker by the device's name, by what the trace says of its runtime, or by the calls it holds."""
    trace = facts.trace
    names = [device.name for device in trace.meta.devices]
    calls = [trace.name(int(code)) for code in distinct_codes(trace.calls.name)]
    if (
        any("hip" in key for key in trace.meta.metadata)
        or any(name.startswith(("AMD", "Radeon", "MI")) for name in names)
        or any(call.startswith("hip") for call in calls)
    ):
        return Vendor.AMD
    is_intel = any("Intel" in name for name in names) or any(_INTEL_CALL.match(call) for call in calls)
    return Vendor.INTEL if is_intel else Vendor.NVIDIA
