"""Pipelines: how long stages stand idle, beside what the schedule must leave idle, and which stage the others wait for.

Stages are told by who sends to whom: a chain of pairs along which activations go forward and gradients come back. The
theory is that of GPipe and 1F1B alike: of p stages with m micro-batches and v chunks each, (p - 1) / (m v + p - 1) of
the step is bubble if all stages take the same time (docs/sources.md, rule 21). A late stage is slower than the same
stage of twin pipelines, or than other stages: its own time is its step without waiting, and what it has more of than
its peers is the most that mending it can give, for of the step's critical path no more lies in one stage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.findings.ranks.pipeline import BUBBLE
from profkit.model.arrays import I64
from profkit.model.intervals import Intervals
from profkit.ranks.align.match_types import Matching, PairMatch
from profkit.ranks.measure.longer_compute import Longer, compute_factor, longer_by, slow_device_ns
from profkit.ranks.measure.stragglers import busier_ns
from profkit.ranks.measure.windows import common_steps, of_steps
from profkit.ranks.reduce.records import PHASES, RankSummary

_COMPUTE: Final = PHASES.index("compute")
_STEADY: Final = 0.5
"""Of its mean, what the excess must come to in nearly every step. Chosen: half, as for ranks that are late together."""
_NEARLY: Final = 0.8
"""Of the steps, in which the excess must be steady. Chosen: nearly all."""
_MORE_LAYERS: Final = 1.25
"""Of the other middle stages' compute. Chosen: one layer more than four; by design stages differ by less."""
_LEAST_STEPS: Final = 3
"""Chosen: one slow step of two is half of them."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """One stage, over all its steps. Fractions are shares of its steps' time."""

    rank: int
    idle_fraction: float
    """Without compute: the bubble, and whatever else keeps the stage from computing."""
    waiting_fraction: float
    """Standing still for a send or a receive alone."""
    busy_ns: int
    """Compute per step."""


class PipelineBubbles(msgspec.Struct, frozen=True, kw_only=True):
    """What the stages of one pipeline waste, stages in order. Fractions are means over stages."""

    stages: tuple[Stage, ...]
    step_ns: int
    """Mean step over stages."""
    observed_fraction: float
    """1 - compute / step."""
    waiting_fraction: float
    n_microbatches: int | None
    """m: sends of one stage to the next in a step, per chunk; None where steps or hops differ."""
    n_chunks: int | None
    """v: how often a micro-batch passes each stage; above 1 where the last stage sends to the first."""
    theoretical_fraction: float | None
    """(p - 1) / (m v + p - 1); None without m."""
    doubled_fraction: float | None
    """The same with twice the micro-batches."""
    imbalance: float
    """Compute of the stage that has most, over the mean."""
    recoverable_ns: int
    """Per step and at most: the mean waiting for other stages, all of it. More micro-batches give the difference of
    `theoretical_fraction` and `doubled_fraction`, even stages what lies above the theory."""

    @property
    def busiest(self) -> Stage:
        """The stage the others wait for in the long run."""
        return max(self.stages, key=lambda stage: stage.busy_ns)


def pipeline_bubbles(summaries: Sequence[RankSummary], matching: Matching) -> tuple[PipelineBubbles, ...]:
    """The pipelines of a job; () where sends and receives form none."""
    by_rank = {summary.rank: summary for summary in summaries}
    hops = {(pair.sender, pair.receiver): pair for pair in matching.pairs if len(pair.rows)}
    found = []
    for members in _connected(hops):
        chain = _chain(members, hops, by_rank)
        if len(chain) > 1 and all(len(by_rank[rank].steps) for rank in chain):
            found.append(_measured([by_rank[rank] for rank in chain], hops))
    return tuple(found)


def _connected(hops: Mapping[tuple[int, int], PairMatch]) -> list[set[int]]:
    parts: list[set[int]] = []
    for one, other in hops:
        touched = [part for part in parts if one in part or other in part]
        parts = [part for part in parts if part not in touched] + [{one, other}.union(*touched)]
    return sorted(parts, key=min)


def _chain(
    members: set[int], hops: Mapping[tuple[int, int], PairMatch], by_rank: Mapping[int, RankSummary]
) -> list[int]:
    """The stages in order; [] where what is sent does not go forward along a chain and come back."""
    next_of: dict[int, list[int]] = {rank: [] for rank in members}
    hops = {hop: pair for hop, pair in hops.items() if members.issuperset(hop)}
    for one, other in hops:
        if (other, one) in hops and _is_forward(hops[one, other], hops[other, one], by_rank):
            next_of[one].append(other)
    if any(len(after) > 1 for after in next_of.values()):
        return []
    n_hops = sum(map(len, next_of.values()))
    firsts = [rank for rank in members if not any(rank in after for after in next_of.values())]
    if n_hops == len(members):  # a ring: chunks go round, from the stage that sends first
        firsts = [rank for rank in members if _sends_first(rank, hops, by_rank)]
    if len(firsts) != 1 or n_hops not in (len(members) - 1, len(members)) or len(hops) != 2 * n_hops:
        return []
    chain = [firsts[0]]
    while (after := next_of[chain[-1]]) and after[0] != firsts[0]:
        chain.append(after[0])
    return chain if len(chain) == len(members) else []


def _is_forward(there: PairMatch, back: PairMatch, by_rank: Mapping[int, RankSummary]) -> bool:
    """Whether the receiver sends nothing back, in any step, before its first receive has ended.

    Ranks that exchange, as in ring attention, send and receive at once; gradients wait for activations.
    """
    rows = by_rank[there.receiver].collectives
    arrived, sent = there.rows[:, 1], back.rows[:, 0]
    steps = np.intersect1d(rows.step[arrived], rows.step[sent])
    return bool(steps.size) and all(
        rows.start_ns[sent[rows.step[sent] == step]].min() >= rows.end_ns[arrived[rows.step[arrived] == step]].min()
        for step in steps
    )


def _sends_first(rank: int, hops: Mapping[tuple[int, int], PairMatch], by_rank: Mapping[int, RankSummary]) -> bool:
    rows = by_rank[rank].collectives
    sent = np.concatenate([pair.rows[:, 0] for (one, _), pair in hops.items() if one == rank])
    arrived = np.concatenate([pair.rows[:, 1] for (_, other), pair in hops.items() if other == rank])
    return bool(rows.start_ns[sent].min() < rows.end_ns[arrived].min())


def _measured(chain: Sequence[RankSummary], hops: Mapping[tuple[int, int], PairMatch]) -> PipelineBubbles:
    stages = tuple(_stage(summary, hops) for summary in chain)
    spans = [(summary.steps.end_ns - summary.steps.start_ns).mean() for summary in chain]
    step_ns = float(np.mean(spans))
    m, v = _microbatches(chain, hops)
    p = len(chain)
    waiting = float(np.mean([stage.waiting_fraction for stage in stages]))
    busy = np.array([stage.busy_ns for stage in stages])
    return PipelineBubbles(
        stages=stages,
        step_ns=round(step_ns),
        observed_fraction=float(np.mean([stage.idle_fraction for stage in stages])),
        waiting_fraction=waiting,
        n_microbatches=m,
        n_chunks=v,
        theoretical_fraction=(p - 1) / (m * v + p - 1) if m and v else None,
        doubled_fraction=(p - 1) / (2 * m * v + p - 1) if m and v else None,
        imbalance=float(busy.max() / busy.mean()) if busy.any() else 1.0,
        recoverable_ns=round(waiting * step_ns),
    )


def _stage(summary: RankSummary, hops: Mapping[tuple[int, int], PairMatch]) -> Stage:
    steps, blocks = summary.steps, summary.blocks
    total = int((steps.end_ns - steps.start_ns).sum())
    busy = int(steps.phase_ns[:, _COMPUTE].sum())
    mine = [pair.rows[:, 0] for (one, _), pair in hops.items() if one == summary.rank]
    mine += [pair.rows[:, 1] for (_, other), pair in hops.items() if other == summary.rank]
    waits = np.isin(blocks.row, np.concatenate(mine))
    waiting = Intervals.of(blocks.start_ns[waits], blocks.end_ns[waits])
    return Stage(
        rank=summary.rank,
        idle_fraction=1 - busy / total,
        waiting_fraction=int(waiting.covered_ns(steps.start_ns, steps.end_ns).sum()) / total,
        busy_ns=round(busy / len(steps)),
    )


def _microbatches(
    chain: Sequence[RankSummary], hops: Mapping[tuple[int, int], PairMatch]
) -> tuple[int | None, int | None]:
    """The numbers m and v, from the largest messages of one stage to the next in a step; None where they vary."""
    along = [_sends(one, hops[one.rank, other.rank]) for one, other in pairwise(chain)]
    passes = np.unique(np.concatenate(along))
    round_trip = hops.get((chain[-1].rank, chain[0].rank)) if len(chain) > 2 else None
    again = np.unique(_sends(chain[-1], round_trip)) if round_trip is not None else np.zeros(1, np.int64)
    if passes.size != 1 or again.size != 1 or not 0 <= again[0] < passes[0]:
        return None, None
    m = int(passes[0] - again[0])
    v, rest = divmod(int(passes[0]), m)
    return (m, v) if rest == 0 else (None, None)


def _sends(summary: RankSummary, pair: PairMatch) -> I64:
    rows = pair.rows[:, 0]
    size = summary.collectives.in_elements[rows]
    step = summary.collectives.step[rows[size == size.max()]]
    inside = step[(step > step.min()) & (step < step.max())] if np.unique(step).size > 2 else step  # edges may be cut
    counts: I64 = np.bincount(inside[inside >= 0]).astype(np.int64)
    return counts[counts > 0]


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
                slow = _against(column, others, (stage, size), by_rank, are_twins=False)
                found += slow or _with_more_layers(columns.tolist(), stage, by_rank)
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
    step_ns = _step_ns(ranks, by_rank)
    most = _own_ns([by_rank[rank] for rank in ranks], np.max)[:n_steps] - mine[:n_steps]
    apart_ns = most[:, main].mean() if n_steps and main != _COMPUTE else 0.0
    is_steady = (excess[:, main] >= _STEADY * mean[main]).mean() >= _NEARLY if n_steps >= _LEAST_STEPS else False
    busier = busier_ns(by_rank, ranks[0], [other for other in by_rank if other not in ranks])
    is_ahead = PHASES[main] == "host" and busier is not None and busier < BUBBLE.limit("late_stage") * step_ns * n_steps
    if not is_steady or is_ahead or mean[main] < BUBBLE.limit("late_stage") * step_ns:
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


def _with_more_layers(
    columns: Sequence[Sequence[int]], stage: int, by_rank: Mapping[int, RankSummary]
) -> list[LateStage]:
    """A middle stage, by its rank in each pipeline, that computes for longest of all, far beyond the other middle ones.

    By design the first has the embedding and the last the loss; what is saved is up to the next stage, which then sets
    the pace.
    """
    middle = [other for other in range(1, len(columns) - 1) if other != stage]
    if not middle or not 0 < stage < len(columns) - 1:
        return []
    by_step = [_own_ns([by_rank[rank] for rank in column])[:, _COMPUTE] for column in columns]
    n_steps = min(map(len, by_step))
    compute = np.array([one[:n_steps] for one in by_step], np.float64)
    beyond = compute[stage] - np.delete(compute, stage, axis=0).max(axis=0)
    usual = np.median(compute[middle], axis=0)
    is_steady = n_steps >= _LEAST_STEPS and (compute[stage] >= _MORE_LAYERS * usual).mean() >= _NEARLY
    if not is_steady or beyond.mean() < BUBBLE.limit("late_stage") * _step_ns(columns[stage], by_rank):
        return []
    return [
        LateStage(
            ranks=tuple(columns[stage]),
            peers=tuple(rank for other in middle for rank in columns[other]),
            stage=stage,
            n_stages=len(columns),
            phase=PHASES[_COMPUTE],
            excess_ns=round((compute[stage] - usual).mean()),
            saved_ns=round(beyond.mean()),
            longer=Longer.WORK,
            factor=None,
            are_twins=False,
        )
    ]


def _step_ns(ranks: Sequence[int], by_rank: Mapping[int, RankSummary]) -> float:
    """The mean step of these ranks."""
    steps = (by_rank[rank].steps for rank in ranks)
    return float(np.mean([(one.end_ns - one.start_ns).mean() for one in steps]))


def _own_ns(summaries: Sequence[RankSummary], over: Callable[..., NDArray[np.float64]] = np.median) -> I64:
    """[S, 5]: by step and phase the median (or another summary) over these ranks, of the steps that all have."""
    common = common_steps([summary.steps.number for summary in summaries])
    phases = of_steps(common, summaries, lambda summary: summary.steps.phase_ns)
    middle: I64 = np.rint(over(phases.astype(np.float64), axis=1)).astype(np.int64)
    return middle
