"""What ncu's own rules estimate that their advice gives, by what the advice is about; of several the largest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.model.kernel import Estimate, KernelProfile, Rule

GLOBAL: Final = "global"
_TOPICS: Final = {
    "UncoalescedGlobalAccess": "access",
    "MemoryCacheAccessPattern": "access",
    "SharedMemoryConflicts": "banks",
    "UncoalescedSharedAccess": "banks",
    "TheoreticalOccupancy": "occupancy",
    "AchievedOccupancy": "achieved",
    "Occupancy": "occupancy",
    "LaunchConfiguration": "launch",
    "Launch Statistics": "launch",
    "WorkloadImbalance": "imbalance",
    "GPU and Memory Workload Distribution": "imbalance",
    "ThreadDivergence": "divergence",
    "CPIStall": "stall",
    "Warp State Statistics": "stall",
}
"""Rule or, on the text page, section to topic. Rules that only point to other sections (IssueSlotUtilization,
HighPipeUtilization with idle pipes) are no advice of their own."""
_IN_SECTIONS: Final = {
    ("Memory Workload Analysis", "bank conflict"): "banks",
    ("Memory Workload Analysis", "access pattern"): "access",
    ("Memory Workload Analysis Tables", "bank conflict"): "banks",
    ("Memory Workload Analysis Tables", "access pattern"): "access",
    ("Source Counters", "uncoalesced global"): "access",
    ("Source Counters", "uncoalesced shared"): "banks",
    ("Source Counters", "threads executed per cycle"): "divergence",
}
_FULL_WAVES: Final = "partial wave"
_ACHIEVED: Final = "difference between calculated theoretical"
_LIMITED: Final = "is limited by"
_OF_BLOCKS: Final = ("SMs have", "SMSPs have", "L1 Slices have")
"""Imbalance that blocks and warps make; that of L2 slices and DRAM comes from addresses."""


def estimates(profile: KernelProfile) -> dict[str, Estimate]:
    """Topic to the largest estimate; one for the kernel's whole time stands before one for a part of the device."""
    best: dict[str, Estimate] = {}
    for topic, estimate in _all(profile.rules):
        held = best.get(topic)
        if held is None or rank(estimate) > rank(held):
            best[topic] = estimate
    return best


def rank(estimate: Estimate) -> tuple[bool, float]:
    """What sorts estimates, the weightiest last."""
    return estimate.scope == GLOBAL, estimate.fraction


def _all(rules: Iterable[Rule]) -> Iterable[tuple[str, Estimate]]:
    for rule in rules:
        topic = _topic(rule)
        if topic and rule.speedup_fraction:
            # An estimate in percent of the time cannot be all of it; a file may claim more.
            fraction = min(rule.speedup_fraction, 1.0)
            yield topic, Estimate(rule=rule.id, fraction=fraction, scope=rule.speedup_scope)


def _topic(rule: Rule) -> str:
    topic = _TOPICS.get(rule.id, "") or next(
        (topic for (section, said), topic in _IN_SECTIONS.items() if section == rule.id and said in rule.message), ""
    )
    if topic == "launch":
        return "tail" if _FULL_WAVES in rule.message else "grid"
    if topic == "imbalance" and not any(part in rule.message for part in _OF_BLOCKS):
        return ""
    if topic == "occupancy" and _ACHIEVED in rule.message and _LIMITED not in rule.message:
        return "achieved"
    return topic
