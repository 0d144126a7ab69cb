"""Speed of Light: what limits a kernel, by the decisions of NVIDIA's own rule (docs/nsight.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from profkit.kernels.occupancy import waves_per_sm
from profkit.model.kernel import KernelClass, KernelProfile, SpeedOfLight

SM_THROUGHPUT: Final = "sm__throughput.avg.pct_of_peak_sustained_elapsed"
MEMORY_THROUGHPUT: Final = "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed"
DRAM_THROUGHPUT: Final = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
L2_THROUGHPUT: Final = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
L1_THROUGHPUT: Final = "l1tex__throughput.avg.pct_of_peak_sustained_active"
NEAR_ROOF_PERCENT: Final = 80.0
LOW_PERCENT: Final = 60.0
BALANCED_PERCENT: Final = 10.0
"""The rule's thresholds, which ncu itself prints; every real result at hand comes out the same."""

_SAYINGS: Final = (
    ("grid is too small to fill", "Small Grid"),
    ("low compute throughput and memory bandwidth", "Latency Issue"),
    ("greater than 80", "High Throughput"),
    ("well-balanced", "Balanced Throughput"),
    ("Memory is more heavily utilized than Compute", "High Memory Throughput"),
    ("Compute is more heavily utilized than Memory", "High Compute Throughput"),
)


def speed_of_light(profile: KernelProfile) -> SpeedOfLight:
    """The verdict on a launch, "no-data" where a throughput was not collected or came out as NaN."""
    compute, memory = profile.metrics.get(SM_THROUGHPUT), profile.metrics.get(MEMORY_THROUGHPUT)
    waves = waves_per_sm(profile)
    kernel_class, title = _decided(compute, memory, waves)
    own = ncu_title(profile)
    is_near, is_by_level = title == "High Throughput", False
    if title and not is_near and is_level_full(profile):
        kernel_class, is_near, is_by_level = KernelClass.MEMORY, True, True
    return SpeedOfLight(
        kernel_class=kernel_class,
        title=title,
        is_near_roof=is_near,
        compute_percent=compute,
        memory_percent=memory,
        waves=waves,
        agrees_with_ncu=None if not own or not title else own == title and not is_by_level,
    )


def is_level_full(profile: KernelProfile) -> bool:
    """Whether a level of memory is near its peak, which the mean that the rule looks at can hide.

    L1's percentage is of the cycles in which SMs work: of a grid that leaves some idle it says nothing of the device.
    """
    level, waves = memory_unit(profile.metrics), waves_per_sm(profile)
    if level is None or level[2] <= NEAR_ROOF_PERCENT:
        return False
    return level[1] != L1_THROUGHPUT or (waves is not None and waves >= 1)


def _decided(compute: float | None, memory: float | None, waves: float | None) -> tuple[KernelClass, str]:
    if compute is None or memory is None:
        return KernelClass.NO_DATA, ""
    larger = KernelClass.COMPUTE if compute > memory else KernelClass.MEMORY
    if max(compute, memory) > NEAR_ROOF_PERCENT:
        return larger, "High Throughput"
    if max(compute, memory) < LOW_PERCENT:
        if waves is not None and waves < 1:
            return KernelClass.SMALL, "Small Grid"
        return KernelClass.LATENCY, "Latency Issue"
    if abs(compute - memory) < BALANCED_PERCENT:
        return KernelClass.BALANCED, "Balanced Throughput"
    return larger, "High Compute Throughput" if larger is KernelClass.COMPUTE else "High Memory Throughput"


def ncu_title(profile: KernelProfile) -> str:
    """The result of ncu's own rule where the file holds it, in the words of its title; "" where not."""
    for rule in profile.rules:
        if rule.id == "SOLBottleneck" or "Speed Of Light" in rule.id:
            for said, title in _SAYINGS:
                if said in rule.message:
                    return title
    return ""


def memory_unit(metrics: Mapping[str, float]) -> tuple[str, str, float] | None:
    """The busiest level of memory as (its name, the metric, percent of its peak); None where none is known."""
    levels = (
        ("DRAM", DRAM_THROUGHPUT),
        ("L2", L2_THROUGHPUT),
        ("L1/TEX", L1_THROUGHPUT),
    )
    known = [(name, metric, metrics[metric]) for name, metric in levels if metric in metrics]
    return max(known, key=lambda level: level[2], default=None)
