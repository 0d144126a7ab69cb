"""Findings on the input pipeline."""

from __future__ import annotations

from typing import Final

from profkit.findings import parts
from profkit.findings.kind import FindingKind, Threshold
from profkit.model.documents.report import Bottleneck

STARVED: Final = FindingKind(
    id="input.starved",
    tries=("workers", "prefetch", "persistent", "one_batch"),
    title="the step waits for its DataLoader",
    bottleneck=Bottleneck.DATA,
    part=parts.DATA,
    late_phase="data",
    late_word="loader",
    meaning="The host waits in DataLoader.__next__ and has nothing to launch, so the GPU becomes idle. Waits that are hidden under queued GPU work cost nothing and are not counted.",
    measured="The union of loader ranges intersected with the device's idle time before the next launch, over the"
    " whole window: with workers the wait comes once per num_workers steps, so a median per step hides it. On a"
    " CPU-only trace: the loader ranges themselves, with the operators that run inside them.",
    thresholds={
        "window": Threshold(
            0.05, "fires at {} of the window", "torch-tb-profiler fires at 5 %; XProf uses 5 % and 20 %"
        ),
        "busy": Threshold(
            0.95,
            "on a CPU, where workers fetch for less than {} of their time, what all waits have in common is no starving:"
            " the step takes over batches that are ready",
            "measured in recordings of docs/accuracy.md: 99 % where workers were too few, 92 % and less elsewhere",
        ),
        "once": Threshold(
            0.8,
            "if one step has {} of the waiting, the finding says 'once'",
            "chosen; the end of an epoch or a first batch is such a step",
        ),
        "workers": Threshold(
            2,
            "up to {} workers are advised as a number, more are left to the machine's cores",
            "chosen: the trace does not say how many cores there are, and any that trains has two",
            "",
        ),
    },
    lookalikes=(
        "the end of an epoch or the first batch: then one step has most of the waiting",
        "another rank is slow and this rank waits in a collective: that is communication, not loader time",
        "a synchronising call hidden in the batch's collate or copy",
    ),
    proof="Fetch one batch before the loop and reuse it. If the step becomes shorter by at least 70 % of the predicted saving, this is the cause.",
    fixes=(
        "num_workers > 0, persistent_workers=True, prefetch_factor=4, pin_memory=True",
        "decode or tokenise once, store the result; larger sequential reads",
        "move augmentation to the GPU",
    ),
)
