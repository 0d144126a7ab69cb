"""What ncu's rules would estimate, from metrics, by their formulas (`sections/*.py` of Nsight Compute 2024.1).

For pages that hold no rules, and for an ncu of before 2024, which gives no estimates or calls them local. Where a page
does not hold what a formula needs, it gives 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from profkit.kernels.speed import DRAM_THROUGHPUT, L1_THROUGHPUT, L2_THROUGHPUT, MEMORY_THROUGHPUT
from profkit.kernels.stalls import BUSY_ISSUE, issue_share
from profkit.model.kernel import KernelProfile, Occupancy, Stall, Topic, Waves

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


def issue_slots(profile: KernelProfile, left: float) -> float | None:
    """What issuing more instructions can give of the time, at most what is `left` below the roof; None if not known."""
    issued = issue_share(profile.metrics)
    if issued is None:
        return None
    return min(1 - issued, left) if issued < SHORT_OF_ISSUE else 0.0


def of_warps(
    profile: KernelProfile, held: Occupancy, filled: Waves | None, waits: Sequence[Stall]
) -> Iterable[tuple[Topic, float]]:
    """TheoreticalOccupancy, AchievedOccupancy and CPIStall before they are bounded by the issue slots.

    And the blocks that the grid has fewer than fit on the GPU at once.
    """
    theory, achieved = held.theoretical_percent, held.achieved_percent
    if theory is not None and theory < LOW_OCCUPANCY_PERCENT:
        yield Topic.OCCUPANCY, 1 - theory / 100
    if theory and achieved is not None and theory - achieved > GAP_PERCENT:
        yield Topic.ACHIEVED, 1 - achieved / theory
    if waits and waits[0].fraction > BIG_STALL and (issue_share(profile.metrics) or 0.0) < BUSY_ISSUE:
        yield Topic.STALL, waits[0].fraction
    if filled is not None and filled.waves < 1:
        yield Topic.GRID, 1 - filled.waves


def of_time(
    profile: KernelProfile, compute: float, held: Occupancy, filled: Waves | None
) -> Iterable[tuple[Topic, float]]:
    """What the other rules estimate of the kernel's time; `compute` is its throughput as a share of the peak."""
    metrics = profile.metrics
    yield from _launch(profile, held, filled)
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
    yield Topic.DIVERGENCE, (1 - threads / _WARP) * compute if threads < FEW_THREADS else 0.0


def _launch(profile: KernelProfile, held: Occupancy, filled: Waves | None) -> Iterable[tuple[Topic, float]]:
    """LaunchConfiguration; of the last wave the part that is idle, where ncu counts all of it."""
    theory, achieved = held.theoretical_percent, held.achieved_percent
    is_full = theory is not None and achieved is not None and achieved >= FULL_OCCUPANCY * theory
    if filled is not None and filled.n_sms and filled.n_blocks is not None and filled.n_blocks < filled.n_sms:
        yield Topic.GRID, 1 - filled.n_blocks / filled.n_sms
    if filled is not None and 1 < filled.waves < MOST_WAVES and not is_full:
        yield Topic.TAIL, filled.tail_fraction
    threads = math.prod(profile.block or (0,))
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
