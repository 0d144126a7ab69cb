"""Do unequal tokens make ranks wait, and how much of the work is padding?

Counts of tokens, padded tokens and samples, by rank and step, come from
`profkit.capture.step(tokens=..., padded_tokens=..., samples=...)`. Without them the indices that an embedding looked up
tell what was padded, where the trace has shapes: an estimate, and nothing about what was real.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.findings.ranks.tokens import PADDING, TOKEN_SKEW
from profkit.model.arrays import I64, Bool, median
from profkit.model.finding import Skipped
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.measure.windows import common_steps, of_steps
from profkit.ranks.reduce.records import RankSummary
from profkit.timeline.steps import needed_ns
from profkit.units import format_fraction

Float = NDArray[np.float64]

_N_SHUFFLES: Final = 2_000
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
        common = common_steps([summary.steps.number[mask] for summary, mask in zip(ranks, known, strict=True)])
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


class TokenSkew(msgspec.Struct, frozen=True, kw_only=True):
    """Whether unequal numbers of tokens make ranks wait for each other; `reason` says why not, "" if they do."""

    reason: str
    level: Level
    skew_fraction: float
    """`mean_t(max/mean - 1)` of the tokens the ranks computed on; of R ranks up to R - 1."""
    correlation: float
    """Spearman's, of the tokens a rank had more than its step's mean with how much less it waited; NaN if undefined."""
    p_value: float
    n_steps: int
    n_ranks: int
    rotation: float
    """Entropy of which rank waits least, 0 (always the same) to 1 (each as often)."""
    ns_per_token: float
    """Slope of the fit of a rank's own time."""
    explained_fraction: float
    """How much of the variance of own time the fit explains (R squared)."""
    recoverable_ns: int
    """Per step: what the fit gives the largest rank more than the mean; with equal tokens nobody would be later."""
    largest: tuple[int, int, int]
    """The worst step: its number, the rank with most tokens, and how many; the mean is `largest_mean`."""
    largest_mean: float

    @property
    def is_found(self) -> bool:
        """Whether the finding holds."""
        return not self.reason

    @property
    def is_equal(self) -> bool:
        """Whether all ranks have as many tokens as makes no difference: unequal ones are ruled out then."""
        return self.n_steps >= TOKEN_SKEW.limit("steps") and self.skew_fraction < TOKEN_SKEW.limit("skew")

    @property
    def is_rotating(self) -> bool:
        """Whether the latest rank changes from step to step, as data does and hosts do not."""
        return self.rotation >= TOKEN_SKEW.limit("rotation")


class PaddingWaste(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what was computed is padding; `reason` says why that is no finding, "" if it is."""

    reason: str
    waste_fraction: float
    """`1 - sum real / sum padded` over all steps and ranks."""
    tokens: int
    padded_tokens: int
    tokens_per_s: float
    """Of all ranks together."""
    n_steps: int
    compute_ns: int
    """Compute per step of the rank that has most, the mean over steps."""
    recoverable_ns: int
    """Per step: that compute times the waste, as if all of it grew with tokens; attention grows faster."""

    @property
    def is_found(self) -> bool:
        """Whether the finding holds."""
        return not self.reason


def token_skew(summaries: Sequence[RankSummary], waits: Sequence[GroupWaits]) -> TokenSkew | Skipped:
    """Whether ranks wait for each other because some have more tokens (docs/sources.md, rule 11)."""
    counts = step_tokens(summaries)
    if isinstance(counts, Skipped):
        return counts
    columns, waited, seen = _waited_ns(counts, waits)
    if len(columns) < 2 or not seen.any():
        reason = "the steps with token counts have no collective on several ranks: which rank waited is unknown"
        return Skipped(analyzer="tokens", reason=reason, how_to_get="capture all ranks of the job at once")
    tokens, late = counts.padded_tokens[seen][:, columns], -waited[seen]
    correlation, p_value = _rank_correlation(tokens, late)
    fit = _fitted(counts)
    worst = int((counts.padded_tokens.max(axis=1) / counts.padded_tokens.mean(axis=1)).argmax())
    column = int(counts.padded_tokens[worst].argmax())
    skew = TokenSkew(
        reason="",
        level=counts.level,
        skew_fraction=counts.skew,
        correlation=correlation,
        p_value=p_value,
        n_steps=int(seen.sum()),
        n_ranks=len(columns),
        rotation=_rotation(late),
        ns_per_token=fit[1],
        explained_fraction=fit[2],
        recoverable_ns=fit[0],
        largest=(int(counts.number[worst]), counts.ranks[column], int(counts.padded_tokens[worst, column])),
        largest_mean=float(counts.padded_tokens[worst].mean()),
    )
    return _with_reason(skew)


def padding_waste(summaries: Sequence[RankSummary]) -> PaddingWaste | Skipped:
    """How much of the work was padding (docs/sources.md, rule 10)."""
    counts = step_tokens(summaries)
    if isinstance(counts, Skipped):
        return counts
    if not counts.has_padding:
        told = (
            "shapes show padded tokens only" if counts.level is Level.ESTIMATED else "real or padded tokens are missing"
        )
        return Skipped(analyzer="padding", reason=f"{told}: the share of padding is unknown", how_to_get=HOW_TO_COUNT)
    if (counts.padded_tokens < counts.tokens).any():
        reason = "padded_tokens is smaller than tokens: it must count all tokens, padding included"
        return Skipped(analyzer="padding", reason=reason, how_to_get=HOW_TO_COUNT)
    real, padded = int(counts.tokens.sum()), int(counts.padded_tokens.sum())
    waste = 1 - real / padded
    compute = of_steps(counts.number, summaries, lambda summary: summary.steps.phase_ns[:, 1])
    needed = needed_ns(compute, counts.tokens, counts.padded_tokens)
    # The median rank's steps, as the step time of many ranks is: the product of rate and step is a step's tokens.
    spent_ns = median(counts.step_ns.sum(axis=0))
    least = PADDING.limit("waste")
    reason = (
        ""
        if waste >= least
        else f"{format_fraction(waste)} of the tokens are padding: less than {format_fraction(least)}"
    )
    return PaddingWaste(
        reason=reason,
        waste_fraction=waste,
        tokens=real,
        padded_tokens=padded,
        tokens_per_s=real / spent_ns * 1e9,
        n_steps=len(counts.number),
        compute_ns=round(float(compute.max(axis=1).mean())),
        recoverable_ns=round(float((compute.max(axis=1) - needed.max(axis=1)).mean())),
    )


def _waited_ns(counts: StepTokens, waits: Sequence[GroupWaits]) -> tuple[list[int], I64, Bool]:
    """How much longer than the shortest each rank stayed in its collectives, [S, R], and which steps have any.

    Before that the columns of the ranks that R stands for: those found in collectives. No clocks are needed.
    """
    whole = [group for group in waits if set(counts.ranks) <= set(group.ranks)] or waits
    met = {rank for group in whole for rank in group.ranks}
    ranks = [rank for rank in counts.ranks if rank in met]
    place_of = {rank: place for place, rank in enumerate(ranks)}
    out = np.zeros((len(counts.number), len(ranks)), np.int64)
    seen = np.zeros(len(out), np.bool_)
    for group in whole:
        rows = np.flatnonzero(np.isin(group.step, counts.number) & group.present.all(axis=1))
        place = np.searchsorted(counts.number, group.step[rows])
        seen[place] = True
        for column, rank in enumerate(group.ranks):
            if rank in place_of:
                np.add.at(out[:, place_of[rank]], place, group.free_wait_ns[rows, column])
    return [column for column, rank in enumerate(counts.ranks) if rank in met], out, seen


def _rank_correlation(left: I64, right: I64) -> tuple[float, float]:
    """Spearman's correlation of what lies off the rows' means, and how often shuffles within rows reach it.

    NaN and 1 if undefined.
    """
    one, two = _centred_ranks(left), _centred_ranks(right)
    scale = float(np.sqrt((one**2).sum() * (two**2).sum()))
    if scale == 0:
        return float("nan"), 1.0
    observed = float((one * two).sum()) / scale
    generator = np.random.default_rng(0)
    n_as_large = sum(
        float((one * generator.permuted(two, axis=1)).sum()) / scale >= observed - 1e-12 for _ in range(_N_SHUFFLES)
    )
    return observed, (1 + n_as_large) / (1 + _N_SHUFFLES)


def _centred_ranks(values: I64) -> Float:
    """The place of each value's distance from its row's mean among all such distances, ties shared, middle at 0.

    Not its place within the row: of two ranks with nearly as many tokens it says nothing who waits.
    """
    apart = values * values.shape[1] - values.sum(axis=1, keepdims=True)  # times R, so that it stays whole
    distinct, place, count = np.unique(apart, return_inverse=True, return_counts=True)
    above = np.cumsum(count) - (count - 1) / 2
    centred: Float = above[place.reshape(values.shape)] - (apart.size + 1) / 2
    return centred if distinct.size > 1 else np.zeros(values.shape)


def _rotation(late: I64) -> float:
    """The entropy of which rank is latest, as a share of the largest possible in so many steps."""
    n_steps, n_ranks = late.shape
    share = np.bincount(late.argmax(axis=1), minlength=n_ranks) / n_steps
    share = share[share > 0]
    most = np.log(min(n_ranks, n_steps))
    return float(-(share * np.log(share)).sum() / most) if most > 0 else 0.0


def _fitted(counts: StepTokens) -> tuple[int, float, float]:
    """What equal tokens could save per step (ns), ns per token and R squared, by `t = a + b tok (+ c tok L)`.

    The last term, for attention, where lengths are told and there are points enough; over all steps and ranks at once.
    """
    tokens, own = counts.padded_tokens.astype(np.float64), counts.own_ns.astype(np.float64)
    columns = [np.ones(tokens.size), tokens.ravel()]
    slope, _ = _least_squares(columns, own)
    length = counts.max_length
    if not np.isnan(length).any() and tokens.size >= _MIN_POINTS:
        columns.append((tokens * length).ravel())
    _, fit = _least_squares(columns, own)
    spread = float(((own - own.mean()) ** 2).sum())
    explained = 1 - float(((own - fit) ** 2).sum()) / spread if spread > 0 else 0.0
    saved = float((fit.max(axis=1) - fit.mean(axis=1)).mean()) if slope > 0 else 0.0
    return round(saved), slope, max(explained, 0.0)


_MIN_POINTS: Final = 12


def _least_squares(columns: Sequence[Float], own: Float) -> tuple[float, Float]:
    """The coefficient of the second column and the fitted values, in the shape of `own`."""
    table = np.stack(columns, axis=1)
    scale = np.maximum(np.abs(table).max(axis=0), 1.0)  # tokens times length is 1e7 times the constant
    solution = np.linalg.lstsq(table / scale, own.ravel(), rcond=None)[0]
    return float(solution[1] / scale[1]), (table / scale @ solution).reshape(own.shape)


def _with_reason(skew: TokenSkew) -> TokenSkew:
    reason, least, related = "", TOKEN_SKEW.limit("skew"), TOKEN_SKEW.limit("correlation")
    if skew.n_steps < TOKEN_SKEW.limit("steps"):
        reason = f"{skew.n_steps} steps have counts and collectives; {TOKEN_SKEW.limit('steps'):g} are needed"
    elif skew.skew_fraction < least:
        reason = (
            f"the rank with the most tokens has {format_fraction(skew.skew_fraction)} more than the mean: less than"
            f" {format_fraction(least)}"
        )
    elif not skew.correlation >= related:
        reason = f"ranks with more tokens do not wait less: Spearman {-skew.correlation:.2f}, not below {-related}"
    elif skew.p_value >= TOKEN_SKEW.limit("p"):
        reason = f"the link of tokens and waiting may be chance: p = {skew.p_value:.2g} in {skew.n_steps} steps"
    elif skew.recoverable_ns <= 0:
        reason = "a rank's own time does not grow with its tokens"
    return replace(skew, reason=reason)
