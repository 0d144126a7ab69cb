"""What limits a kernel, by the decisions of NVIDIA's own rule (docs/nsight.md); occupancy, waves and their tail."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from profkit.model.kernel import KernelClass, KernelProfile, Occupancy, SpeedOfLight, Waves

THEORETICAL: Final = "sm__maximum_warps_per_active_cycle_pct"
ACHIEVED: Final = "sm__warps_active.avg.pct_of_peak_sustained_active"
WAVES: Final = "launch__waves_per_multiprocessor"
_N_SMS: Final = ("launch__sm_count", "device__attribute_multiprocessor_count")  # a green context has fewer
_LEAST_WAVES: Final = 0.005  # what a page of two decimals prints as 0.00 is less
_LIMITS: Final = {
    "registers": "launch__occupancy_limit_registers",
    "shared memory": "launch__occupancy_limit_shared_mem",
    "warps": "launch__occupancy_limit_warps",
    "blocks": "launch__occupancy_limit_blocks",
    "barriers": "launch__occupancy_limit_barriers",
}


def occupancy(profile: KernelProfile) -> Occupancy:
    """Occupancy in percent of the warps an SM holds; limiters only where theory is below 100 %."""
    metrics = profile.metrics
    # A limit of 0 is ncu's "does not apply".
    limits = {name: metrics[metric] for name, metric in _LIMITS.items() if metrics.get(metric, 0) > 0}
    least = min(limits.values(), default=None)
    theoretical = metrics.get(THEORETICAL)
    is_limited = theoretical is not None and theoretical < 99.95
    return Occupancy(
        theoretical_percent=theoretical,
        achieved_percent=metrics.get(ACHIEVED),
        limiters=tuple(name for name, limit in limits.items() if limit == least) if is_limited else (),
        blocks_per_sm=None if least is None else int(least),
    )


def waves_per_sm(profile: KernelProfile) -> float | None:
    """How often the grid fills the device: as collected, else blocks over what all SMs hold at once."""
    collected = profile.metrics.get(WAVES)
    if collected:
        return collected
    n_blocks, n_sms, per_sm = n_blocks_of(profile), n_sms_of(profile), occupancy(profile).blocks_per_sm
    if n_blocks and n_sms and per_sm:
        return n_blocks / (n_sms * per_sm)
    return None if collected is None else _LEAST_WAVES


def n_sms_of(profile: KernelProfile) -> int | None:
    """The SMs that the launch may use."""
    return next((int(profile.metrics[name]) for name in _N_SMS if name in profile.metrics), None)


def n_blocks_of(profile: KernelProfile) -> int | None:
    """The blocks of the grid."""
    collected = profile.metrics.get("launch__grid_size")
    if collected is not None:
        return int(collected)
    return math.prod(profile.grid) if profile.grid is not None else None


def waves(profile: KernelProfile) -> Waves | None:
    """Waves and tail; None where they were not collected.

    If all blocks take the same time, W waves take ceil(W) times that long, so at most 1 - W / ceil(W) of the run is
    the idle part of the last wave. ncu's rule prints 1 / ceil(W), the whole last wave, which is never less.
    """
    count = waves_per_sm(profile)
    if count is None or count <= 0:
        return None
    return Waves(
        waves=count,
        tail_fraction=1 - count / math.ceil(count),
        n_blocks=n_blocks_of(profile),
        n_sms=n_sms_of(profile),
    )


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
