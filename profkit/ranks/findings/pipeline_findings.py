"""`pipeline.bubble`: what the stages of a pipeline stand idle, beside what its schedule must leave idle."""

from __future__ import annotations

from collections.abc import Iterable

from profkit.analyzers.base import Scope
from profkit.analyzers.tools import system_timeline
from profkit.findings.ranks.pipeline import BUBBLE
from profkit.model.finding import Evidence, Finding
from profkit.ranks.measure.fleet_measures import Joint
from profkit.ranks.measure.pipeline_bubbles import PipelineBubbles
from profkit.units import format_fraction, format_ns, format_speedup


def findings(joint: Joint, scope: Scope) -> Iterable[Finding]:
    """The pipeline that waits most; of several alike one stands for all."""
    waiting = [found for found in joint.pipelines if found.waiting_fraction >= BUBBLE.limit("waiting")]
    if waiting:
        worst = max(waiting, key=lambda found: found.recoverable_ns)
        yield _finding(worst, joint, scope, n_alike=len(waiting) - 1)


def _finding(found: PipelineBubbles, joint: Joint, scope: Scope, *, n_alike: int) -> Finding:
    caps = [joint.outcome_of(stage.rank).confidence_cap for stage in found.stages]
    alike = f" ({n_alike} more pipelines like it)" if n_alike else ""
    return BUBBLE.found(
        title="pipeline stages wait for each other",
        confidence=min(0.85 if found.theoretical_fraction is not None else 0.6, *caps),
        recoverable_ns=found.recoverable_ns,
        fraction=found.waiting_fraction,
        evidence=(
            Evidence(
                statement=(
                    f"{len(found.stages)} stages{alike} wait for sends and receives during"
                    f" {format_fraction(found.waiting_fraction)} of a step of {format_ns(found.step_ns)}; no compute"
                    f" runs during {format_fraction(found.observed_fraction)}"
                ),
                metric="pipeline.waiting_fraction",
                value=found.waiting_fraction,
                unit="fraction",
                expected=f"< {format_fraction(BUBBLE.limit('waiting'))}",
            ),
            _theory(found),
            Evidence(
                statement=(
                    f"the busiest stage, rank {found.busiest.rank}, computes {format_speedup(found.imbalance)}"
                    " as long as the mean stage"
                ),
                metric="pipeline.imbalance",
                value=found.imbalance,
                unit="",
            ),
        ),
        fix="; or ".join(BUBBLE.fixes),
        next_tools=(
            system_timeline(
                scope, "which stage does the schedule wait for?", "a staircase of gaps at the ends of each step"
            ),
        ),
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
    return Evidence(statement=said, metric="pipeline.theoretical_fraction", value=value, unit="fraction")
