"""Stages of pipelines that the others wait for: slower than the same stage of twin pipelines, or than other stages.

A stage's own time is its step without waiting. What it has more of than its peers is the most that mending it can give:
of the step's critical path no more lies in one stage than the stage does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.findings.ranks.pipeline import BUBBLE
from profkit.model.arrays import I64
from profkit.ranks.measure.kernel_slowdown import Longer, compute_factor, longer_by, slow_device_ns
from profkit.ranks.measure.pipeline_bubbles import PipelineBubbles
from profkit.ranks.reduce.records import PHASES, RankSummary

_COMPUTE: Final = PHASES.index("compute")
_STEADY: Final = 0.5
"""Of its mean, what the excess must come to in nearly every step. Chosen: half, as for ranks that are late together."""
_NEARLY: Final = 0.8
"""Of the steps, in which the excess must be steady. Chosen: nearly all."""
_LEAST_STEPS: Final = 3
"""Chosen: one slow step of two is half of them."""


class LateStage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage with more of its own work than its peers, in nearly every step. Times in ns per step."""

    ranks: tuple[int, ...]
    """One rank against the same stage of twin pipelines, else the stage's rank in each pipeline."""
    peers: tuple[int, ...]
    stage: int
    n_stages: int
    phase: str
    excess_ns: int
    """What it has more of this phase than its peers' median."""
    saved_ns: int
    """At most: what it has more of all phases in which it has more; of a phase other than compute, in the pipeline that
    has most of it, for pipelines meet in each step."""
    longer: Longer
    factor: float | None
    """Of compute, how much longer the same kernels take than on the peers."""
    are_twins: bool
    """Whether the peers are the same stage of other pipelines."""


def late_stages(pipelines: Sequence[PipelineBubbles], by_rank: Mapping[int, RankSummary]) -> tuple[LateStage, ...]:
    """The late stages of a job's pipelines, the one with most to save first."""
    chains = [[stage.rank for stage in found.stages] for found in pipelines]
    found: list[LateStage] = []
    for chain in chains:
        alike = [other for other in chains if len(other) == len(chain)]
        for stage, rank in enumerate(chain):
            twins = [other[stage] for other in alike if other is not chain]
            found += _against([rank], twins, (stage, len(chain)), by_rank, are_twins=True)
    known = {rank for one in found for rank in one.ranks}
    for size in {len(chain) for chain in chains}:
        columns = np.array([chain for chain in chains if len(chain) == size]).T
        for stage, column in enumerate(columns.tolist()):
            others = [int(rank) for place, ranks in enumerate(columns.tolist()) if place != stage for rank in ranks]
            if not known & set(column):
                found += _against(column, others, (stage, size), by_rank, are_twins=False)
    return tuple(sorted(found, key=lambda one: -one.saved_ns))


def _against(
    ranks: Sequence[int],
    peers: Sequence[int],
    place: tuple[int, int],
    by_rank: Mapping[int, RankSummary],
    *,
    are_twins: bool,
) -> list[LateStage]:
    """The stage that these ranks are, where it has more than its peers; [] where it has not.

    Stages of one pipeline differ by design in what they compute: there compute counts only where the device is slow.
    """
    if not peers:
        return []
    mine, theirs = (_own_ns([by_rank[rank] for rank in some]) for some in (ranks, peers))
    n_steps = min(len(mine), len(theirs))
    excess = mine[:n_steps] - theirs[:n_steps]
    beside = {rank: by_rank[rank] for rank in (ranks[0], *peers)}
    longer = longer_by(beside, ranks[0])
    if not are_twins:
        excess[:, _COMPUTE] = slow_device_ns(beside, ranks[0])
        longer = Longer.DEVICE
    mean = excess.mean(axis=0) if n_steps else np.zeros(len(PHASES))
    main = int(mean.argmax())
    step_ns = np.mean([(one.steps.end_ns - one.steps.start_ns).mean() for one in (by_rank[rank] for rank in ranks)])
    most = _own_ns([by_rank[rank] for rank in ranks], np.max)[:n_steps] - mine[:n_steps]
    apart_ns = most[:, main].mean() if n_steps and main != _COMPUTE else 0.0
    is_steady = (excess[:, main] >= _STEADY * mean[main]).mean() >= _NEARLY if n_steps >= _LEAST_STEPS else False
    if not is_steady or mean[main] < BUBBLE.limit("late_stage") * step_ns:
        return []
    return [
        LateStage(
            ranks=tuple(ranks),
            peers=tuple(peers),
            stage=place[0],
            n_stages=place[1],
            phase=PHASES[main],
            excess_ns=round(mean[main]),
            saved_ns=round(np.maximum(mean, 0).sum() + apart_ns),
            longer=longer,
            factor=compute_factor(beside, ranks[0]),
            are_twins=are_twins,
        )
    ]


def _own_ns(summaries: Sequence[RankSummary], over: Callable[..., NDArray[np.float64]] = np.median) -> I64:
    """[S, 5]: by step and phase the median (or another summary) over these ranks, of the steps that all have."""
    common = summaries[0].steps.number
    for summary in summaries[1:]:
        common = np.intersect1d(common, summary.steps.number)
    rows = [np.intersect1d(common, one.steps.number, return_indices=True)[2] for one in summaries]
    phases = np.stack([one.steps.phase_ns[at] for one, at in zip(summaries, rows, strict=True)])
    middle: I64 = np.rint(over(phases.astype(np.float64), axis=0)).astype(np.int64)
    return middle
