"""Findings on tokens: unequal ones make ranks wait, padded ones are computed for nothing."""

from __future__ import annotations

from typing import Final

from profkit.findings.kind import FindingKind, Supersedes, Threshold, Way
from profkit.model.documents.report import Bottleneck

TOKEN_SKEW: Final = FindingKind(
    id="token.skew",
    title="ranks wait for the rank with the most tokens",
    bottleneck=Bottleneck.STRAGGLER,
    supersedes=(
        Supersedes("comm.exposed", Way.SAID_ONCE, 0),
        Supersedes("comm.skew", Way.SAID_ONCE, 0),
        Supersedes("comm.bandwidth", Way.SECOND, 0),
    ),
    meaning="In each step, some rank gets more tokens than the others and computes longer; all others wait for it in the next collective. The step times of all ranks are still equal, because of the collective.",
    measured="Tokens per rank and step are what the script passed to profkit.capture.step (padded tokens where given, since those are computed), or the indices of embeddings where shapes were recorded (marked as estimated). A rank's excess over its step's mean is compared with how much less it waited, which needs no clocks. Recoverable is the extra time that a fit of own time, t = a + b tokens + c tokens x length, gives the largest rank over the mean rank.",
    thresholds={
        "skew": Threshold(0.05, "mean over steps of largest / mean - 1 from {}", "docs/sources.md, rule 11"),
        "correlation": Threshold(0.7, "Spearman from {}", "docs/sources.md, rule 11", ""),
        "steps": Threshold(6, "{} steps", "docs/sources.md, rule 11", ""),
        "p": Threshold(
            0.01,
            "p < {} (permutation test, ranks shuffled within steps)",
            "chosen; by chance, two ranks are in the same order six times once in 64",
            "",
        ),
        "rotation": Threshold(
            0.8,
            "the latest rank changes from step to step from an entropy of {}",
            "docs/sources.md, rule 11; data changes the rank, hosts do not",
            "",
        ),
    },
    lookalikes=(
        "a slow rank: the same rank is late in every step; with tokens the latest rank changes (entropy from 0.8)",
        "samples of equal length that take different time, or images of different size: token counts do not show these",
        "padding: ranks with equal padded tokens do not wait for each other, even if their real tokens differ",
    ),
    proof="Give every rank the same batch: the waiting must disappear.",
    fixes=(
        "make batches by tokens, not by samples",
        "sort by length and spread the lengths over ranks",
        "pack sequences to equal length",
    ),
)

PADDING: Final = FindingKind(
    id="padding.waste",
    title="many of the computed tokens are padding",
    is_about_work=True,
    meaning="Samples of different length are padded to the longest in their batch, and the padding is computed like tokens.",
    measured="1 - real / padded tokens over all steps and ranks, as the script passed them to profkit.capture.step; a trace does not have them otherwise. Recoverable is the compute of the rank with the most, minus what real tokens alone would need if compute grew with tokens; attention grows faster and saves more.",
    thresholds={"waste": Threshold(0.1, "{} of the tokens", "docs/sources.md, rule 10")},
    lookalikes=(
        "intentional padding, for captured graphs or kernels that need multiples: there, padding makes it faster",
        "attention that already skips padding (variable-length kernels): only the rest of the compute is wasted",
    ),
    proof="Run the same samples packed or sorted by length: real tokens per second must rise by up to 1 / (1 - waste),"
    " with attention beyond it (measured once at 39.5 % waste: x1.71 where that ratio is x1.65).",
    fixes=(
        "make batches of similar length",
        "pack samples (attention kept apart)",
        "cap padded tokens per batch",
    ),
)
