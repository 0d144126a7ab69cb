"""How many passes forward and backward stand for one step of the optimizer: accumulation of gradients."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.compare.captures.pair import COMPUTE, Pair, Reading, counted, reading
from profkit.compare.captures.waterfall import uses
from profkit.compare.captures.work_rows import OPTIMIZER
from profkit.findings.changes import ACCUMULATION
from profkit.findings.comparison import WORK_CHANGED
from profkit.model.budget import HOST_PARTS
from profkit.model.finding import Evidence
from profkit.units import format_speedup

_ALIKE: Final = 0.05
"""By which the bytes of a batch differ that is taken in parts. Chosen, padding of parts."""
_BLOCKS: Final = 0.3
"""By which the blocks of all kernels differ then. Chosen: small parts leave blocks half empty."""


def accumulated(pair: Pair) -> tuple[Reading, ...]:
    """The reading that the optimizer steps after more, or fewer, passes."""
    ratio = _by_optimizer(pair) or _by_kernels(pair)
    if ratio is None:
        return ()
    often = "more" if ratio > 1 else "fewer"
    return (
        reading(
            ACCUMULATION,
            f"the optimizer steps after {format_speedup(ratio)} as many passes (gradient accumulation)",
            evidence=(
                Evidence(
                    statement=f"{often} passes forward and backward for a step of the optimizer",
                    metric="compare.passes_ratio",
                    value=ratio,
                    unit="ratio",
                ),
                counted(pair, "steps of the optimizer", "optimizer_steps", lambda trace: trace.counts.optimizer_steps),
            ),
            fix="compare the loss by samples seen: a batch of another size learns otherwise",
            confidence=0.7,
            claims=(*COMPUTE, *HOST_PARTS),
        ),
    )


def is_accumulated(pair: Pair, ratio: float) -> bool:
    """Whether passes that are so many times as many are parts of one step: what updates the weights runs as often."""
    factor = max(ratio, 1 / ratio)
    is_whole = factor >= ACCUMULATION.limit("ratio") and abs(factor - round(factor)) <= ACCUMULATION.limit("factor")
    if not is_whole or not pair.baseline.traces[0].has_steps:
        return False
    updates = [
        {
            work: use.count
            for work, use in uses(runs, lambda trace: trace.compute)[0].items()
            if work.family == OPTIMIZER
        }
        for runs in pair.runs
    ]
    return bool(updates[0]) and updates[0] == updates[1]


def _by_optimizer(pair: Pair) -> float | None:
    """By the ranges of the optimizer: steps are passes, and some of them do not update."""
    before, after = pair.rates(lambda trace: trace.counts.optimizer_steps)
    if min(before, after) <= 0 or min(before, after) >= 1:
        return None
    ratio = before / after
    return ratio if max(ratio, 1 / ratio) >= ACCUMULATION.limit("ratio") else None


def _by_kernels(pair: Pair) -> float | None:
    """By kernels of one name, whatever their grids: all but the optimizer's run more often by one whole factor."""
    if pair.is_cpu or pair.hidden:
        return None
    if len({round(rate, 1) for rate in pair.rates(lambda trace: trace.counts.optimizer_steps)}) > 1:
        return None
    first, second = (uses(runs, lambda trace: trace.compute)[0] for runs in pair.runs)
    shared = [work for work in first if work in second]
    if len(shared) < WORK_CHANGED.limit("kinds"):
        return None
    rates = np.array([float(second[work].count / first[work].count) for work in shared])
    time = np.array([first[work].total_ns + second[work].total_ns for work in shared])
    order = np.argsort(rates)
    middle = float(rates[order][np.searchsorted(np.cumsum(time[order]), time.sum() / 2)])
    factor = max(middle, 1 / middle)
    is_whole = factor >= ACCUMULATION.limit("ratio") and abs(factor - round(factor)) <= ACCUMULATION.limit("factor")
    is_near = np.abs(np.log(rates / middle)) <= ACCUMULATION.limit("factor")
    whole = sum(use.total_ns for side in (first, second) for use in side.values())
    if not is_whole or time[is_near].sum() < ACCUMULATION.limit("repeated") * whole:
        return None
    copied = pair.rates(lambda trace: trace.counts.copied_bytes)
    blocks = pair.rates(lambda trace: int(trace.compute.blocks.sum()))
    is_same = all(min(both) >= (1 - least) * max(both) for both, least in ((copied, _ALIKE), (blocks, _BLOCKS)))
    return middle if is_same else None
