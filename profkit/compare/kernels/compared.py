"""Two sides of ncu's profiles to a comparison: is each kernel faster, and what moved with it.

A profile is one launch, replayed alone, on clocks that may not have been held. So a small difference is none, another
device is not compared, and other clocks are said: then the cycles count, or nothing does.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Final

import msgspec

from profkit.compare.kernels.matching import Group, Match, matched
from profkit.compare.kernels.metrics import CYCLES, DRAM_CLOCK, DRAM_THROUGHPUT, SM_CLOCK, Values, changes
from profkit.kernels.claims import DURATION
from profkit.kernels.speed import LOW_PERCENT, speed_of_light
from profkit.model.documents.kernel_comparison import (
    KernelAnswer,
    KernelChange,
    KernelComparison,
    KernelSide,
    MatchedBy,
)
from profkit.model.kernel import KernelProfile, SpeedOfLight

SAME: Final = 0.05
"""A change of time below this share is none. Chosen: profiles of one launch, one after the other, differ by less."""
CLOCK: Final = 0.02
"""Clocks that differ by more are different clocks. Chosen: with a change of 3 % beside it, one would be called one."""
_LEAST: Final = 1.0
"""A launch takes a nanosecond, and a cycle, or what a page says of it is nonsense."""


class _Ruling(msgspec.Struct, frozen=True, kw_only=True):
    """By what metric two sides are compared, "" for by none, and what to say about it."""

    metric: str
    caveat: str = ""


def compare_kernels(
    before: Sequence[KernelProfile],
    after: Sequence[KernelProfile],
    *,
    sources: tuple[Sequence[str], Sequence[str]],
    warnings: Sequence[str] = (),
) -> KernelComparison:
    """What changed between two sides, the kernels whose time changed most first."""
    found = matched(before, after)
    kernels = sorted(map(_compared, found.matches), key=lambda one: -abs(one.saved_ns))
    return KernelComparison(
        before=tuple(sources[0]),
        after=tuple(sources[1]),
        kernels=tuple(kernels),
        only_before=_longest_first(found.only_before),
        only_after=_longest_first(found.only_after),
        warnings=(*warnings, *_unknown_clocks(found.matches)),
    )


def _longest_first(groups: Sequence[Group]) -> tuple[KernelSide, ...]:
    return tuple(sorted(map(_side, groups), key=lambda side: -(side.duration_ns or 0.0)))


def _side(group: Group) -> KernelSide:
    durations = Values(launches=group.launches).all_of(DURATION)
    return KernelSide(
        name=group.first.name,
        grid=group.first.grid,
        block=group.first.block,
        n_launches=sum(one.n_launches for one in group.launches),
        kernel_class=_typical(group).kernel_class,
        duration_ns=median(durations) if durations else None,
        least_ns=min(durations, default=None),
        longest_ns=max(durations, default=None),
    )


def _typical(group: Group) -> SpeedOfLight:
    """The verdict on the launch of median duration."""
    ordered = sorted(group.launches, key=lambda one: one.metrics.get(DURATION, 0.0))
    return speed_of_light(ordered[len(ordered) // 2])


def _compared(match: Match) -> KernelChange:
    before, after = (Values(launches=group.launches) for group in (match.before, match.after))
    ruling = _ruling(match, before, after)
    answer, change = KernelAnswer.NOT_COMPARABLE, None
    if ruling.metric:
        answer, change = _answer(before.all_of(ruling.metric), after.all_of(ruling.metric))
    return KernelChange(
        function=match.before.first.function,
        matched_by=match.by,
        before=_side(match.before),
        after=_side(match.after),
        answer=answer,
        measure="cycles" if ruling.metric == CYCLES else "duration",
        change=change,
        metrics=changes(before, after),
        caveats=tuple(filter(None, (_kinship(match), ruling.caveat))),
    )


def _answer(before: Sequence[float], after: Sequence[float]) -> tuple[KernelAnswer, float]:
    """Faster, slower or neither, and the relative change; launches are paired in their order where counts agree."""
    if len(before) == len(after):
        ratios = [new / old for old, new in zip(before, after, strict=True)]
    else:
        ratios = [median(after) / median(before), min(after) / max(before), max(after) / min(before)]
    change = median(ratios) - 1 if len(before) == len(after) else ratios[0] - 1
    is_less, is_more = min(ratios) < 1 - SAME, max(ratios) > 1 + SAME
    if is_less and is_more:
        return KernelAnswer.UNCLEAR, change
    if abs(change) < SAME:
        return KernelAnswer.SAME, change
    return (KernelAnswer.FASTER if change < 0 else KernelAnswer.SLOWER), change


def _ruling(match: Match, before: Values, after: Values) -> _Ruling:
    """What the two sides can be compared by: time, cycles where the clocks differ, or nothing."""
    devices = [_device(group.first) for group in (match.before, match.after)]
    if any(one and other and one != other for one, other in zip(*devices, strict=True)):
        said = [", ".join(filter(None, (name, cc and f"compute capability {cc}"))) for name, cc in devices]
        return _Ruling(metric="", caveat=f"different devices ({said[0]}, then {said[1]}): times are not compared")
    if not all(value >= _LEAST for side in (before, after) for value in side.all_of(DURATION) or [0.0]):
        return _Ruling(metric="", caveat="a side has no duration (gpu__time_duration.sum)")
    if any(
        len(side.all_of(DURATION)) < len(side.launches) for side in (before, after)
    ):  # others than those may be left
        return _Ruling(metric="", caveat="not every launch has a duration (gpu__time_duration.sum)")
    clocks = {metric: (before.median(metric), after.median(metric)) for metric in (SM_CLOCK, DRAM_CLOCK)}
    sm, dram = (_differ(*clocks[metric]) for metric in (SM_CLOCK, DRAM_CLOCK))
    is_dram_bound = max(before.median(DRAM_THROUGHPUT) or 0.0, after.median(DRAM_THROUGHPUT) or 0.0) >= LOW_PERCENT
    if dram and is_dram_bound:
        told = f"the DRAM clock was {_ghz(clocks[DRAM_CLOCK])}, and DRAM is busy: times are not compared"
        return _Ruling(metric="", caveat=told)
    if not sm:
        return _Ruling(metric=DURATION)
    told = f"the SM clock was {_ghz(clocks[SM_CLOCK])}"
    if is_dram_bound:
        return _Ruling(metric=DURATION, caveat=f"{told}; DRAM is busy and its clock did not change: compared by time")
    if all(value >= _LEAST for side in (before, after) for value in side.all_of(CYCLES) or [0.0]):
        return _Ruling(metric=CYCLES, caveat=f"{told}: compared by cycles, not by time")
    return _Ruling(metric="", caveat=f"{told}: times are not compared")


def _device(profile: KernelProfile) -> tuple[str, str]:
    return profile.device_name, profile.compute_capability


def _differ(before: float | None, after: float | None) -> bool:
    return bool(before and after) and abs((after or 0.0) / (before or 1.0) - 1) > CLOCK


def _ghz(clocks: tuple[float | None, float | None]) -> str:
    return " before and ".join(f"{(clock or 0.0) / 1e9:.3g} GHz" for clock in clocks) + " after"


def _kinship(match: Match) -> str:
    if match.by is MatchedBy.FUNCTION:
        return "same function and launch size, but other template arguments: it may be another kernel"
    if match.by is MatchedBy.FUNCTION_ALONE:
        return "the launch size differs: the same kernel only if it does the same work"
    if match.by is MatchedBy.ALONE:
        return "the names differ: compared only because each side holds one kernel"
    return ""


def _unknown_clocks(matches: Sequence[Match]) -> list[str]:
    sides = [Values(launches=group.launches) for match in matches for group in (match.before, match.after)]
    if all(side.median(SM_CLOCK) for side in sides):
        return []
    return ["not every page has the clocks: another clock would show as another time (ncu --section SpeedOfLight)"]
