"""Which rule of ncu spoke, where the text page names only the section that it stands in."""

from __future__ import annotations

from typing import Final

_RULES: Final = (
    ("GPU Speed Of Light Roofline", "", "SOLFPRoofline"),
    ("GPU Speed Of Light", "", "SOLBottleneck"),
    ("Compute Workload Analysis", "slow pipeline", "SlowPipeLimiter"),
    ("Compute Workload Analysis", "", "HighPipeUtilization"),
    ("Memory Workload Analysis", "bank conflict", "SharedMemoryConflicts"),
    ("Memory Workload Analysis", "L2 Compression", "MemoryL2Compression"),
    ("Memory Workload Analysis", "gcomp", "MemoryL2Compression"),
    ("Memory Workload Analysis", "accesses local memory", "LocalMemoryUsage"),
    ("Memory Workload Analysis", "memory backs", "MemoryApertureUsage"),
    ("Memory Workload Analysis", "access", "MemoryCacheAccessPattern"),
    ("Scheduler Statistics", "", "IssueSlotUtilization"),
    ("Warp State Statistics", "executed in warps", "ThreadDivergence"),
    ("Warp State Statistics", "", "CPIStall"),
    ("Instruction Statistics", "", "FPInstructions"),
    ("Launch Statistics", "", "LaunchConfiguration"),
    ("Occupancy", "theoretical warps per scheduler", "TheoreticalOccupancy"),
    ("Occupancy", "kernel's theoretical occupancy", "Occupancy"),
    ("Occupancy", "The difference between", "AchievedOccupancy"),
    ("GPU and Memory Workload Distribution", "", "WorkloadImbalance"),
    ("Source Counters", "uncoalesced global", "UncoalescedGlobalAccess"),
    ("Source Counters", "uncoalesced shared", "UncoalescedSharedAccess"),
    ("Source Counters", "threads executed per cycle", "ThreadDivergence"),
    ("Source Counters", "amples", "PCSamplingData"),
)
"""How the section begins, words of the message, and the rule, after ncu's own `sections/*.py`; the first that fits."""


def rule_name(section: str, message: str) -> str:
    """The identifier of a rule; the section where it is not known."""
    return next((name for begins, said, name in _RULES if section.startswith(begins) and said in message), section)
