"""Findings on pipeline stages."""

from __future__ import annotations

from typing import Final

from profkit.findings import parts
from profkit.findings.kind import FindingKind, Threshold
from profkit.model.report import Bottleneck

BUBBLE: Final = FindingKind(
    id="pipeline.bubble",
    title="pipeline stages stand idle at the ends of each step",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    notes=("observed and theory stand beside each other (docs/sources.md, rule 21)",),
    meaning="A stage can begin when the first micro-batch has passed the stages before it, and has nothing left while"
    " the last one goes back through them. What is idle then is the bubble of the schedule.",
    measured="Stages are a chain of ranks along which sends go forward and, after the first receive, back. Observed is"
    " 1 - compute / step, the mean over stages; waiting the time a stage stood still for a send or receive alone. The"
    " theory is (p - 1) / (m v + p - 1): p stages, m micro-batches (sends to the next stage in a step), v chunks.",
    thresholds={
        "waiting": Threshold(
            0.05, "stages stand still for each other {} of the step", "chosen, as for exposed communication"
        )
    },
    lookalikes=(
        "stages of unlike length: the last holds the loss; then imbalance, not the bubble, is what to mend",
        "a slow stage or host: it computes all the time, and the others wait more than the theory has it",
        "several tensors per micro-batch: only the largest messages are counted, equal ones would count twice",
        "two stages with chunks look like two with more micro-batches: from three on the way round tells them apart",
    ),
    proof="Double the micro-batches: the idle share must fall to what the theory says.",
    fixes=(
        "more micro-batches per step",
        "an interleaved schedule (more chunks per stage), or a zero-bubble one",
        "move layers from the busiest stage to the others",
    ),
)
