"""What profkit advises first on launches of Nsight Compute, beside NVIDIA's largest estimate and an expert's advice."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from analyses.field.registry import Capture, Launch

SETTLES: Final = 10.0
"""From this estimate of NVIDIA's on (percent of the kernel's time) a rule settles a launch: smaller ones are noise."""

EXPERT: Final[dict[str, tuple[str, ...]]] = {
    "bank-conflicts": ("banks",),
    "barriers": ("stall",),
    "coalescing": ("access",),
    "fuse-or-enlarge": ("grid", "roof"),
    "instruction-mix": ("pipe", "fusing", "precision"),
    "latency-stalls": ("stall", "occupancy", "achieved"),
    "launch-size": ("grid", "block", "imbalance"),
    "memory-bandwidth": ("roof",),
    "none": ("", "roof", "ready"),
    "precision-fp64": ("precision",),
    "tail-wave": ("tail",),
    "tensor-cores": ("precision", "pipe"),
    "unreadable": ("",),
}
"""Topics of first advice that are an expert's own; "" is no advice. What is not here is about no kernel."""
NVIDIA: Final[dict[str, tuple[str, ...]]] = {
    "UncoalescedGlobalAccess": ("access",),
    "MemoryCacheAccessPattern": ("access", "spills"),
    "LocalMemoryUsage": ("spills",),
    "SharedMemoryConflicts": ("banks",),
    "UncoalescedSharedAccess": ("banks",),
    "TheoreticalOccupancy": ("occupancy",),
    "AchievedOccupancy": ("achieved",),
    "Occupancy": ("occupancy", "achieved"),
    "LaunchConfiguration": ("grid", "tail", "block"),
    "WorkloadImbalance": ("imbalance", "slices"),
    "ThreadDivergence": ("divergence",),
    "CPIStall": ("stall", "ready"),
    "IssueSlotUtilization": ("stall",),
    "FPInstructions": ("fusing",),
    "SOLFPRoofline": ("precision",),
    "SlowPipeLimiter": ("precision",),
    "MemoryApertureUsage": ("place",),
    "MemoryL2Compression": ("compression",),
}
"""Topics of first advice that follow a rule of NVIDIA's."""


class LaunchScore(msgspec.Struct, frozen=True, kw_only=True):
    """The first advice on one launch."""

    name: str
    said: str
    """The topic; "" for no advice."""
    is_nvidias: bool
    """Whether it follows NVIDIA's largest estimate."""
    is_experts: bool | None
    """Whether it is the expert's first; None where what the expert says is about no kernel."""
    is_settled: bool = False
    """Whether a global estimate of NVIDIA's settles it: `SETTLES` percent or more."""
    follow: str = ""
    """Whether the expert follows that estimate."""
    why: str = ""

    @property
    def score(self) -> str:
        """In a word: whose advice it is."""
        if self.is_nvidias and self.is_experts:
            return "both"
        if self.is_nvidias:
            return "nvidia"
        return "open" if self.is_experts is None else ("expert" if self.is_experts else "other")

    @property
    def is_sound(self) -> bool:
        """Of one that is settled: NVIDIA's advice, or the expert's where the expert does not follow NVIDIA's."""
        return self.is_nvidias or (self.follow != "yes" and bool(self.is_experts))


def scored(capture: Capture, report: dict[str, Any] | None) -> tuple[LaunchScore, ...]:
    """The first advice on each launch of a capture that an expert has read; refused files give none."""
    kernels = {kernel["number"]: kernel for kernel in (report or {"kernels": ()})["kernels"]}
    return tuple(_scored(capture, launch, kernels.get(launch.id)) for launch in capture.launches)


def _scored(capture: Capture, launch: Launch, kernel: dict[str, Any] | None) -> LaunchScore:
    advice = kernel["advice"] if kernel is not None else []
    said = advice[0].get("topic", "") if advice else ""
    rule = launch.nvidia_rule.split(" ")[0]
    expected = EXPERT.get(launch.first_advice)
    return LaunchScore(
        name=f"{capture.name}#{launch.id}",
        said=said,
        is_nvidias=said in NVIDIA.get(rule, ()),
        is_experts=None if expected is None else said in expected,
        is_settled=launch.nvidia_kind == "global" and launch.nvidia_percent >= SETTLES,
        follow=launch.follow,
        why="" if expected is not None and said in expected else f"{launch.first_advice}; NVIDIA {rule}",
    )
