"""Findings on tokens: unequal ones make ranks wait, padded ones are computed for nothing."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import FindingKind, Supersedes, Threshold, Way
from profkit.model.report import Bottleneck

TOKEN_SKEW: Final = FindingKind(
    id="token.skew",
    title="ranks wait for the one with most tokens",
    bottleneck=Bottleneck.STRAGGLER,
    supersedes=(
        Supersedes("comm.exposed", Way.SAID_ONCE, 0),
        Supersedes("comm.skew", Way.SAID_ONCE, 0),
        Supersedes("comm.bandwidth", Way.SECOND, 0),
    ),
    meaning="Each step some rank gets more tokens than the others, computes longer, and all wait for it in the next"
    " collective. Step times of all ranks are alike all the same: the collective makes them so.",
    measured="Tokens by rank and step are what the script told profkit.capture.step (padded ones, where told: those"
    " are computed on), or the indices of embeddings where shapes were recorded (then it says estimated). What a rank"
    " has more than its step's mean is set against how much less it waited, which needs no clocks. Recoverable is what"
    " a fit of own time, t = a + b tokens + c tokens x length, gives the largest rank more than the mean of ranks.",
    thresholds={
        "skew": Threshold(0.05, "mean over steps of largest / mean - 1 from {}", "docs/sources.md, rule 11"),
        "correlation": Threshold(0.7, "Spearman from {}", "docs/sources.md, rule 11", ""),
        "steps": Threshold(6, "{} steps", "docs/sources.md, rule 11", ""),
        "p": Threshold(
            0.01,
            "p < {} by shuffling ranks within steps",
            "chosen; two ranks in order six times are chance once in 64",
            "",
        ),
        "rotation": Threshold(
            0.8,
            "the latest rank changes from step to step from an entropy of {}",
            "docs/sources.md, rule 11; data does that and hosts do not",
            "",
        ),
    },
    lookalikes=(
        "a slow rank: the same rank is late in every step; with tokens the latest rotates (entropy from 0.8)",
        "samples of equal length that cost unequal time, images of other size: counts of tokens do not see them",
        "padding: ranks equal in padded tokens do not wait for each other, however unequal the real ones are",
    ),
    proof="Give every rank the same batch: the waiting must go, and the step fall by what is recoverable.",
    fixes=(
        "batches by a budget of tokens, not by a count of samples",
        "sort by length within a window, and deal lengths out over ranks",
        "pack sequences to equal length; cap outliers",
    ),
)

PADDING: Final = FindingKind(
    id="padding.waste",
    title="much of what is computed is padding",
    is_about_work=True,
    meaning="Samples of unlike length are padded to the longest of their batch, and computed like tokens.",
    measured="1 - real / padded tokens over all steps and ranks, as the script told profkit.capture.step; no trace"
    " holds it otherwise. Recoverable is the compute of the rank that has most, less what real tokens alone would need"
    " if compute grew with tokens: attention grows faster and gives more.",
    thresholds={"waste": Threshold(0.1, "{} of the tokens", "docs/sources.md, rule 10")},
    lookalikes=(
        "shapes padded on purpose, for captured graphs or kernels that need multiples: then padding buys speed",
        "attention that skips padding already (variable-length kernels): only the rest of the compute is wasted",
    ),
    proof="Run the same samples packed or sorted by length: real tokens per second must rise by up to 1 / (1 - waste),"
    " with attention beyond it (measured once at 39.5 % waste: x1.71 where that ratio is x1.65).",
    fixes=(
        "batches of samples of like length (bucketing)",
        "pack several samples into one sequence, with attention kept apart",
        "a budget of padded tokens per batch",
    ),
)
