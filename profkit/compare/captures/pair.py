"""Two sides with their accounts, as the readings look at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import msgspec

from profkit.compare.captures.contention import Pool, Slowdown, drift, pooled
from profkit.compare.captures.measured import Measured
from profkit.compare.captures.sides import Side
from profkit.compare.captures.waterfall import (
    GROUPS,
    PREFIX,
    Runs,
    Use,
    account,
    group_changes,
    per_step,
    uses,
    waterfall,
)
from profkit.compare.captures.work_rows import Work
from profkit.findings.capture import LOST, QUALITY, WHOLE_GRAPHS
from profkit.findings.kind import FindingKind
from profkit.model.budget import words
from profkit.model.documents.comparison import Account, Waterfall
from profkit.model.finding import Evidence, Finding
from profkit.units import format_count, format_ns

HIDDEN = 0.05
"""Of the window, in CUDA graphs without their kernels, from which nothing is said of kernels. Chosen."""


class Pair(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Two sides whose steps may be set against each other."""

    baseline: Side
    candidate: Side

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both sides."""
        return self.baseline, self.candidate

    @property
    def traces(self) -> tuple[Measured, ...]:
        """The traces of both sides."""
        return self.baseline.traces + self.candidate.traces

    @cached_property
    def runs(self) -> tuple[Runs, Runs]:
        """The traces of the runs of both sides."""
        return _both([run.traces for run in side.runs] for side in self.sides)

    @cached_property
    def waterfall(self) -> Waterfall:
        """The step of both sides by the parts of the budget."""
        return waterfall(*self.runs)

    @cached_property
    def steady(self) -> Waterfall:
        """The same without the one step of a trace that is slow among many; means of the others."""
        return waterfall(*self.runs, is_steady=True)

    @cached_property
    def compute(self) -> Account:
        """How the busy time of compute changed."""
        return account(*self.runs, lambda trace: trace.compute)

    @cached_property
    def comm(self) -> Account:
        """How the busy time of communication changed."""
        return account(*self.runs, lambda trace: trace.comm)

    @cached_property
    def uses(self) -> tuple[dict[Work, Use], dict[Work, Use]]:
        """What each compute work of both sides takes per step."""
        return _both(uses(runs, lambda trace: trace.compute)[0] for runs in self.runs)

    def spent_ns(self, chosen: Callable[[Work], bool]) -> tuple[int, int]:
        """The time of the chosen compute works on both sides, ns per step."""
        return _both(sum(use.total_ns for work, use in side.items() if chosen(work)) for side in self.uses)

    def launched(self, chosen: Callable[[Work], bool]) -> tuple[float, float]:
        """How often the chosen compute works run on both sides, per step."""
        return _both(float(sum(use.count for work, use in side.items() if chosen(work))) for side in self.uses)

    @cached_property
    def groups(self) -> dict[str, int]:
        """The change of compute by what the rows are, ns per step; they sum to that of the waterfall's bar."""
        return group_changes(*self.uses, self.waterfall.bar("compute").delta_ns)

    @property
    def is_cpu(self) -> bool:
        """Whether the CPU is the device."""
        return self.baseline.traces[0].is_cpu

    @property
    def per(self) -> str:
        """What times are counted by: "per step", or "in the window" where no steps were found."""
        return "per step" if self.baseline.traces[0].has_steps else "in the window"

    @property
    def each(self) -> str:
        """The same as the subject of a sentence."""
        return "a step" if self.baseline.traces[0].has_steps else "a window"

    @cached_property
    def lost(self) -> str:
        """What is known of lost records: the failed check of a side, "" where all were recorded."""
        return next(iter(self._seen(LOST.id, QUALITY.limit(LOST.id))), "")

    @cached_property
    def hidden(self) -> str:
        """What is known of kernels that a trace does not show: lost, or inside graphs; "" where all are there."""
        return self.lost or next(iter(self._seen(WHOLE_GRAPHS.id, HIDDEN)), "")

    @property
    def shows_kernels(self) -> bool:
        """Whether both sides show the kernels that ran."""
        return not self.is_cpu and not self.hidden

    def _seen(self, check_id: str, least: float) -> list[str]:
        """What a check says where it saw more than `least`."""
        return [
            f"{side.name}: {check.message}"
            for side in self.sides
            for trace in side.traces
            for check in trace.report.checks
            if check.id == check_id and (check.value or 0) > least
        ]

    def change(self, token: str) -> int:
        """What the candidate spends more, ns per step: in a part of the budget, or in a group of compute.

        Without a lone slow step, for parts.
        """
        return self.groups[token] if token.startswith(PREFIX) else self.steady.bar(token).delta_ns

    def rates(self, value: Callable[[Measured], int]) -> tuple[float, float]:
        """The mean per step of a sum over the window, on both sides."""
        return self.rate(0, value), self.rate(1, value)

    def rates_by_name(self, values: Callable[[Measured], Mapping[str, int]]) -> dict[str, tuple[float, float]]:
        """The same of several sums, by their names, sorted; 0 where a trace has none of that name."""
        names = sorted({name for trace in self.traces for name in values(trace)})
        return {name: self.rates(lambda trace: values(trace).get(name, 0)) for name in names}  # noqa: B023 - called here

    def rate(self, side: int, value: Callable[[Measured], int]) -> float:
        """The mean per step of a sum over the window, on the baseline's side (0) or the candidate's (1)."""
        return float(per_step(self.runs[side], value))

    @cached_property
    def comm_busy_ns(self) -> tuple[float, float]:
        """The time with communication on both sides, ns per step."""
        return self.rates(lambda trace: trace.comm.busy_ns)

    @cached_property
    def comm_hidden_ns(self) -> tuple[float, float]:
        """The part of it under compute."""
        return self.rates(lambda trace: trace.comm.hidden_ns)

    @cached_property
    def compute_busy_ns(self) -> tuple[float, float]:
        """The time with compute on both sides, ns per step."""
        return self.rates(lambda trace: trace.compute.busy_ns)

    @property
    def steps_ns(self) -> tuple[int, int]:
        """The mean step of both sides, ns."""
        return self.waterfall.baseline_ns, self.waterfall.candidate_ns

    def fraction(self, duration_ns: float) -> float:
        """A time per step as a share of the baseline's step, 0-1 and beyond."""
        return duration_ns / self.waterfall.baseline_ns if self.waterfall.baseline_ns else 0.0

    def part_name(self, *parts: str) -> str:
        """The words for parts of the budget."""
        return words(*parts, is_cpu=self.is_cpu)

    def part_shown(self, name: str) -> Evidence:
        """One part of the budget on both sides."""
        bar = self.waterfall.bar(name)
        return self.time_shown(self.part_name(name), name, (bar.baseline_ns, bar.candidate_ns))

    def time_shown(self, what: str, metric: str, times: Sequence[float]) -> Evidence:
        """A time per step on both sides, ns."""
        return change(f"{what} {moved(times, format_ns, self.per)}", metric, times)

    def comm_shown(self) -> Evidence:
        """The time of communication on both sides, whatever runs beside it."""
        return self.time_shown("communication, alone or not,", "comm_busy", self.comm_busy_ns)

    def counted(self, what: str, metric: str, value: Callable[[Measured], int]) -> Evidence:
        """How often something happens, on both sides."""
        counts = tuple(round(rate, 1) for rate in self.rates(value))
        return change(f"{what} {counts_moved(counts, self.per)}", metric, counts, "count")

    def operations_shown(self) -> Evidence:
        """How many operators or kernels and copies run, on both sides."""
        what = "operators" if self.is_cpu else "kernels and copies"
        return self.counted(what, "operations", lambda trace: trace.counts.operators)

    def launches_shown(self) -> Evidence:
        """How much is launched, on both sides."""
        return self.counted("launches", "launches", lambda trace: trace.counts.launches)

    @cached_property
    def kernels(self) -> tuple[Pool, Pool]:
        """The compute rows of both sides."""
        return _both(pooled(runs, lambda trace: trace.compute) for runs in self.runs)

    @cached_property
    def collectives(self) -> tuple[Pool, Pool]:
        """The communication rows of both sides."""
        return _both(pooled(runs, lambda trace: trace.comm) for runs in self.runs)

    @cached_property
    def drift(self) -> Slowdown | None:
        """How the kernels that ran alone on both sides differ."""
        return drift(*self.kernels)


Value = TypeVar("Value")


def _both(values: Iterable[Value]) -> tuple[Value, Value]:
    first, second = values
    return first, second


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What is read from both sides, and what of the step's change it stands for."""

    finding: Finding
    claims: tuple[str, ...] = ()
    """Parts of the budget and groups of compute whose change it explains, as far as no reading before it does."""
    explained_ns: int | None = None
    """Where that is no whole part: the change of the step that it explains, ns per step."""


COMPUTE = tuple(PREFIX + name for name in GROUPS)
"""All groups of compute."""


def reading(
    kind: FindingKind,
    title: str,
    *evidence: Evidence,
    fix: str,
    confidence: float,
    claims: tuple[str, ...] = (),
    explained_ns: int | None = None,
) -> Reading:
    """A reading; its finding weighs what it explains, once that is worked out."""
    finding = kind.found(title=title, confidence=confidence, recoverable_ns=0, fraction=1.0, evidence=evidence, fix=fix)
    return Reading(finding=finding, claims=claims, explained_ns=explained_ns)


def measure(statement: str, metric: str, value: float, unit: str = "ns", *, expected: str | None = None) -> Evidence:
    """A number that both sides give; `metric` is said without its `compare.`."""
    return Evidence(statement=statement, metric=f"compare.{metric}", value=float(value), unit=unit, expected=expected)


def change(statement: str, metric: str, both: Sequence[float], unit: str = "ns") -> Evidence:
    """By how much a number changed from side to side; `metric` is said without `_change`."""
    return measure(statement, f"{metric}_change{'_ns' if unit == 'ns' else ''}", both[1] - both[0], unit)


def moved(both: Sequence[float], shown: Callable[[float], str], of: str = "") -> str:
    """`12 -> 34 per step`, or `12 per step on both sides` where they read the same; `of` is what is counted."""
    before, after = map(shown, both)
    tail = f" {of}" if of else ""
    return f"{before}{tail} on both sides" if before == after else f"{before} -> {after}{tail}"


def counts_moved(both: Sequence[float], of: str = "") -> str:
    """The same of counts per step, which are seldom whole."""
    return moved(both, lambda count: format_count(round(count, 1)), of)


def is_within(share: float, both: Sequence[float]) -> bool:
    """Whether the smaller of two numbers lacks at most this share (0-1) of the larger one."""
    return min(both) >= (1 - share) * max(both)
