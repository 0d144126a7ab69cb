"""How full the device is: occupancy with its limiters, waves and the tail they leave."""

from __future__ import annotations

import math
from typing import Final

from profkit.model.kernel import KernelProfile, Occupancy, Waves

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
