"""What the ranks of one job show together: everything measured across them, before anything is judged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from profkit.findings.ranks.stragglers import LATE_RANK
from profkit.model.arrays import median
from profkit.model.budget import Budget
from profkit.model.documents.rank_report import DeviceReport, RankReport
from profkit.model.finding import Skipped
from profkit.ranks.align.clocks import Clocks, aligned
from profkit.ranks.align.match import matched
from profkit.ranks.align.match_types import Matching
from profkit.ranks.measure.fingerprints import CommunicationLimit, Traffic, communication_limit, traffic
from profkit.ranks.measure.permutation_test import FEW_STEPS, MIN_STEPS
from profkit.ranks.measure.pipelines import LateStage, PipelineBubbles, late_stages, pipeline_bubbles
from profkit.ranks.measure.replay import Counterfactual, ReplayRefusal, counterfactual
from profkit.ranks.measure.slow_links import SlowLink, slow_links
from profkit.ranks.measure.stragglers import Straggler, Stragglers, find_stragglers
from profkit.ranks.measure.tokens import PaddingWaste, TokenSkew, padding_waste, token_skew
from profkit.ranks.measure.waits import GroupWaits, split
from profkit.ranks.measure.windows import steps_measured
from profkit.ranks.reduce.outcome import Outcome
from profkit.ranks.reduce.records import PHASES, RankSummary
from profkit.units import format_ns

_MOST_APART: Final = 8
"""Late ranks of which the step is replayed without each alone. Chosen: with more, none alone is the cause."""
_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "data": ("idle_data",),
    "compute": ("compute",),
    "host": ("idle_sync", "idle_launch", "idle_host", "idle_unknown"),
    "copy": ("copy_exposed",),
    "device": ("idle_dependency",),
}
_ALIKE: Final = 0.1
"""By how much windows without steps may differ in length to be compared. Chosen."""


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

    def shown(self, total_ns: int) -> str:
        """A total over the window as people read it, per step."""
        return format_ns(self.per_step(total_ns))

    def sure(self, confidence: float, ranks: Iterable[int], n_steps: int = MIN_STEPS) -> float:
        """The confidence in what these ranks show, in how few steps; their captures' faults are the most it may be."""
        confidence *= FEW_STEPS if n_steps < MIN_STEPS else 1.0
        return min(confidence, *(self.by_rank[rank].confidence_cap for rank in ranks))

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
    if isinstance(prediction, Counterfactual):
        prediction = _behind_hosts(prediction, summaries)
    return Joint(
        outcomes=tuple(outcomes),
        by_rank={outcome.summary.rank: outcome for outcome in outcomes},
        matching=matching,
        clocks=clocks,
        waits=waits,
        stragglers=stragglers,
        prediction=prediction,
        alone={rank: _behind_hosts(one, summaries) for rank, one in each.items() if isinstance(one, Counterfactual)},
        token_skew=token_skew(summaries, waits),
        padding=padding_waste(summaries),
        pipelines=pipelines,
        late_stages=late_stages(pipelines, {summary.rank: summary for summary in summaries}),
        limits=tuple(communication_limit(group) for group in waits),
        traffic=tuple(traffic(group, summaries) for group in waits),
        slow_links=slow_links(waits, summaries, matching),
        n_steps=measured,
        window_ns=window_ns,
        step_ns=median(np.array(means, np.int64)) if means else None,
    )


def room_ns(summaries: Sequence[RankSummary], late: Collection[int]) -> int:
    """What the steps can become shorter in all, whatever these ranks do: no other rank's host can be done sooner."""
    longest = max(high - low for low, high in (one.window_ns for one in summaries))
    busy = [one.busy_ns[0] for one in summaries if one.rank not in late and one.busy_ns is not None]
    return max(longest - max(busy, default=0), 0)


def _behind_hosts(found: Counterfactual, summaries: Sequence[RankSummary]) -> Counterfactual:
    """The prediction, of which the replay knows devices alone, with no step shorter than the other hosts need."""
    room = room_ns(summaries, found.ranks) // found.n_steps
    least = found.observed_ns - room
    return replace(
        found,
        predicted_ns=max(found.predicted_ns, least),
        predicted_most_ns=max(found.predicted_most_ns, least),
        later_gain_ns=min(found.later_gain_ns, room),
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
        return _with_checked_phase(one, [one.rank, *peers] if peers else waits.ranks, outcomes, n_steps)

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


# ------------------------------------------------------------ what a late rank has more of over the whole window


def busiest(report: RankReport) -> DeviceReport:
    """A rank's busiest device."""
    return max(report.devices, key=lambda device: device.busy_any_ns)


def budget_of(report: RankReport) -> Budget:
    """The budget of a rank's busiest device."""
    return busiest(report).budget


def spent_ns(report: RankReport, *parts: str) -> float:
    """What a rank has of these parts of the budget, per step; per window without steps."""
    budget = budget_of(report)
    return float(sum(getattr(budget, part) for part in parts)) / max(report.steps.n, 1)


def _with_checked_phase(late: Straggler, ranks: Sequence[int], outcomes: Sequence[Outcome], n_steps: int) -> Straggler:
    """The straggler with a phase of which its rank has more than its peers of the group (`ranks`) in the whole window.

    What was counted before some collectives may be missing before others: a rank whose compute comes in another place
    computes no longer. Then the phase is the one of which the rank has most beyond its peers, or none.
    """
    members = set(ranks)
    by_rank = {outcome.summary.rank: outcome for outcome in outcomes if outcome.summary.rank in members}
    if not _are_alike([by_rank[rank].report for rank in ranks]):
        return late
    more = {
        phase: _phase_ns(by_rank[late.rank], phase)
        - float(np.median([_phase_ns(by_rank[rank], phase) for rank in ranks if rank != late.rank]))
        for phase in _PARTS
    }
    if late.more is not None:  # its operators and what dispatches them are one cause
        more["compute"] += more["host"]
        more["host"] = 0.0
    least = LATE_RANK.limit("beside_peers")
    if late.phase is not None:
        seen = late.phase_excess_ns[PHASES.index(late.phase)] / n_steps
        if more[late.phase] >= least * seen:
            return late
    largest = max(more, key=lambda phase: more[phase])
    if late.phase is None and more[largest] < least * late.lateness_ns / n_steps:
        return late
    is_enough = more[largest] >= least * late.lateness_ns / n_steps
    over_window = tuple(round(more[phase] * n_steps) for phase in PHASES)
    return replace(late, phase=largest if is_enough else None, phase_excess_ns=over_window)


def _phase_ns(outcome: Outcome, phase: str) -> float:
    """What a rank has of a phase, per step: of the host also what communication alone hides of it."""
    hidden = outcome.summary.unasked_ns / max(outcome.report.steps.n, 1) if phase == "host" else 0.0
    return spent_ns(outcome.report, *_PARTS[phase]) + hidden


def _are_alike(reports: Sequence[RankReport]) -> bool:
    """Whether these ranks' windows can be compared: by their steps, or where they are equally long."""
    if all(report.steps.mean_ns is not None for report in reports):
        return True
    lengths = [high - low for low, high in (report.window_ns for report in reports)]
    return max(lengths) <= (1 + _ALIKE) * min(lengths)
