"""The metrics that a comparison of kernels shows: what limits them, what they move, how they fill the device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Final

import msgspec

from profkit.kernels.occupancy import ACHIEVED, THEORETICAL, WAVES
from profkit.kernels.roofline import tensor_metric
from profkit.kernels.speed import MEMORY_THROUGHPUT, SM_THROUGHPUT
from profkit.kernels.stalls import LATENCY, stalls
from profkit.model.documents.kernel_comparison import MetricChange
from profkit.model.kernel import KernelProfile

CYCLES: Final = "gpc__cycles_elapsed.max"
SM_CLOCK: Final = "gpc__cycles_elapsed.avg.per_second"
DRAM_CLOCK: Final = "dram__cycles_elapsed.avg.per_second"
DRAM_THROUGHPUT: Final = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
MOVED_POINTS: Final = 2.0
"""Points from which on a percentage has moved. Chosen: profiles of one launch differ by about one."""
MOVED_SHARE: Final = 0.05
"""Share from which on another number has moved. Chosen, as for time (`compared.SAME`)."""

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


class Values(msgspec.Struct, frozen=True, kw_only=True):
    """The launches of one kernel on one side, asked for single numbers."""

    launches: tuple[KernelProfile, ...]

    def all_of(self, metric: str) -> list[float]:
        """The values of the launches that have it, in their order."""
        return [one.metrics[metric] for one in self.launches if metric in one.metrics]

    def median(self, metric: str) -> float | None:
        """The median over launches; None where no launch has it."""
        return _median(self.all_of(metric))


def changes(before: Values, after: Values) -> tuple[MetricChange, ...]:
    """Every number that both sides have."""
    found = [
        _change(metric, label, unit, before.median(metric), after.median(metric)) for metric, label, unit in _SHOWN
    ]
    tensor = [_tensor(side) for side in (before, after)]
    found.append(_change(tensor[0][0] or tensor[1][0], "tensor cores", "%", tensor[0][1], tensor[1][1]))
    return tuple(one for one in (*found, *_stalls(before, after)) if one is not None)


def _change(metric: str, label: str, unit: str, before: float | None, after: float | None) -> MetricChange | None:
    if before is None or after is None:
        return None
    step = MOVED_POINTS if unit == "%" else MOVED_SHARE * abs(before)
    has_moved = before != after and abs(after - before) >= step
    return MetricChange(metric=metric, label=label, unit=unit, before=before, after=after, has_moved=has_moved)


def _tensor(side: Values) -> tuple[str, float | None]:
    """The metric's name changes with the device and the version, so each launch is asked for its own."""
    names = [name for one in side.launches if (name := tensor_metric(one.metrics))]
    values = [one.metrics[name] for one in side.launches if (name := tensor_metric(one.metrics))]
    return (names[0] if names else "", _median(values))


def _stalls(before: Values, after: Values) -> Iterable[MetricChange | None]:
    """Each reason's share of a warp's time, percent, where both sides know shares."""
    sides: Sequence[Mapping[str, float]] = [_shares(before.launches), _shares(after.launches)]
    if not all(sides):
        return
    for reason in dict.fromkeys((*sides[0], *sides[1])):
        metric = f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
        known = [side.get(reason) for side in sides]
        yield _change(metric, f"stall {reason}", "%", *known)


def _shares(launches: Sequence[KernelProfile]) -> dict[str, float]:
    found: dict[str, list[float]] = {}
    for launch in launches:
        for stall in stalls(launch):
            found.setdefault(stall.reason, []).append(100 * stall.fraction)
    return {reason: median(values) for reason, values in found.items()}


def _median(values: Sequence[float], of: Callable[[Sequence[float]], float] = median) -> float | None:
    return of(values) if values else None
