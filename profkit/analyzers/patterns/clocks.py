"""Whether the device ran below its clock, by the samples that profkit capture took beside the recorded steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from profkit.analyzers.base import Analyzer, Scope, scope_of
from profkit.findings.patterns import THROTTLED
from profkit.model.documents.rank_report import Section
from profkit.model.finding import Evidence, Finding, NextTool, Skipped
from profkit.shell import line_of
from profkit.timeline import Facts
from profkit.units import format_fraction

_CONFIDENCE: Final = 0.7
"""The driver names the reason; how much of the work follows the clock is not known. Chosen."""
_WHY: Final = {
    "thermal": ("the GPU lowers its clock because it is too hot", "of heat"),
    "hardware": ("the hardware lowers the GPU's clock (power brake or slowdown)", "its hardware asked for it"),
    "power": ("the GPU lowers its clock to stay within its power limit", "of its power limit"),
}
"""A title, and the reason in a sentence; in the order of the fixes."""
_BY_HEAT: Final = "the CPU lowers its clock because it is too hot"


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """Samples over the recorded steps without those of an idle device; clocks in MHz, 0 or None where not told."""

    scope: Scope
    n: int
    mhz: int
    highest_mhz: int
    held_mhz: int
    """The mean clock of the samples in which its main reason held it back."""
    n_held: dict[str, int]
    """Samples by the reason: "thermal", "hardware", "power"."""
    throttled_share: float | None
    """Share (0-1) of the time in which the CPU was throttled by heat."""
    told: dict[str, int]

    @property
    def lost(self) -> float:
        """Share (0-1) of the clock that was held back for its main reason, over the time."""
        if self.throttled_share is not None:
            return self.throttled_share * max(1 - self.mhz / self.highest_mhz, 0.0)
        return self.n_held[self.reason] / self.n * max(1 - self.held_mhz / self.highest_mhz, 0.0)

    @property
    def reason(self) -> str:
        """What held it back most often."""
        return max(self.n_held, key=lambda kind: self.n_held[kind])

    @property
    def is_usual(self) -> bool:
        """Whether it is the power limit that the board came with, or may be: products of large matrices reach that."""
        limit, default = self.told.get("limit_mw"), self.told.get("default_limit_mw")
        is_lowered = limit is not None and default is not None and limit < default
        return self.throttled_share is None and self.reason == "power" and not is_lowered


def measure(facts: Facts) -> Clocks | Skipped:
    """Read what the capture wrote."""
    told = dict(facts.trace.meta.clocks)
    n, mhz, highest = (told.get(key, 0) for key in ("n", "mhz", "highest_mhz"))
    if n < THROTTLED.limit("samples") or not mhz or not highest:
        return Skipped(
            analyzer="clocks",
            reason="the trace does not say at which clock the device ran",
            how_to_get="profkit capture on a machine with nvidia-smi, or with cpufreq; steps of half a second or more",
        )
    sampled, throttled = told.get("sampled_ms"), told.get("throttled_ms")
    return Clocks(
        scope=scope_of(facts),
        n=n,
        mhz=mhz,
        highest_mhz=highest,
        held_mhz=told.get("held_mhz", highest),
        n_held={kind: min(told.get(f"n_{kind}", 0), n) for kind in _WHY},
        throttled_share=min(throttled / sampled, 1.0) if sampled and throttled is not None else None,
        told=told,
    )


def judge(result: Clocks) -> tuple[Finding, ...]:
    """`clock.throttled` where the compute could be shorter by enough, at the full clock."""
    scope = result.scope
    lost = min(result.lost, 1.0) * scope.budget.fraction("compute")
    if lost < THROTTLED.limit("window") or result.is_usual:
        return ()
    by_heat = result.throttled_share is not None
    return (
        THROTTLED.found(
            title=_BY_HEAT if by_heat else _WHY[result.reason][0],
            fraction=lost,
            confidence=_CONFIDENCE,
            recoverable_ns=scope.per_step(round(lost * scope.window_ns)),
            evidence=tuple(_evidence(result)),
            fix=THROTTLED.fixes[0 if by_heat else list(_WHY).index(result.reason)],
            next_tools=() if by_heat else (_next(),),
        ),
    )


def _evidence(result: Clocks) -> Iterator[Evidence]:
    told, reason = result.told, result.reason
    highest = f"MHz on average, {result.highest_mhz:,} MHz is its highest clock"
    if result.throttled_share is not None:
        share = format_fraction(result.throttled_share)
        said = f"the CPU was throttled by heat for {share} of the recorded time; its fastest core ran at {result.mhz:,} {highest}"
        yield Evidence(said, "clocks.mhz", float(result.mhz), "MHz")
        return
    held = f"in {result.n_held[reason]} of {result.n} samples the clock was held back because {_WHY[reason][1]}"
    yield Evidence(f"{held}: {result.held_mhz:,} {highest}", "clocks.held_mhz", float(result.held_mhz), "MHz")
    if "temperature_c" in told:
        said = f"its temperature was {told['temperature_c']} degrees C at most"
        yield Evidence(said, "clocks.temperature_c", float(told["temperature_c"]), "C")
    if {"power_mw", "limit_mw"} <= told.keys():
        default = told.get("default_limit_mw")
        usual = f"; by default that is {default / 1000:,.0f} W" if default else ""
        said = (
            f"it drew {told['power_mw'] / 1000:,.0f} W on average; its limit is {told['limit_mw'] / 1000:,.0f} W{usual}"
        )
        yield Evidence(said, "clocks.power_mw", float(told["power_mw"]), "mW")


def _next() -> NextTool:
    return NextTool(
        name="nvidia-smi",
        line=line_of("nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE"),
        purpose="what holds the clock back? run it on that machine while the job trains",
        look_for="active slowdown reasons; a power limit below the default one",
    )


def present(result: Clocks) -> Section:
    """Show what was read."""
    return Section(analyzer="clocks", title="clock", values={**result.told})


CLOCKS = Analyzer(
    name="clocks",
    question="did the device run at its full clock?",
    needs="samples that profkit capture takes with nvidia-smi, or of Linux' cpufreq",
    measure=measure,
    judge=judge,
    present=present,
)
