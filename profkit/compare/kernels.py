"""Two sides of ncu's profiles to a comparison: is each kernel faster, and what moved with it.

In: profiles of both sides. Out: a `KernelComparison`. Begin with `compare_kernels`.

A profile is one launch, replayed alone, on clocks that may not have been held. So a small difference is none, another
device is not compared, and other clocks are said: then the cycles count, or nothing does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import median
from typing import Final

import msgspec

from profkit.kernels.claims import DURATION
from profkit.kernels.roofline import tensor_metric
from profkit.kernels.speed import (
    ACHIEVED,
    LOW_PERCENT,
    MEMORY_THROUGHPUT,
    SM_THROUGHPUT,
    THEORETICAL,
    WAVES,
    speed_of_light,
)
from profkit.kernels.stalls import LATENCY, stalls
from profkit.model.documents.kernel_comparison import (
    KernelAnswer,
    KernelChange,
    KernelComparison,
    KernelSide,
    MatchedBy,
    MetricChange,
)
from profkit.model.grouped import grouped
from profkit.model.kernel import KernelProfile, SpeedOfLight

SAME: Final = 0.05
"""A change of time below this share is none. Chosen: profiles of one launch, one after the other, differ by less."""
CLOCK: Final = 0.02
"""Clocks that differ by more are different clocks. Chosen: with a change of 3 % beside it, one would be called one."""
_LEAST: Final = 1.0
"""A launch takes a nanosecond, and a cycle, or what a page says of it is nonsense."""
CYCLES: Final = "gpc__cycles_elapsed.max"
SM_CLOCK: Final = "gpc__cycles_elapsed.avg.per_second"
DRAM_CLOCK: Final = "dram__cycles_elapsed.avg.per_second"
DRAM_THROUGHPUT: Final = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
MOVED_POINTS: Final = 2.0
"""Points from which on a percentage has moved. Chosen: profiles of one launch differ by about one."""
MOVED_SHARE: Final = 0.05
"""Share from which on another number has moved. Chosen, as for time (`SAME`)."""

_SHOWN: Final = (
    (CYCLES, "cycles", "cycle"),
    (SM_CLOCK, "SM clock", "Hz"),
    (DRAM_CLOCK, "DRAM clock", "Hz"),
    (SM_THROUGHPUT, "compute throughput", "%"),
    (MEMORY_THROUGHPUT, "memory throughput", "%"),
    (DRAM_THROUGHPUT, "DRAM throughput", "%"),
    ("lts__throughput.avg.pct_of_peak_sustained_elapsed", "L2 throughput", "%"),
    ("l1tex__throughput.avg.pct_of_peak_sustained_active", "L1/TEX throughput", "%"),
    ("dram__bytes_read.sum", "DRAM read", "byte"),
    ("dram__bytes_write.sum", "DRAM written", "byte"),
    ("dram__bytes.sum.per_second", "DRAM rate", "byte/s"),
    ("l1tex__t_sector_hit_rate.pct", "L1/TEX hit rate", "%"),
    ("lts__t_sector_hit_rate.pct", "L2 hit rate", "%"),
    ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "bank conflicts", ""),
    ("smsp__inst_executed.sum", "instructions", ""),
    ("smsp__issue_active.avg.per_cycle_active", "instructions per cycle and scheduler", ""),
    (LATENCY, "cycles between two instructions of a warp", "cycle"),
    (THEORETICAL, "theoretical occupancy", "%"),
    (ACHIEVED, "achieved occupancy", "%"),
    ("launch__registers_per_thread", "registers per thread", ""),
    ("launch__shared_mem_per_block_static", "static shared memory per block", "byte"),
    ("launch__shared_mem_per_block_dynamic", "dynamic shared memory per block", "byte"),
    (WAVES, "waves per SM", ""),
)
"""Metric, what it is called, its unit."""
_DROPPED: Final = re.compile(r"\bat::native::|\bvoid |\(anonymous namespace\)::|<unnamed>::|\((?:int|bool|long)\)|\s+")
"""What newer versions of ncu leave out of a name that older ones print."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The launches of one kernel in one size on one side, in their order."""

    launches: tuple[KernelProfile, ...]

    @property
    def first(self) -> KernelProfile:
        """The launch that stands for what all have in common."""
        return self.launches[0]

    @property
    def typical(self) -> SpeedOfLight:
        """The verdict on the launch of median duration."""
        ordered = sorted(self.launches, key=lambda one: one.metrics.get(DURATION, 0.0))
        return speed_of_light(ordered[len(ordered) // 2])

    def all_of(self, metric: str) -> list[float]:
        """The values of the launches that have it, in their order."""
        return [one.metrics[metric] for one in self.launches if metric in one.metrics]

    def median(self, metric: str) -> float | None:
        """The median over launches; None where no launch has it."""
        return _median(self.all_of(metric))

    def is_plausible(self, metric: str) -> bool:
        """Whether a launch has it, and none has too little of it."""
        return all(value >= _LEAST for value in self.all_of(metric) or [0.0])


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel on both sides, and by what it is the same."""

    by: MatchedBy
    before: Group
    after: Group

    @property
    def sides(self) -> tuple[Group, Group]:
        """Both sides."""
        return self.before, self.after


def compare_kernels(
    before: Sequence[KernelProfile],
    after: Sequence[KernelProfile],
    *,
    sources: tuple[Sequence[str], Sequence[str]],
    warnings: Sequence[str] = (),
) -> KernelComparison:
    """What changed between two sides, the kernels whose time changed most first."""
    matches, only_before, only_after = _matched(before, after)
    return KernelComparison(
        before=tuple(sources[0]),
        after=tuple(sources[1]),
        kernels=tuple(sorted(map(_compared, matches), key=lambda one: -abs(one.saved_ns))),
        only_before=_longest_first(only_before),
        only_after=_longest_first(only_after),
        warnings=(*warnings, *_unknown_clocks(matches)),
    )


# ------------------------------------------------------------------------------------------------------ the same kernel


def _name(profile: KernelProfile) -> str:
    return _DROPPED.sub("", profile.name)


def _name_and_size(profile: KernelProfile) -> Hashable:
    return _name(profile), profile.grid, profile.block


_RULES: Final[tuple[tuple[MatchedBy, Callable[[KernelProfile], Hashable]], ...]] = (
    (MatchedBy.NAME, _name_and_size),
    (MatchedBy.FUNCTION, lambda profile: (profile.function, profile.grid, profile.block)),
    (MatchedBy.FUNCTION_ALONE, _name),
    (MatchedBy.FUNCTION_ALONE, lambda profile: profile.function),
)


def _matched(
    before: Iterable[KernelProfile], after: Iterable[KernelProfile]
) -> tuple[list[Match], list[Group], list[Group]]:
    """The same kernels of two sides, and what has no partner on either.

    Each rule takes what the ones before it left. Beyond name and size, a pair needs to be the only candidate on both
    sides: two kernels of one function are told apart by nothing else.
    """
    left, right = (
        [Group(launches=tuple(one)) for one in grouped((_name_and_size(launch), launch) for launch in side).values()]
        for side in (before, after)
    )
    is_single = len(left) == len(right) == 1
    found: list[Match] = []
    for by, key in _RULES:
        sides = [grouped((key(group.first), group) for group in groups) for groups in (left, right)]
        shared = [(sides[0][name], sides[1][name]) for name in sides[0] if name in sides[1]]
        pairs = [(ones[0], others[0]) for ones, others in shared if len(ones) == len(others) == 1]
        found += [Match(by=by, before=one, after=other) for one, other in pairs]
        left = [group for group in left if all(group is not one for one, _ in pairs)]
        right = [group for group in right if all(group is not other for _, other in pairs)]
    if is_single and left:
        return [Match(by=MatchedBy.ALONE, before=left[0], after=right[0])], [], []
    return found, left, right


# ----------------------------------------------------------------------------------------------------------- one kernel


def _compared(match: Match) -> KernelChange:
    metric, caveat = _compared_by(match)
    answer, change = KernelAnswer.NOT_COMPARABLE, None
    if metric:
        answer, change = _answer(match.before.all_of(metric), match.after.all_of(metric))
    return KernelChange(
        function=match.before.first.function,
        matched_by=match.by,
        before=_side(match.before),
        after=_side(match.after),
        answer=answer,
        measure="cycles" if metric == CYCLES else "duration",
        change=change,
        metrics=_metrics(match),
        caveats=tuple(filter(None, (_KINSHIP[match.by], caveat))),
    )


def _longest_first(groups: Sequence[Group]) -> tuple[KernelSide, ...]:
    return tuple(sorted(map(_side, groups), key=lambda side: -(side.duration_ns or 0.0)))


def _side(group: Group) -> KernelSide:
    durations = group.all_of(DURATION)
    return KernelSide(
        name=group.first.name,
        grid=group.first.grid,
        block=group.first.block,
        n_launches=sum(one.n_launches for one in group.launches),
        kernel_class=group.typical.kernel_class,
        duration_ns=_median(durations),
        least_ns=min(durations, default=None),
        longest_ns=max(durations, default=None),
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


def _compared_by(match: Match) -> tuple[str, str]:
    """The metric that two sides are compared by (time, cycles where the clocks differ, "" for none), and a caveat."""
    before, after = match.sides
    devices = [(side.first.device_name, side.first.compute_capability) for side in match.sides]
    if any(one and other and one != other for one, other in zip(*devices, strict=True)):
        said = [", ".join(filter(None, (name, cc and f"compute capability {cc}"))) for name, cc in devices]
        return "", f"different devices ({said[0]}, then {said[1]}): times are not compared"
    if not all(side.is_plausible(DURATION) for side in match.sides):
        return "", "a side has no duration (gpu__time_duration.sum)"
    if any(len(side.all_of(DURATION)) < len(side.launches) for side in match.sides):  # others than those may be left
        return "", "not every launch has a duration (gpu__time_duration.sum)"
    sm, dram = ((before.median(metric), after.median(metric)) for metric in (SM_CLOCK, DRAM_CLOCK))
    is_dram_bound = max(side.median(DRAM_THROUGHPUT) or 0.0 for side in match.sides) >= LOW_PERCENT
    if _differ(*dram) and is_dram_bound:
        return "", f"the DRAM clock was {_ghz(dram)}, and DRAM is busy: times are not compared"
    if not _differ(*sm):
        return DURATION, ""
    told = f"the SM clock was {_ghz(sm)}"
    if is_dram_bound:
        return DURATION, f"{told}; DRAM is busy and its clock did not change: compared by time"
    if all(side.is_plausible(CYCLES) for side in match.sides):
        return CYCLES, f"{told}: compared by cycles, not by time"
    return "", f"{told}: times are not compared"


def _differ(before: float | None, after: float | None) -> bool:
    return bool(before and after) and abs((after or 0.0) / (before or 1.0) - 1) > CLOCK


def _ghz(clocks: tuple[float | None, float | None]) -> str:
    return " before and ".join(f"{(clock or 0.0) / 1e9:.3g} GHz" for clock in clocks) + " after"


_KINSHIP: Final = {
    MatchedBy.NAME: "",
    MatchedBy.FUNCTION: "same function and launch size, but other template arguments: it may be another kernel",
    MatchedBy.FUNCTION_ALONE: "the launch size differs: the same kernel only if it does the same work",
    MatchedBy.ALONE: "the names differ: compared only because each side holds one kernel",
}


def _unknown_clocks(matches: Sequence[Match]) -> list[str]:
    if all(side.median(SM_CLOCK) for match in matches for side in match.sides):
        return []
    return ["not every page has the clocks: another clock would show as another time (ncu --section SpeedOfLight)"]


# -------------------------------------------------------------------------------------------------------------- metrics


def _metrics(match: Match) -> tuple[MetricChange, ...]:
    """Every number that both sides have."""
    before, after = match.sides
    found = [
        _change(metric, label, unit, before.median(metric), after.median(metric)) for metric, label, unit in _SHOWN
    ]
    tensor = [_tensor(side) for side in match.sides]
    found.append(_change(tensor[0][0] or tensor[1][0], "tensor cores", "%", tensor[0][1], tensor[1][1]))
    shares = [_stall_shares(side) for side in match.sides]
    for reason in dict.fromkeys((*shares[0], *shares[1])) if all(shares) else ():
        metric = f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
        found.append(_change(metric, f"stall {reason}", "%", *(side.get(reason) for side in shares)))
    return tuple(one for one in found if one is not None)


def _change(metric: str, label: str, unit: str, before: float | None, after: float | None) -> MetricChange | None:
    if before is None or after is None:
        return None
    step = MOVED_POINTS if unit == "%" else MOVED_SHARE * abs(before)
    has_moved = before != after and abs(after - before) >= step
    return MetricChange(metric=metric, label=label, unit=unit, before=before, after=after, has_moved=has_moved)


def _tensor(side: Group) -> tuple[str, float | None]:
    """The metric's name changes with the device and the version, so each launch is asked for its own."""
    named = [(name, one.metrics[name]) for one in side.launches if (name := tensor_metric(one.metrics))]
    return named[0][0] if named else "", _median([value for _, value in named])


def _stall_shares(side: Group) -> dict[str, float]:
    """Each reason's share of a warp's time, percent."""
    found = grouped((stall.reason, 100 * stall.fraction) for launch in side.launches for stall in stalls(launch))
    return {reason: median(values) for reason, values in found.items()}


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None
