"""What a change could save of a launch's time, by topic: ncu's estimates, cut to what can be.

Each rule of ncu estimates alone. A change leaves something as it is: more warps leave instructions and bytes, so that
the busier roof stays; coalescing leaves arithmetic. The reason of each cut is kept in words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from profkit.kernels.speed import (
    DRAM_THROUGHPUT,
    L1_THROUGHPUT,
    L2_THROUGHPUT,
    LOW_PERCENT,
    MEMORY_THROUGHPUT,
    memory_unit,
    occupancy,
    speed_of_light,
    waves,
)
from profkit.kernels.stalls import BUSY_ISSUE, OF_ARITHMETIC, OF_MEMORY, READY, issue_share, stalls
from profkit.model.kernel import (
    Estimate,
    KernelClass,
    KernelProfile,
    Occupancy,
    Rule,
    SpeedOfLight,
    Stall,
    Topic,
    Waves,
)
from profkit.units import format_fraction

DURATION: Final = "gpu__time_duration.sum"
SHORTEST_NS: Final = 5_000.0
"""Chosen: an empty launch takes 1.5 to 3 us on the device (real reports), which no change of the kernel takes away; of
launches below this, a formula's share of the time says nothing."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A profile with what follows from its metrics."""

    profile: KernelProfile
    speed: SpeedOfLight
    held: Occupancy
    filled: Waves | None
    stalls: tuple[Stall, ...]

    @classmethod
    def of(cls, profile: KernelProfile) -> Self:
        """The launch of a profile."""
        return cls(
            profile=profile,
            speed=speed_of_light(profile),
            held=occupancy(profile),
            filled=waves(profile),
            stalls=stalls(profile),
        )

    @property
    def waits(self) -> tuple[Stall, ...]:
        """The reasons but for warps that are ready: what one can do something about."""
        return tuple(stall for stall in self.stalls if stall.reason != READY)

    @property
    def is_too_short(self) -> bool:
        """Whether the launch is hardly longer than an empty one."""
        return 0 < self.profile.metrics.get(DURATION, 0.0) < SHORTEST_NS

    @property
    def compute(self) -> float:
        """Compute throughput as a share of its peak, 0 where it is not known."""
        return min((self.speed.compute_percent or 0.0) / 100, 1.0)

    @property
    def memory(self) -> float:
        """Memory throughput, likewise; that of the level which decided."""
        level = memory_unit(self.profile.metrics) if self.speed.is_by_level else None
        return min((level[2] if level else self.speed.memory_percent or 0.0) / 100, 1.0)


# ------------------------------------------------------------------------------------------------- what ncu's rules say

GLOBAL: Final = "global"
RULES: Final = {
    "UncoalescedGlobalAccess": Topic.ACCESS,
    "MemoryCacheAccessPattern": Topic.ACCESS,
    "LocalMemoryUsage": Topic.SPILLS,
    "SharedMemoryConflicts": Topic.BANKS,
    "UncoalescedSharedAccess": Topic.BANKS,
    "TheoreticalOccupancy": Topic.OCCUPANCY,
    "AchievedOccupancy": Topic.ACHIEVED,
    "Occupancy": Topic.OCCUPANCY,
    "LaunchConfiguration": Topic.GRID,
    "WorkloadImbalance": Topic.SLICES,
    "ThreadDivergence": Topic.DIVERGENCE,
    "CPIStall": Topic.STALL,
    "IssueSlotUtilization": Topic.STALL,
    "FPInstructions": Topic.FUSING,
    "SOLFPRoofline": Topic.PRECISION,
    "SlowPipeLimiter": Topic.PRECISION,
    "MemoryApertureUsage": Topic.PLACE,
    "MemoryL2Compression": Topic.COMPRESSION,
}
_BY_WORDS: Final = (
    ("LaunchConfiguration", "partial wave", Topic.TAIL),
    ("LaunchConfiguration", "masked off", Topic.BLOCK),
    ("MemoryCacheAccessPattern", "for local ", Topic.SPILLS),
    ("Occupancy", "is not impacted by any block limit", Topic.ACHIEVED),
    ("CPIStall", "micro scheduler to select", Topic.READY),
    ("WorkloadImbalance", "SMs have", Topic.IMBALANCE),
    ("WorkloadImbalance", "SMSPs have", Topic.IMBALANCE),
    ("WorkloadImbalance", "L1 Slices have", Topic.IMBALANCE),
)
"""Rules with several topics: words of the message, where the title is on no CSV or text page."""
_OF_STALLS: Final = "CPIStall"
_POINTERS: Final = frozenset({"SOLBottleneck", "HighPipeUtilization"})
"""Rules that say where to look further, which is no advice."""


def topic_of(rule: Rule) -> Topic | None:
    """What a rule is about; None for one that only points to others."""
    if rule.id in _POINTERS:
        return None
    if rule.id.startswith(_OF_STALLS) and rule.id != _OF_STALLS:  # until 2021 a rule for each reason
        return Topic.READY if rule.id.endswith("NotSelected") else Topic.STALL
    said = (topic for name, words, topic in _BY_WORDS if name == rule.id and words in rule.message)
    return next(said, RULES.get(rule.id, Topic.OTHER))


class Told(msgspec.Struct, frozen=True):
    """What a rule estimates, on what, and its words."""

    topic: Topic
    estimate: Estimate
    message: str


def told(rules: Iterable[Rule]) -> list[Told]:
    """The estimates of ncu, the largest first; those of the kernel's time before those of a part of the device."""
    found: list[Told] = []
    for rule in rules:
        topic = topic_of(rule)
        if topic is not None and rule.speedup_fraction:
            # An estimate in percent of the time cannot be all of it; a file may claim more.
            fraction = min(rule.speedup_fraction, 1.0)
            estimate = Estimate(rule=rule.id, fraction=fraction, scope=rule.speedup_scope)
            found.append(Told(topic, estimate, rule.message))
    order = list(Topic)  # of equal ones the cause before the sign
    return sorted(found, key=lambda one: (one.estimate.scope != GLOBAL, -one.estimate.fraction, order.index(one.topic)))


def largest(profile: KernelProfile) -> Told | None:
    """The largest estimate of ncu for the kernel's whole time; None where the file holds none."""
    first = next(iter(told(profile.rules)), None)
    return first if first is not None and first.estimate.scope == GLOBAL else None


# -------------------------------------------------------------------------------------------------- what they would say

# By the formulas of `sections/*.py` of Nsight Compute 2024.1: for pages that hold no rules, and for an ncu of before
# 2024, which gives no estimates or calls them local. Where a page does not hold what a formula needs, it gives 0.

SHORT_OF_ISSUE: Final = 0.6
LOW_OCCUPANCY_PERCENT: Final = 80.0
GAP_PERCENT: Final = 10.0
BIG_STALL: Final = 0.3
FEW_THREADS: Final = 24
LEAST_CONFLICTS: Final = 0.1
LEAST_UNFUSED: Final = 0.1
LEAST_IMBALANCE: Final = 0.05
MOST_WAVES: Final = 5
FULL_OCCUPANCY: Final = 0.8
"""From where on the rules speak: IssueSlotUtilization, TheoreticalOccupancy, AchievedOccupancy, CPIStall,
ThreadDivergence, SharedMemoryConflicts, FPInstructions, WorkloadImbalance; and LaunchConfiguration up to where."""
_WARP: Final = 32
_L1_ELAPSED: Final = "l1tex__throughput.avg.pct_of_peak_sustained_elapsed"
_THREADS: Final = (
    "smsp__thread_inst_executed_per_inst_executed.ratio",
    "smsp__thread_inst_executed_pred_on_per_inst_executed.ratio",
)


def issue_slots(launch: Launch) -> float | None:
    """What issuing more instructions can give of the time, at most what is left below the roof; None if not known."""
    issued = issue_share(launch.profile.metrics)
    if issued is None:
        return None
    return min(1 - issued, 1 - max(launch.compute, launch.memory)) if issued < SHORT_OF_ISSUE else 0.0


def of_warps(launch: Launch) -> Iterable[tuple[Topic, float]]:
    """TheoreticalOccupancy, AchievedOccupancy and CPIStall before they are bounded by the issue slots.

    And the blocks that the grid has fewer than fit on the GPU at once.
    """
    waits, filled = launch.waits, launch.filled
    theory, achieved = launch.held.theoretical_percent, launch.held.achieved_percent
    if theory is not None and theory < LOW_OCCUPANCY_PERCENT:
        yield Topic.OCCUPANCY, 1 - theory / 100
    if theory and achieved is not None and theory - achieved > GAP_PERCENT:
        yield Topic.ACHIEVED, 1 - achieved / theory
    if waits and waits[0].fraction > BIG_STALL and (issue_share(launch.profile.metrics) or 0.0) < BUSY_ISSUE:
        yield Topic.STALL, waits[0].fraction
    if filled is not None and filled.waves < 1:
        yield Topic.GRID, 1 - filled.waves


def of_time(launch: Launch) -> Iterable[tuple[Topic, float]]:
    """What the other rules estimate of the kernel's time."""
    metrics = launch.profile.metrics
    yield from _size_of_launch(launch)
    sectors = max(_excess(metrics, f"memory_l2_{name}sectors_global") for name in ("theoretical_", ""))  # "" in 2020
    yield Topic.ACCESS, sectors * _active(metrics, "lts")
    for space, topic in (("global", Topic.ACCESS), ("local", Topic.SPILLS)):
        yield topic, max(_unused(metrics, space, operation) for operation in ("ld", "st"))
    yield Topic.BANKS, _excess(metrics, "memory_l1_wavefronts_shared") * _active(metrics, "l1tex")
    conflicts = max(_conflicts(metrics, operation) for operation in ("ld", "st"))
    yield Topic.BANKS, conflicts * _share(metrics, L1_THROUGHPUT) if conflicts >= LEAST_CONFLICTS else 0.0
    yield Topic.FUSING, _unfused(metrics)
    yield Topic.IMBALANCE, _imbalance(metrics)
    threads = min((metrics[name] for name in _THREADS if name in metrics), default=_WARP)
    yield Topic.DIVERGENCE, (1 - threads / _WARP) * launch.compute if threads < FEW_THREADS else 0.0


def _size_of_launch(launch: Launch) -> Iterable[tuple[Topic, float]]:
    """LaunchConfiguration; of the last wave the part that is idle, where ncu counts all of it."""
    filled, theory, achieved = launch.filled, launch.held.theoretical_percent, launch.held.achieved_percent
    is_full = theory is not None and achieved is not None and achieved >= FULL_OCCUPANCY * theory
    if filled is not None and filled.n_sms and filled.n_blocks is not None and filled.n_blocks < filled.n_sms:
        yield Topic.GRID, 1 - filled.n_blocks / filled.n_sms
    if filled is not None and 1 < filled.waves < MOST_WAVES and not is_full:
        yield Topic.TAIL, filled.tail_fraction
    threads = math.prod(launch.profile.block or (0,))
    yield Topic.BLOCK, 1 - threads / (_WARP * math.ceil(threads / _WARP)) if threads else 0.0


def _unused(metrics: Mapping[str, float], space: str, operation: str) -> float:
    """MemoryCacheAccessPattern: bytes of a sector that nobody uses, at the level where they take most of the time."""
    name = f"smsp__sass_average_data_bytes_per_sector_mem_{space}_op_{operation}"
    used, most = metrics.get(f"{name}.ratio", 0.0), metrics.get(f"{name}.max_rate", 0.0)
    if not 0 < used < most:
        return 0.0
    missed_l1 = 1 - _share(metrics, f"l1tex__t_sector_pipe_lsu_mem_{space}_op_{operation}_hit_rate.pct")
    missed_l2 = 1 - _share(metrics, f"lts__t_sector_op_{'read' if operation == 'ld' else 'write'}_hit_rate.pct")
    levels = (
        _share(metrics, _L1_ELAPSED),
        _share(metrics, L2_THROUGHPUT) * missed_l1,
        _share(metrics, DRAM_THROUGHPUT) * missed_l1 * missed_l2,
    )
    return (1 - used / most) * max(levels)


def _conflicts(metrics: Mapping[str, float], operation: str) -> float:
    """SharedMemoryConflicts: bank conflicts as a share of the wavefronts."""
    wavefronts = metrics.get(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{operation}.sum", 0.0)
    conflicts = metrics.get(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{operation}.sum", 0.0)
    return min(conflicts / wavefronts, 1.0) if wavefronts > 0 else 0.0


def _unfused(metrics: Mapping[str, float]) -> float:
    """FPInstructions, fp32: half of the additions and multiplications, as far as the FMA pipe is busy."""
    counted = "smsp__sass_thread_inst_executed_op_f{}_pred_on.sum.per_cycle_elapsed"
    added, multiplied, fused = (metrics.get(counted.format(name), 0.0) for name in ("add", "mul", "fma"))
    total = added + multiplied + fused
    saved = (added + multiplied) / total / 2 if total > 0 else 0.0
    busy = _share(metrics, "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active")
    return saved * busy if saved > LEAST_UNFUSED else 0.0


def _imbalance(metrics: Mapping[str, float]) -> float:
    """WorkloadImbalance of SMs: what the longest one works beyond the mean."""
    mean, longest = metrics.get("sm__cycles_active.avg", 0.0), metrics.get("sm__cycles_active.max", 0.0)
    beyond = (1 - mean / longest) * _active(metrics, "sm") if 0 < mean <= longest else 0.0
    return beyond if beyond >= LEAST_IMBALANCE else 0.0


def _excess(metrics: Mapping[str, float], name: str) -> float:
    """What was moved beyond the ideal, as a share of all."""
    total, ideal = metrics.get(name, 0.0), metrics.get(f"{name}_ideal")
    return 1 - ideal / total if ideal is not None and 0 <= ideal < total else 0.0


def _active(metrics: Mapping[str, float], unit: str) -> float:
    """The share of the cycles in which a unit works; of memory's peak where that was not collected."""
    elapsed = metrics.get(f"{unit}__cycles_elapsed.sum", 0.0)
    if elapsed <= 0:
        return _share(metrics, MEMORY_THROUGHPUT)
    return min(metrics.get(f"{unit}__cycles_active.sum", 0.0) / elapsed, 1.0)


def _share(metrics: Mapping[str, float], name: str) -> float:
    return min(metrics.get(name, 0.0) / 100, 1.0)


# ---------------------------------------------------------------------------------------------------------- what can be

BIG_TAIL: Final = 0.15  # chosen: as "high" in severity_of
_SAME_WORK: Final = frozenset({Topic.GRID, Topic.TAIL, Topic.OCCUPANCY, Topic.ACHIEVED, Topic.IMBALANCE, Topic.STALL})
_SAME_ARITHMETIC: Final = frozenset({Topic.ACCESS, Topic.SPILLS, Topic.BANKS, Topic.SLICES, Topic.PLACE})
_SAME_BYTES: Final = frozenset({Topic.BLOCK, Topic.DIVERGENCE, Topic.FUSING, Topic.PRECISION})
"""What a change on a topic leaves as it is."""
_CALLED_LOCAL: Final = frozenset(
    {"UncoalescedGlobalAccess", "UncoalescedSharedAccess", "SharedMemoryConflicts", "MemoryApertureUsage"}
)
"""Rules whose estimates an ncu of before 2024 calls local, though it weighs them by the unit's time as later ones."""
_LOCAL: Final = re.compile(
    r"accounting for (\d{1,3}(?:\.\d{1,9})?)% of all sectors|amount to (\d{1,3}(?:\.\d{1,9})?)% of all executed"
)
_TIMES: Final = re.compile(r"which is (\d{1,9}(?:\.\d{1,9})?)x of the [\d.,]{1,30} sectors")
_BOTH_OCCUPANCIES: Final = "Occupancy"
_N_BELOW: Final = 2  # levels below L1
_EXCESS: Final = re.compile(r"(?:excessive \w{7,10} \(|which represent )(?P<percent>\d{1,3}(?:\.\d{1,9})?)%")


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What a change could save at most, as a share (0-1) of the kernel's time, and why not more.

    `estimate` is ncu's own, where the share is from it. Not `is_sure` is what rests on a lack of warps alone, where the
    page does not say how often they issue.
    """

    topic: Topic
    share: float
    why: str
    is_sure: bool
    estimate: Estimate | None


def claims(launch: Launch) -> list[Claim]:
    """One for each topic of which something is known, the largest share first, what is not sure last."""
    best: dict[Topic, Claim] = {}
    for claim in _all(launch):
        other = best.get(claim.topic, claim)
        larger, less = sorted((claim, other), key=_rank, reverse=True)
        best[claim.topic] = replace(larger, estimate=larger.estimate or less.estimate)
    return sorted(best.values(), key=_rank, reverse=True)


def _rank(claim: Claim) -> tuple[bool, float, float, int]:
    said = 0.0 if claim.estimate is None else claim.estimate.fraction
    # Of equal ones the cause before the sign.
    return claim.is_sure, claim.share, said, -list(Topic).index(claim.topic)


def _all(launch: Launch) -> Iterable[Claim]:
    """What ncu estimates of the time, on other topics what its formulas give; each cut to what can be."""
    known = told(launch.profile.rules)
    settled = [one for one in known if one.estimate.scope == GLOBAL]
    yield from (cut(launch, one) for one in settled)
    topics = {one.topic for one in settled}
    computed = of_time(launch)
    for topic, share in (*_local(launch), *computed):
        if share > 0 and topic not in topics:
            yield _claim(launch, topic, share, _of_part(known, topic, share))
    slots = issue_slots(launch)
    for topic, share in of_warps(launch):
        # Where instructions are issued often enough, more warps are no gain; of fewer stalls that is not sure.
        if topic not in topics and (slots != 0 or topic is Topic.STALL):
            yield _claim(launch, topic, min(share, slots or 1.0), _of_part(known, topic, 0.0), is_sure=bool(slots))


def _of_part(known: Iterable[Told], topic: Topic, least: float) -> Estimate | None:
    """The largest estimate of a topic; None where it is less than what was computed, and so of something else."""
    largest = next((one.estimate for one in known if one.topic is topic), None)
    return largest if largest is not None and largest.fraction >= least else None


def _local(launch: Launch) -> Iterable[tuple[Topic, float]]:
    """Shares of the time that ncu calls local, or that follow from a message without an estimate, as before 2024."""
    for rule in launch.profile.rules:
        topic, excess = topic_of(rule), _EXCESS.search(rule.message)
        if topic is None or rule.id not in _CALLED_LOCAL:
            continue
        if rule.speedup_fraction:
            yield topic, min(rule.speedup_fraction, 1.0)
        elif excess is not None:
            yield topic, min(float(excess["percent"]) / 100, 1.0) * launch.memory


def excess_percent(profile: KernelProfile, topic: Topic) -> tuple[str, float] | None:
    """What was moved beyond the need, percent, by the rule's message, and which rule; None where none says it."""
    said = ((rule, _EXCESS.search(rule.message)) for rule in profile.rules if topic_of(rule) is topic)
    found = [(f"rule:{rule.id}", float(match["percent"])) for rule, match in said if match is not None]
    return max(found, key=lambda one: one[1], default=None)


def cut(launch: Launch, one: Told) -> Claim:
    """An estimate of ncu as a claim."""
    return _claim(launch, one.topic, one.estimate.fraction, one.estimate, message=one.message)


def _claim(
    launch: Launch, topic: Topic, share: float, estimate: Estimate | None, *, is_sure: bool = True, message: str = ""
) -> Claim:
    """A claim on the cause of its topic, cut to what can be."""
    share, why = min(max(share, 0.0), 1.0), ""  # a file may hold any numbers
    cause = _cause(launch, topic, share, estimate)
    for most, reason in (*_limits(launch, cause), *_of_words(topic, message)):
        if most < share:
            share, why = max(most, 0.0), reason
    return Claim(topic=cause, share=share, why=why, is_sure=is_sure, estimate=estimate)


def _cause(launch: Launch, topic: Topic, share: float, estimate: Estimate | None) -> Topic:
    """What makes it: a lack of warps follows from one of blocks or from the last wave, waiting from a full roof."""
    if topic is Topic.STALL:
        return _full_roof(launch) or topic
    filled = launch.filled
    if filled is None or topic not in {Topic.OCCUPANCY, Topic.ACHIEVED, Topic.IMBALANCE}:
        return topic
    if filled.waves >= 1:
        is_tail = filled.tail_fraction >= (BIG_TAIL if topic is Topic.ACHIEVED else max(BIG_TAIL, share))
        return Topic.TAIL if is_tail and topic is not Topic.OCCUPANCY else topic
    if topic is Topic.IMBALANCE:
        has_idle_sms = filled.n_blocks is None or filled.n_sms is None or filled.n_blocks < filled.n_sms
        return Topic.GRID if has_idle_sms else topic
    # Fewer blocks than fit: no limit of an SM is reached. Until 2023 one rule spoke of limits and of warps that lack.
    is_of_limits = topic is Topic.OCCUPANCY and (estimate is None or estimate.rule != _BOTH_OCCUPANCIES)
    return Topic.GRID if is_of_limits or 1 - filled.waves >= share / 2 else Topic.ACHIEVED


def _of_words(topic: Topic, message: str) -> Iterable[tuple[float, str]]:
    """What a rule's own numbers bound: these estimates are not weighed by how much of the traffic is meant."""
    parts = [float(found[1] or found[2]) for found in _LOCAL.finditer(message)] if topic is Topic.SPILLS else []
    if parts:
        most = f"{max(parts):.3g} %"
        yield max(parts) / 100, f"local memory takes {most} of the sectors or instructions at most"
    times = _TIMES.search(message) if topic is Topic.ACCESS else None
    if times is not None and float(times[1]) >= 1:
        yield 1 - 1 / float(times[1]), f"DRAM reads only {times[1]}x of the sectors that L2 misses"


def _full_roof(launch: Launch) -> Topic | None:
    """The roof that makes warps wait; None where there is none near, or they wait for something else."""
    if not launch.speed.is_near_roof or not launch.waits:
        return None
    top, is_memory = launch.waits[0].reason, launch.speed.kernel_class is KernelClass.MEMORY
    if top not in (OF_MEMORY if is_memory else OF_ARITHMETIC):
        return None
    return Topic.ROOF if is_memory else Topic.PIPE


def _limits(launch: Launch, topic: Topic) -> Iterable[tuple[float, str]]:
    """What bounds a change, as a share of the kernel's time, and why."""
    stays = "of its peak, which this change leaves as it is"
    if topic in _SAME_WORK:
        roof = f"{'compute' if launch.compute > launch.memory else 'memory'} is at"
        top = max(launch.compute, launch.memory)
        if launch.speed.is_near_roof:
            yield 0.0, f"{roof} {format_fraction(top)} of its peak, so that only less work helps"
        yield 1 - top, f"{roof} {format_fraction(top)} {stays}"
    if launch.speed.is_near_roof and topic in {Topic.ROOF, Topic.PIPE}:
        top = launch.memory if topic is Topic.ROOF else launch.compute
        name = "memory" if topic is Topic.ROOF else "compute"
        yield 1 - top, f"{name} is at {format_fraction(top)} of its peak, which fewer stalls leave as it is"
    if topic in _SAME_ARITHMETIC:
        yield 1 - launch.compute, f"compute is at {format_fraction(launch.compute)} {stays}"
    if topic in _SAME_BYTES:
        yield 1 - launch.memory, f"memory is at {format_fraction(launch.memory)} {stays}"
    if launch.filled is not None:
        yield from _of_waves(topic, launch.filled)
    yield from _of_levels(topic, launch.profile.metrics)


def _of_waves(topic: Topic, filled: Waves) -> Iterable[tuple[float, str]]:
    if topic is Topic.TAIL and filled.waves >= 1:
        unused = format_fraction(filled.tail_fraction)
        yield filled.tail_fraction, f"the last of {filled.waves:.3g} waves leaves only {unused} of the time unused"
    if topic is Topic.GRID:
        yield max(1 - filled.waves, 0.0), f"the grid fills {filled.waves:.3g} of a wave"


def _of_levels(topic: Topic, metrics: Mapping[str, float]) -> Iterable[tuple[float, str]]:
    known = [metrics[name] for name in (L2_THROUGHPUT, DRAM_THROUGHPUT) if name in metrics]
    if known and topic is Topic.BANKS:
        yield (
            1 - max(known) / 100,
            f"L2 or DRAM is at {max(known):.1f} % of its peak, which this change leaves as it is",
        )
    if len(known) == _N_BELOW and topic is Topic.SLICES and max(known) < LOW_PERCENT:
        yield 0.0, f"neither L2 nor DRAM limits the kernel, at {max(known):.1f} % of their peaks at most"
    if topic is Topic.COMPRESSION:
        yield 0.0, "only memory that the program has allocated as compressible is compressed, and torch allocates none"
    if topic is Topic.READY:
        yield 0.0, "warps that are ready wait for others that issue: there are enough of them"
