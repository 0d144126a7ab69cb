"""Do unequal tokens make ranks wait, and how much of the work is padding?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.model.arrays import I64, Bool
from profkit.model.finding import Explanation, Skipped
from profkit.ranks.measure.waits import GroupWaits
from profkit.ranks.reduce.records import RankSummary
from profkit.ranks.reduce.work_counts import HOW_TO_COUNT, Level, StepTokens, of_steps, step_tokens

Float = NDArray[np.float64]

MIN_SKEW: Final = 0.05
MIN_CORRELATION: Final = 0.7
MIN_STEPS: Final = 6
"""Skew, Spearman's correlation and steps from which on tokens are named (docs/sources.md, rule 11)."""
MAX_P: Final = 0.01
MIN_WASTE: Final = 0.1
"""Share of padding from which on it is named (docs/sources.md, rule 10)."""
_N_SHUFFLES: Final = 2_000


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
    """Entropy of which rank waits least, 0 (always the same) to 1 (each as often); from 0.8 on it rotates."""
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
    def is_rotating(self) -> bool:
        """Whether the latest rank changes from step to step: data do that, hosts do not (docs/sources.md, rule 11)."""
        return self.rotation >= 0.8


class PaddingWaste(msgspec.Struct, frozen=True, kw_only=True):
    """How much of what was computed is padding; `reason` says why that is no finding, "" if it is."""

    reason: str
    waste_fraction: float
    """`1 - sum real / sum padded` over all steps and ranks."""
    tokens: int
    padded_tokens: int
    tokens_per_s: float
    padded_tokens_per_s: float
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
    """Give whether ranks wait for each other because some have more tokens (docs/sources.md, rule 11)."""
    counts = step_tokens(summaries)
    if isinstance(counts, Skipped):
        return counts
    columns, waited, seen = _waited_ns(counts, waits)
    if len(columns) < 2 or not seen.any():
        reason = "no collective found on several ranks says who waited in the steps whose tokens are counted"
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
    """Give how much of the work was padding (docs/sources.md, rule 10)."""
    counts = step_tokens(summaries)
    if isinstance(counts, Skipped):
        return counts
    if not counts.has_padding:
        told = (
            "shapes tell padded tokens only" if counts.level is Level.ESTIMATED else "real or padded tokens are missing"
        )
        return Skipped(
            analyzer="padding", reason=f"{told}: how much of them is padding is not known", how_to_get=HOW_TO_COUNT
        )
    if (counts.padded_tokens < counts.tokens).any():
        reason = "fewer padded tokens than real ones were told: padded_tokens counts all, with padding"
        return Skipped(analyzer="padding", reason=reason, how_to_get=HOW_TO_COUNT)
    real, padded = int(counts.tokens.sum()), int(counts.padded_tokens.sum())
    waste = 1 - real / padded
    compute = of_steps(counts.number, summaries, lambda summary: summary.steps.phase_ns[:, 1])
    needed = compute * counts.tokens / np.maximum(counts.padded_tokens, 1)
    spent_ns = int(counts.step_ns.max(axis=1).sum())
    reason = "" if waste >= MIN_WASTE else f"{waste:.1%} of the tokens are padding: less than {MIN_WASTE:.0%}"
    return PaddingWaste(
        reason=reason,
        waste_fraction=waste,
        tokens=real,
        padded_tokens=padded,
        tokens_per_s=real / spent_ns * 1e9,
        padded_tokens_per_s=padded / spent_ns * 1e9,
        n_steps=len(counts.number),
        compute_ns=round(float(compute.max(axis=1).mean())),
        recoverable_ns=round(float((compute.max(axis=1) - needed.max(axis=1)).mean())),
    )


def _waited_ns(counts: StepTokens, waits: Sequence[GroupWaits]) -> tuple[list[int], I64, Bool]:
    """Give how much longer than the shortest each rank stayed in its collectives, [S, R], and which steps have any.

    Before that the columns of the ranks that R stands for: those found in collectives. No clocks are needed.
    """
    whole = [group for group in waits if set(counts.ranks) <= set(group.ranks)] or waits
    ranks = [rank for rank in counts.ranks if any(rank in group.ranks for group in whole)]
    out = np.zeros((len(counts.number), len(ranks)), np.int64)
    seen = np.zeros(len(out), np.bool_)
    for group in whole:
        rows = np.flatnonzero(np.isin(group.step, counts.number) & group.present.all(axis=1))
        place = np.searchsorted(counts.number, group.step[rows])
        seen[place] = True
        for column, rank in enumerate(group.ranks):
            if rank in ranks:
                np.add.at(out[:, ranks.index(rank)], place, group.free_wait_ns[rows, column])
    return [counts.ranks.index(rank) for rank in ranks], out, seen


def _rank_correlation(left: I64, right: I64) -> tuple[float, float]:
    """Give Spearman's correlation of what lies off the rows' means, and how often shuffles within rows reach it.

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
    """Give the place of each value's distance from its row's mean among all such distances, ties shared, middle at 0.

    Not its place within the row: of two ranks with nearly as many tokens it says nothing who waits.
    """
    apart = values * values.shape[1] - values.sum(axis=1, keepdims=True)  # times R, so that it stays whole
    distinct, place, count = np.unique(apart, return_inverse=True, return_counts=True)
    above = np.cumsum(count) - (count - 1) / 2
    centred: Float = above[place.reshape(values.shape)] - (apart.size + 1) / 2
    return centred if distinct.size > 1 else np.zeros(values.shape)


def _rotation(late: I64) -> float:
    """Give the entropy of which rank is latest, as a share of the largest possible in so many steps."""
    n_steps, n_ranks = late.shape
    share = np.bincount(late.argmax(axis=1), minlength=n_ranks) / n_steps
    share = share[share > 0]
    most = np.log(min(n_ranks, n_steps))
    return float(-(share * np.log(share)).sum() / most) if most > 0 else 0.0


def _fitted(counts: StepTokens) -> tuple[int, float, float]:
    """Give what equal tokens could save per step (ns), ns per token and R squared, by `t = a + b tok (+ c tok L)`.

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
    """Give the coefficient of the second column and the fitted values, in the shape of `own`."""
    table = np.stack(columns, axis=1)
    scale = np.maximum(np.abs(table).max(axis=0), 1.0)  # tokens times length is 1e7 times the constant
    solution = np.linalg.lstsq(table / scale, own.ravel(), rcond=None)[0]
    return float(solution[1] / scale[1]), (table / scale @ solution).reshape(own.shape)


def _with_reason(skew: TokenSkew) -> TokenSkew:
    reason = ""
    if skew.n_steps < MIN_STEPS:
        reason = f"{skew.n_steps} steps with counts and collectives: it takes {MIN_STEPS}"
    elif skew.skew_fraction < MIN_SKEW:
        reason = f"the largest rank has {skew.skew_fraction:.1%} more tokens than the mean: less than {MIN_SKEW:.0%}"
    elif not skew.correlation >= MIN_CORRELATION:
        reason = f"ranks with more tokens do not wait less: Spearman {skew.correlation:.2f}, not {MIN_CORRELATION}"
    elif skew.p_value >= MAX_P:
        reason = f"chance orders ranks as much by their tokens: p = {skew.p_value:.2g} in {skew.n_steps} steps"
    return replace(skew, reason=reason)


TOKEN_SKEW: Final = Explanation(
    id="token.skew",
    title="ranks wait for the one with most tokens",
    meaning="Each step some rank gets more tokens than the others, computes longer, and all wait for it in the next"
    " collective. Step times of all ranks are alike all the same: the collective makes them so.",
    measured="Tokens by rank and step are what the script told profkit.capture.step (padded ones, where told: those"
    " are computed on), or the indices of embeddings where shapes were recorded (then it says estimated). What a rank"
    " has more than its step's mean is set against how much less it waited, which needs no clocks. Recoverable is what"
    " a fit of own time, t = a + b tokens + c tokens x length, gives the largest rank more than the mean of ranks.",
    thresholds=(
        "mean over steps of largest / mean - 1 from 5 %, Spearman from 0.7, six steps (diagnosis, rule 11)",
        "p < 0.01 by shuffling ranks within steps. Chosen: two ranks in order six times are chance once in 64",
    ),
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

PADDING_WASTE: Final = Explanation(
    id="padding.waste",
    title="much of what is computed is padding",
    meaning="Samples of unlike length are padded to the longest of their batch, and computed like tokens.",
    measured="1 - real / padded tokens over all steps and ranks, as the script told profkit.capture.step; no trace"
    " holds it otherwise. Recoverable is the compute of the rank that has most, less what real tokens alone would need"
    " if compute grew with tokens: attention grows faster and gives more.",
    thresholds=("a tenth of the tokens (diagnosis, rule 10)",),
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
