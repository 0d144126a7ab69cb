"""Pipeline bubbles: how long the stages of a pipeline stand idle, beside what its schedule must leave idle.

Stages are told by who sends to whom: a chain of pairs along which activations go forward and gradients come back. The
theory is that of GPipe and 1F1B alike: of p stages with m micro-batches and v chunks each, (p - 1) / (m v + p - 1) of
the step is bubble if all stages take the same time (docs/sources.md, rule 21).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from profkit.model.arrays import I64
from profkit.model.intervals import Intervals
from profkit.ranks.align.match_types import Matching, PairMatch
from profkit.ranks.reduce.records import PHASES, RankSummary

_COMPUTE: Final = PHASES.index("compute")


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
