"""Findings on pipeline stages."""

from __future__ import annotations

from typing import Final

from profkit.findings import parts
from profkit.findings.kind import FindingKind, Supersedes, Threshold, Way
from profkit.model.documents.report import Bottleneck

BUBBLE: Final = FindingKind(
    id="pipeline.bubble",
    title="pipeline stages are idle at the ends of each step",
    bottleneck=Bottleneck.COMM,
    part=parts.COMM,
    supersedes=(Supersedes("comm.exposed", Way.SAID_ONCE, 0),),  # that is where a stage waits for another
    notes=("observed and theoretical values are shown together (docs/sources.md, rule 21)",),
    meaning="A stage can begin only when the first micro-batch has passed the stages before it. It has no more work while the last micro-batch goes back through them. This idle time is the bubble of the schedule.",
    measured="Stages are a chain of ranks along which sends go forward and, after the first receive, back. Observed is"
    " 1 - compute / step, the mean over stages; waiting is the time in which a stage only waits for a send or receive. The"
    " theory is (p - 1) / (m v + p - 1): p stages, m micro-batches (sends to the next stage in a step), v chunks.",
    thresholds={
        "waiting": Threshold(0.05, "stages wait for each other {} of the step", "chosen, as for exposed communication"),
        "late_stage": Threshold(
            0.03,
            "a stage is late that has {} of the step more of its own time than the same stage of twin pipelines, or of data,"
            " host and copies than other stages",
            "docs/sources.md, rule 7: as for a late rank",
        ),
    },
    lookalikes=(
        "stages of different length (the last one has the loss): then fix the imbalance, not the bubble",
        "a slow stage or host: it computes all the time, and the others wait longer than in theory",
        "several tensors per micro-batch: only the largest messages are counted, equal ones would count twice",
        "two stages with chunks look like two with more micro-batches; from three stages on, the order of sends shows the difference",
    ),
    proof="Double the micro-batches: the idle share must fall to the theoretical value.",
    fixes=(
        "more micro-batches per step",
        "an interleaved schedule (more chunks per stage), or a zero-bubble one",
        "move layers from the busiest stage to the others",
    ),
)
