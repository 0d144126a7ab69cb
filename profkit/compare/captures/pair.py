"""Two sides with their accounts, as the readings look at them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import msgspec

from profkit.compare.captures.contention import Pool, Slowdown, drift, pooled
from profkit.compare.captures.measured import Measured
from profkit.compare.captures.sides import Side
from profkit.compare.captures.waterfall import Runs, per_step
from profkit.findings.kind import FindingKind
from profkit.model.budget import words
from profkit.model.documents.comparison import Account, Waterfall
from profkit.model.finding import Evidence, Finding
from profkit.units import format_count, format_ns


class Pair(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Two sides whose steps may be set against each other."""

    baseline: Side
    candidate: Side
    waterfall: Waterfall
    compute: Account
    comm: Account

    @property
    def runs(self) -> tuple[Runs, Runs]:
        """The traces of the runs of both sides."""
        first, second = ([run.traces for run in side.runs] for side in (self.baseline, self.candidate))
        return first, second

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

    def rates(self, value: Callable[[Measured], int]) -> tuple[float, float]:
        """The mean per step of a sum over the window, on both sides."""
        return self.rate(0, value), self.rate(1, value)

    def rate(self, side: int, value: Callable[[Measured], int]) -> float:
        """The mean per step of a sum over the window, on the baseline's side (0) or the candidate's (1)."""
        return float(per_step(self.runs[side], value))

    def fraction(self, duration_ns: float) -> float:
        """A time per step as a share of the baseline's step, 0-1 and beyond."""
        return duration_ns / self.waterfall.baseline_ns if self.waterfall.baseline_ns else 0.0

    @cached_property
    def kernels(self) -> tuple[Pool, Pool]:
        """The compute rows of both sides."""
        first, second = (pooled(runs, lambda trace: trace.compute) for runs in self.runs)
        return first, second

    @cached_property
    def collectives(self) -> tuple[Pool, Pool]:
        """The communication rows of both sides."""
        first, second = (pooled(runs, lambda trace: trace.comm) for runs in self.runs)
        return first, second

    @cached_property
    def drift(self) -> Slowdown | None:
        """How the kernels that ran alone on both sides differ."""
        return drift(*self.kernels)


def reading(
    kind: FindingKind, title: str, *, fraction: float, evidence: tuple[Evidence, ...], fix: str, confidence: float
) -> Finding:
    """A reading as a finding; `fraction` is its effect's share of the baseline's step, of either sign."""
    weight = min(abs(fraction), 1.0)
    return kind.found(
        title=title,
        confidence=confidence,
        recoverable_ns=0,
        fraction=weight,
        evidence=evidence,
        fix=fix,
    )


def moved(before: str, after: str, *, of: str = "") -> str:
    """`12 -> 34 per step`, or `12 per step on both sides` where they read the same; `of` is what is counted."""
    tail = f" {of}" if of else ""
    return f"{before}{tail} on both sides" if before == after else f"{before} -> {after}{tail}"


def part_name(pair: Pair, *parts: str) -> str:
    """The words for parts of the budget."""
    return words(*parts, is_cpu=pair.is_cpu)


def part_shown(pair: Pair, name: str) -> Evidence:
    """One part of the budget on both sides."""
    bar = pair.waterfall.bar(name)
    times = moved(format_ns(bar.baseline_ns), format_ns(bar.candidate_ns), of=pair.per)
    return Evidence(
        statement=f"{part_name(pair, name)} {times}",
        metric=f"compare.{name}_change_ns",
        value=float(bar.delta_ns),
        unit="ns",
    )


def counted(pair: Pair, what: str, metric: str, value: Callable[[Measured], int]) -> Evidence:
    """How often something happens, on both sides."""
    before, after = (round(rate, 1) for rate in pair.rates(value))
    return Evidence(
        statement=f"{what} {moved(format_count(before), format_count(after), of=pair.per)}",
        metric=f"compare.{metric}_change",
        value=after - before,
        unit="count",
    )
