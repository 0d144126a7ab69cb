"""`pipeline.bubble`: what the stages of a pipeline stand idle, beside what its schedule must leave idle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import system_timeline
from profkit.findings.input import STARVED
from profkit.findings.ranks.pipeline import BUBBLE
from profkit.findings.ranks.stragglers import LATE_RANK, LATE_WORDS
from profkit.model.finding import Evidence, Finding, NextTool
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.longer_compute import Longer
from profkit.ranks.measure.pipelines import LateStage, PipelineBubbles
from profkit.units import format_fraction, format_ns, format_numbers, format_speedup


def findings(joint: Joint, scope: Scope) -> Iterable[Finding]:
    """The pipeline that waits most, of several alike one for all; before it the stage that the others wait for."""
    named = {late.rank for answer in joint.stragglers for late in answer.named}
    late = [stage for stage in joint.late_stages if not named & set(stage.ranks)]  # else its collectives name it
    yield from (_late_stage(stage, joint, scope) for stage in late[:1])
    waiting = [found for found in joint.pipelines if found.waiting_fraction >= BUBBLE.limit("waiting")]
    if waiting:
        worst = max(waiting, key=lambda found: found.recoverable_ns)
        yield _finding(worst, joint, scope, n_alike=len(waiting) - 1)


def _finding(found: PipelineBubbles, joint: Joint, scope: Scope, *, n_alike: int) -> Finding:
    ranks = [stage.rank for stage in found.stages]
    alike = f" ({n_alike} more pipelines like it)" if n_alike else ""
    return BUBBLE.found(
        title="pipeline stages wait for each other",
        confidence=joint.sure(0.85 if found.theoretical_fraction is not None else 0.6, ranks),
        recoverable_ns=found.recoverable_ns,
        fraction=found.waiting_fraction,
        evidence=(
            Evidence.share(
                "pipeline.waiting_fraction",
                found.waiting_fraction,
                f"{len(found.stages)} stages{alike} wait for sends and receives during"
                f" {format_fraction(found.waiting_fraction)} of a step of {format_ns(found.step_ns)}; no compute"
                f" runs during {format_fraction(found.observed_fraction)}",
                expected=f"< {format_fraction(BUBBLE.limit('waiting'))}",
            ),
            _theory(found),
            Evidence.factor(
                "pipeline.imbalance",
                found.imbalance,
                f"the busiest stage, rank {found.busiest.rank}, computes {format_speedup(found.imbalance)}"
                " as long as the mean stage",
            ),
        ),
        fix="; or ".join(BUBBLE.fixes),
        next_tools=(next_stage(scope),),
    )


def next_stage(scope: Scope) -> NextTool:
    """What shows the stages beside each other."""
    return system_timeline(
        scope,
        "which stage does the schedule wait for?",
        "a staircase of gaps at the ends of each step",
        is_for_any=True,
    )


def _theory(found: PipelineBubbles) -> Evidence:
    if found.theoretical_fraction is None or found.doubled_fraction is None:
        said, value = "the number of micro-batches is unknown, so there is no theoretical bubble to compare with", 0.0
    else:
        value = found.theoretical_fraction
        said = (
            f"with {found.n_microbatches} micro-batches in {found.n_chunks} chunk(s), the schedule must leave"
            f" {format_fraction(value)} idle; with twice as many, {format_fraction(found.doubled_fraction)}"
        )
    return Evidence.share("pipeline.theoretical_fraction", value, said)


_STAGE_FIXES: Final = {
    "data": "have the next micro-batches ready on the stage that loads: more loader workers, prefetch, cheaper samples",
    "host": "check what else the CPU of that stage is doing: logging, checkpoints, garbage collection, other processes",
    "copy": "use pinned memory and non_blocking copies on that stage, or load earlier",
    "device": "find out what holds launched work up on the stage's idle device: another process on it looks so",
    "compute": "compare the stage with its peers: clocks, power cap and temperature of its devices, its share of work",
}


def _late_stage(found: LateStage, joint: Joint, scope: Scope) -> Finding:
    words = LATE_WORDS[found.phase]
    ranks, is_one = format_numbers(found.ranks), len(found.ranks) == 1
    who = f"rank {ranks}, {words.one}" if is_one else f"ranks {ranks}, {words.several}"
    n_waiting = len({stage.rank for line in joint.pipelines for stage in line.stages} - set(found.ranks))
    saved_ns = max(found.saved_ns, *(_awaited_ns(rank, found.phase, joint) for rank in found.ranks))
    peers = "the same stage of other pipelines" if found.are_twins else "the median of the other stages"
    evidence = [
        Evidence.time(
            f"pipeline.stage_excess_ns.{found.phase}",
            found.excess_ns,
            f"stage {found.stage} of {found.n_stages} (rank{'' if is_one else 's'} {ranks}) spends"
            f" {format_ns(found.excess_ns)} {joint.per} longer {words.spent} than {peers}",
            expected=f"< {format_fraction(BUBBLE.limit('late_stage'))} of the step",
        )
    ]
    if found.phase == "compute" and found.factor is not None:
        evidence.append(
            Evidence.factor(
                "straggler.compute_factor",
                found.factor,
                f"the same kernels take {format_speedup(found.factor)} as long as there",
                expected=f"< {LATE_RANK.limit('slow_kernels')}",
            )
        )
    return LATE_RANK.found(
        title=f"{n_waiting} ranks wait for {who}",
        confidence=joint.sure(0.9, found.ranks, joint.n_steps),
        recoverable_ns=saved_ns,
        fraction=joint.fraction(saved_ns * joint.n_steps),
        evidence=tuple(evidence),
        fix=_STAGE_FIXES[found.phase],
        next_tools=(
            system_timeline(
                scope, f"what takes stage {found.stage} longer?", "what its host and device do between two receives"
            ),
        ),
        rank=found.ranks[0],
    )


def _awaited_ns(rank: int, phase: str, joint: Joint) -> int:
    """What a rank's loader costs it by replay, per step: a part of it may lie under other work; 0 of other phases."""
    found = joint.outcome_of(rank).report.findings if phase == "data" else ()
    return max((one.recoverable_ns for one in found if one.id == STARVED.id), default=0)


def stage_causes(joint: Joint) -> dict[int, str]:
    """Why a late stage's ranks are late, in some words for a table."""
    longer = {Longer.WORK: "more work", Longer.DEVICE: "same kernels {}", Longer.EITHER: "same kernels {}"}
    return {
        rank: f"{found.phase}: {longer[found.longer].format(format_speedup(found.factor or 1))}"
        if found.phase == "compute"
        else f"{found.phase}: {'loader' if found.phase == 'data' else f'stage {found.stage}'}"
        for found in joint.late_stages[:1]
        for rank in found.ranks
    }
