"""What the ranks of one job show together: everything measured across them, before anything is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.findings.ranks.stragglers import LATE_RANK
from profkit.model.arrays import median
from profkit.model.finding import Skipped
from profkit.ranks.align.clocks import Clocks, aligned
from profkit.ranks.align.match import matched
from profkit.ranks.align.match_types import Matching
from profkit.ranks.measure.fingerprints import CommunicationLimit, Traffic, communication_limit, traffic
from profkit.ranks.measure.late_stages import LateStage, late_stages
from profkit.ranks.measure.peer_totals import with_checked_phase
from profkit.ranks.measure.pipeline_bubbles import PipelineBubbles, pipeline_bubbles
from profkit.ranks.measure.replay import Counterfactual, ReplayRefusal, counterfactual
from profkit.ranks.measure.slow_links import SlowLink, by_cost, slow_links
from profkit.ranks.measure.slow_pairs import slow_pairs
from profkit.ranks.measure.stragglers import Straggler, Stragglers, find_stragglers
from profkit.ranks.measure.tokens import PaddingWaste, TokenSkew, padding_waste, token_skew
from profkit.ranks.measure.waits import GroupWaits, split
from profkit.ranks.measure.windows import steps_measured
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.reduce.records import RankSummary
from profkit.units import format_ns

_MOST_APART: Final = 8
"""Late ranks of which the step is replayed without each alone. Chosen: with more, none alone is the cause."""


class Joint(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements across ranks. `waits`, `stragglers`, `limits` and `traffic` have one entry for each group.

    `n_steps`, `window_ns` and `step_ns` are the median rank's; without steps `n_steps` is 1 and `step_ns` None. Where
    windows are apart and what is measured is of the steps they share, the first two are those steps'.
    """

    outcomes: tuple[Outcome, ...]
    by_rank: Mapping[int, Outcome]
    matching: Matching
    clocks: Clocks
    waits: tuple[GroupWaits, ...]
    stragglers: tuple[Stragglers, ...]
    limits: tuple[CommunicationLimit, ...]
    traffic: tuple[tuple[Traffic, ...], ...]
    slow_links: tuple[SlowLink, ...]
    """The groups that lose time against their twins, the costliest first."""
    prediction: Counterfactual | ReplayRefusal
    """The step with all named stragglers like their peers."""
    alone: Mapping[int, Counterfactual]
    """The step with one of several named stragglers alone like its peers, by rank."""
    token_skew: TokenSkew | Skipped
    padding: PaddingWaste | Skipped
    pipelines: tuple[PipelineBubbles, ...]
    late_stages: tuple[LateStage, ...]
    n_steps: int
    window_ns: int
    step_ns: int | None

    @property
    def summaries(self) -> tuple[RankSummary, ...]:
        """The ranks' summaries, in the order of ranks."""
        return tuple(outcome.summary for outcome in self.outcomes)

    def outcome_of(self, rank: int) -> Outcome:
        """The outcome of a rank that is here."""
        return self.by_rank[rank]

    @property
    def per(self) -> str:
        """What a total is given per: "per step", or "in the window"."""
        return "per step" if self.step_ns is not None else "in the window"

    def per_step(self, total_ns: int) -> int:
        """A total over the window per step."""
        return total_ns // self.n_steps

    def saved_ns(self, total_ns: int) -> int:
        """What the mean step loses with a total over the window; without steps, the total."""
        if self.step_ns is None or not self.window_ns:
            return self.per_step(total_ns)
        return round(total_ns * self.step_ns / self.window_ns)

    def fraction(self, total_ns: int) -> float:
        """A total as a share of the window, at most 1."""
        return min(total_ns / self.window_ns, 1.0) if self.window_ns else 0.0


def joined(outcomes: Sequence[Outcome]) -> Joint:
    """What ranks show together; each must be there once."""
    summaries = [outcome.summary for outcome in outcomes]
    matching = matched(summaries)
    clocks = aligned(summaries, matching)
    waits = split(summaries, matching, clocks)
    steps = [outcome.report.steps for outcome in outcomes]
    means = [step.mean_ns for step in steps if step.mean_ns is not None]
    windows = [high - low for low, high in (outcome.report.window_ns for outcome in outcomes)]
    n_steps = max(median(np.array([step.n for step in steps], np.int64)), 1)
    window = median(np.array(windows, np.int64))
    measured = steps_measured(summaries, clocks, waits) or n_steps
    window_ns = window * measured // n_steps
    pipelines = pipeline_bubbles(summaries, matching)
    found = zip(find_stragglers(waits, summaries), waits, strict=True)
    stragglers = tuple(
        _checked(_possible(_of_one_stage(answer, group, pipelines), window_ns), group, outcomes, measured)
        for answer, group in found
    )
    named = [straggler for answer in stragglers for straggler in answer.named]
    prediction = counterfactual(summaries, matching, clocks, named)
    if any(answer.hidden for answer in stragglers):
        shown = tuple(replace(answer, named=(*answer.named, *answer.hidden), hidden=()) for answer in stragglers)
        every = [straggler for answer in shown for straggler in answer.named]
        of_all = counterfactual(summaries, matching, clocks, every)
        if _gains_more(of_all, prediction):
            stragglers, named, prediction = shown, every, of_all
    late = {straggler.rank for straggler in named}
    each = {
        rank: counterfactual(summaries, matching, clocks, [one for one in named if one.rank == rank])
        for rank in (late if 1 < len(late) <= _MOST_APART else ())
    }
    return Joint(
        outcomes=tuple(outcomes),
        by_rank={outcome.summary.rank: outcome for outcome in outcomes},
        matching=matching,
        clocks=clocks,
        waits=waits,
        stragglers=stragglers,
        prediction=prediction,
        alone={rank: found for rank, found in each.items() if isinstance(found, Counterfactual)},
        token_skew=token_skew(summaries, waits),
        padding=padding_waste(summaries),
        pipelines=pipelines,
        late_stages=late_stages(pipelines, {summary.rank: summary for summary in summaries}),
        limits=tuple(communication_limit(group) for group in waits),
        traffic=tuple(traffic(group, summaries) for group in waits),
        slow_links=by_cost((*slow_links(waits), *slow_pairs(summaries, matching))),
        n_steps=measured,
        window_ns=window_ns,
        step_ns=median(np.array(means, np.int64)) if means else None,
    )


def _gains_more(one: Counterfactual | ReplayRefusal, other: Counterfactual | ReplayRefusal) -> bool:
    """Whether the first prediction saves more than the second by what makes it worth to mend more ranks."""
    if not isinstance(one, Counterfactual) or not isinstance(other, Counterfactual):
        return False
    return one.gain_ns >= (1 + LATE_RANK.limit("share")) * other.gain_ns


def _checked(answer: Stragglers, waits: GroupWaits, outcomes: Sequence[Outcome], n_steps: int) -> Stragglers:
    """The answer with phases that hold against the whole windows of the peers that are not late themselves."""
    late = {one.rank for one in (*answer.named, *answer.hidden)}
    peers = [rank for rank in waits.ranks if rank not in late]

    def checked(one: Straggler) -> Straggler:
        return with_checked_phase(one, [one.rank, *peers] if peers else waits.ranks, outcomes, n_steps)

    return replace(answer, named=tuple(map(checked, answer.named)), hidden=tuple(map(checked, answer.hidden)))


def _of_one_stage(answer: Stragglers, waits: GroupWaits, pipelines: Sequence[PipelineBubbles]) -> Stragglers:
    """The stragglers, if no two ranks of the group are stages of one pipeline: those differ by design."""
    lines = ({stage.rank for stage in found.stages} for found in pipelines)
    if all(len(line.intersection(waits.ranks)) < 2 for line in lines):
        return answer
    reason = "its ranks are stages of a pipeline, which differ by design"
    return replace(answer, named=(), hidden=(), reason=answer.reason or reason)


def _possible(answer: Stragglers, window_ns: int) -> Stragglers:
    """The stragglers without those whose lateness would be longer than all steps together.

    Then its collectives lie beside the steps, or a clock has jumped: what could be saved per step is not known.
    """
    beyond = next((one for one in (*answer.named, *answer.hidden) if one.excess_ns > window_ns), None)
    if beyond is None:
        return answer
    reason = (
        f"rank {beyond.rank} would be {format_ns(beyond.excess_ns)} late within {format_ns(window_ns)} of steps:"
        " its collectives lie outside the steps, or a clock jumps"
    )
    return replace(answer, named=(), hidden=(), reason=reason)
