"""What the steps of ranks worked on: tokens, padded tokens and samples, by rank and step.

Counts come from `profkit.capture.step(tokens=..., padded_tokens=..., samples=...)`. Without them the indices that an
embedding looked up tell what was padded, where the trace has shapes: an estimate, and nothing about what was real.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.model.arrays import I64, Bool
from profkit.model.finding import Skipped
from profkit.ranks.reduce.records import RankSummary

HOW_TO_COUNT: Final = "call profkit.capture.step(tokens=..., padded_tokens=..., samples=...) at the end of each step"


class Level(StrEnum):
    """Where counts come from."""

    COUNTED = "counted"
    ESTIMATED = "estimated"


class StepTokens(msgspec.Struct, frozen=True, kw_only=True):
    """Counts by step and rank, [S, R], of the steps that all ranks have counted; 0 where a kind was not told.

    `padded_tokens` are the tokens a rank computed on: told, else the real ones (nothing was padded), else estimated.
    """

    level: Level
    ranks: tuple[int, ...]
    number: I64
    tokens: I64
    """Real tokens; all 0 where only shapes tell."""
    padded_tokens: I64
    samples: I64
    step_ns: I64
    own_ns: I64
    """What each rank did itself: its step without waiting for communication."""
    has_padding: bool
    """Whether padded tokens were told beside real ones, so that padding is known."""

    @property
    def skew(self) -> float:
        """By how much the largest rank is above the mean, mean over steps: `mean_t(max/mean - 1)`."""
        return float((self.padded_tokens.max(axis=1) / self.padded_tokens.mean(axis=1) - 1).mean())

    @property
    def max_length(self) -> NDArray[np.float64]:
        """Padded tokens per sample, [S, R]: the longest sample where a step pads one batch to it; NaN if not told."""
        samples = np.where(self.samples > 0, self.samples, 1)
        return np.where(self.samples > 0, self.padded_tokens / samples, np.nan)


def step_tokens(summaries: Sequence[RankSummary]) -> StepTokens | Skipped:
    """The counts of the steps that all ranks have."""
    ranks = sorted(summaries, key=lambda summary: summary.rank)
    for level, kinds in ((Level.COUNTED, ("tokens", "padded_tokens")), (Level.ESTIMATED, ("embedded",))):
        known = [_known(summary, kinds) for summary in ranks]
        common = _common([summary.steps.number[mask] for summary, mask in zip(ranks, known, strict=True)])
        if common.size:
            return _counts(level, ranks, common)
    reason = "no trace has token counts for its steps"
    if any(_known(summary, ("tokens", "padded_tokens", "embedded")).any() for summary in ranks):
        reason = "no step has token counts on every rank"
    return Skipped(
        analyzer="tokens", reason=reason, how_to_get=f"{HOW_TO_COUNT}; or record with shapes, for an estimate"
    )


def _known(summary: RankSummary, kinds: tuple[str, ...]) -> Bool:
    counts: I64 = np.stack([getattr(summary.steps, kind) for kind in kinds])
    known: Bool = np.greater(counts.max(axis=0), 0)
    return known


def _common(numbers: Sequence[I64]) -> I64:
    common = numbers[0]
    for other in numbers[1:]:
        common = np.intersect1d(common, other)
    return np.unique(common)


def _counts(level: Level, ranks: Sequence[RankSummary], number: I64) -> StepTokens:
    def column(kind: str) -> I64:
        return of_steps(number, ranks, lambda summary: getattr(summary.steps, kind))

    tokens, padded = column("tokens"), column("padded_tokens")
    if level is Level.ESTIMATED:
        padded = column("embedded")
    return StepTokens(
        level=level,
        ranks=tuple(summary.rank for summary in ranks),
        number=number,
        tokens=tokens,
        padded_tokens=np.where(padded > 0, padded, tokens),
        samples=column("samples"),
        step_ns=of_steps(number, ranks, lambda summary: summary.steps.end_ns - summary.steps.start_ns),
        own_ns=of_steps(number, ranks, lambda summary: summary.steps.phase_ns.sum(axis=1)),
        has_padding=level is Level.COUNTED and bool((tokens > 0).all() and (padded > 0).all()),
    )


def of_steps(number: I64, summaries: Sequence[RankSummary], column: Callable[[RankSummary], I64]) -> I64:
    """A column of the steps with these numbers, [S, R], ranks in order."""
    ranks = sorted(summaries, key=lambda summary: summary.rank)
    out = np.zeros((number.size, len(ranks)), np.int64)
    for place, summary in enumerate(ranks):
        _, _, rows = np.intersect1d(number, summary.steps.number, return_indices=True)
        out[:, place] = column(summary)[rows]
    return out
