"""Do two budgets agree? Part by part, as shares of the step, against what step-to-step scatter allows."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.compare.stats.inference import welch
from profkit.crosscheck.trace_profile import Portrait
from profkit.findings.crosscheck import CONFIRMED
from profkit.model.budget import HOST_PARTS
from profkit.model.documents.handover import PartAgreement
from profkit.model.documents.report import Bottleneck

_ALPHA: Final = 0.05

PARTS_OF: Final = {
    Bottleneck.DATA: ("idle_data",),
    Bottleneck.COPY: ("copy_exposed",),
    Bottleneck.SYNC: ("idle_sync",),
    Bottleneck.OVERHEAD: HOST_PARTS,
    Bottleneck.KERNEL: ("compute",),
    Bottleneck.COMM: ("comm_exposed",),
    Bottleneck.STRAGGLER: ("comm_exposed",),
    Bottleneck.MEMORY: ("idle_sync",),
}
"""The parts of the budget that a bottleneck shows in; allocator calls block, so memory pressure shows as sync."""


def agreement(first: Portrait, second: Portrait) -> tuple[PartAgreement, ...]:
    """Each part of the budget in both tools, in the order of the contract."""
    return tuple(part_agreement(first, second, (part,)) for part in first.parts_ns if part in second.parts_ns)


def part_agreement(first: Portrait, second: Portrait, parts: tuple[str, ...]) -> PartAgreement:
    """Parts taken together, named by the first of them where there is one."""
    shares = [sum(side.share(part) for part in parts) for side in (first, second)]
    allowed = _allowed([_by_step(side, parts) for side in (first, second)])
    difference = abs(shares[1] - shares[0])
    agrees: bool | None = difference <= max(CONFIRMED.limit("floor"), allowed or 0.0)
    if allowed is None and not agrees:
        agrees = None
    return PartAgreement(part=" + ".join(parts), first=shares[0], second=shares[1], allowed=allowed, agrees=agrees)


def _by_step(side: Portrait, parts: tuple[str, ...]) -> list[float]:
    together = np.sum([side.parts_ns[part] for part in parts], axis=0)
    return [float(value) for value in together / np.maximum(side.step_ns, 1)]


def _allowed(steps: list[list[float]]) -> float | None:
    """Half the 95 % interval of a difference of means over steps (Welch), None with one step on a side."""
    if min(map(len, steps)) < 2:
        return None
    estimate = welch(*steps)
    if estimate is None:  # no step differs from another
        return 0.0
    low, high = estimate.interval(_ALPHA)
    return (high - low) / 2
