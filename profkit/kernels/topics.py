"""What each of ncu's rules is about, and the largest of its estimates on each topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from profkit.model.kernel import Estimate, KernelProfile, Rule, Topic

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
_SAID: Final = (
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
_STALLS: Final = "CPIStall"
_POINTERS: Final = frozenset({"SOLBottleneck", "HighPipeUtilization"})
"""Rules that say where to look further, which is no advice."""


def topic_of(rule: Rule) -> Topic | None:
    """What a rule is about; None for one that only points to others."""
    if rule.id in _POINTERS:
        return None
    if rule.id.startswith(_STALLS) and rule.id != _STALLS:  # until 2021 a rule for each reason
        return Topic.READY if rule.id.endswith("NotSelected") else Topic.STALL
    said = (topic for name, words, topic in _SAID if name == rule.id and words in rule.message)
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
