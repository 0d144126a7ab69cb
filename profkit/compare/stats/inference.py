"""What a few runs can say of a difference: Welch's t, paired t, exact permutation, detectable effects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from statistics import NormalDist
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from profkit.compare.stats.distributions import t_quantile, two_sided_p

POWER: Final = 0.8
"""The chance of seeing an effect that defines "detectable" (the convention of Cohen 1988)."""
MAX_PERMUTATIONS: Final = 50_000
_NORMAL: Final = NormalDist()


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A difference with its standard error and degrees of freedom.

    `variance` and `df_per_run` say how both shrink with n more runs per arm: se = sqrt(variance / n),
    df = df_per_run * (n - 1).
    """

    difference: float
    se: float
    df: float
    variance: float
    df_per_run: int

    def interval(self, alpha: float) -> tuple[float, float]:
        """The two-sided interval of level 1 - alpha."""
        half = t_quantile(1 - alpha / 2, self.df) * self.se
        return self.difference - half, self.difference + half

    @property
    def p_value(self) -> float:
        """Two-sided p of no difference."""
        return two_sided_p(self.difference / self.se, self.df)

    def detectable(self, alpha: float) -> float:
        """The minimum detectable effect: (t_{1-alpha/2} + t_{power}) se (docs/statistics.md 1)."""
        return (t_quantile(1 - alpha / 2, self.df) + t_quantile(POWER, self.df)) * self.se

    def runs_to_detect(self, effect: float, alpha: float) -> int:
        """The fewest runs per arm, of a spread as seen here, whose detectable effect is at most `effect`."""
        limits = 1 - alpha / 2, POWER
        normal = sum(_NORMAL.inv_cdf(limit) for limit in limits)
        n = max(2, math.ceil(normal**2 * self.variance / effect**2))  # t needs a few more
        while True:
            needed = sum(t_quantile(limit, self.df_per_run * (n - 1)) for limit in limits)
            if needed * math.sqrt(self.variance / n) <= effect:
                return n
            n += 1


def welch(baseline: Sequence[float], candidate: Sequence[float]) -> Estimate | None:
    """Candidate minus baseline with Welch's error and Satterthwaite's df; None where neither side varies.

    Where one side has twice the runs of the other, df is at most that of the smaller one: Satterthwaite's estimate
    hangs on its few runs then, and calls 7 % of no-changes significant (simulated: 3 against 16 runs, 4 against 12).
    """
    estimate = contrast((baseline, candidate), (-1.0, 1.0))
    fewest, most = sorted((len(baseline), len(candidate)))
    if estimate is None or most < 2 * fewest:
        return estimate
    return replace(estimate, df=min(estimate.df, fewest - 1))


def paired(differences: Sequence[float]) -> Estimate | None:
    """The mean of differences within blocks with Student's error; None where they do not vary."""
    n, variance = len(differences), float(np.var(differences, ddof=1))
    if not _varies(math.sqrt(variance / n), max(map(abs, differences))):
        return None
    return Estimate(
        difference=float(np.mean(differences)),
        se=math.sqrt(variance / n),
        df=n - 1,
        variance=variance,
        df_per_run=1,
    )


def contrast(sides: Sequence[Sequence[float]], weights: Sequence[float]) -> Estimate | None:
    """The weighted sum of the means of several samples with Welch's error and Satterthwaite's df; None without spread.

    `df_per_run` counts the samples: each adds its degrees of freedom with every further run.
    """
    variances = [weight**2 * float(np.var(side, ddof=1)) for side, weight in zip(sides, weights, strict=True)]
    errors = [variance / len(side) for variance, side in zip(variances, sides, strict=True)]
    means = [weight * float(np.mean(side)) for side, weight in zip(sides, weights, strict=True)]
    total = math.fsum(errors)
    if not _varies(math.sqrt(total), max(map(abs, means))):
        return None
    parts = [error**2 / (len(side) - 1) for error, side in zip(errors, sides, strict=True)]
    return Estimate(
        difference=math.fsum(means),
        se=math.sqrt(total),
        df=total**2 / math.fsum(parts),
        variance=math.fsum(variances),
        df_per_run=len(sides),
    )


def _varies(se: float, size: float) -> bool:
    """Whether values differ by more than the rounding of equal ones."""
    return se > 1e-13 * size


def permutation_p(baseline: Sequence[float], candidate: Sequence[float]) -> float | None:
    """The exact two-sided p of the difference of means over all relabellings; None where they are too many."""
    n_a, n_b = len(baseline), len(candidate)
    if math.comb(n_a + n_b, n_b) > MAX_PERMUTATIONS:
        return None
    pooled = np.array([*baseline, *candidate])
    chosen = pooled[_relabellings(n_a + n_b, n_b)].sum(axis=1)
    differences = np.abs(chosen / n_b - (pooled.sum() - chosen) / n_a)
    seen = abs(float(np.mean(candidate)) - float(np.mean(baseline)))
    return float(np.mean(differences >= seen * (1 - 1e-12)))


@cache
def _relabellings(n_all: int, n_chosen: int) -> NDArray[np.int64]:
    return np.array(list(combinations(range(n_all), n_chosen)), np.int64)


def batch_means_error(steps: Sequence[float]) -> float | None:
    """The standard error of a run's mean step as a fraction of it, from about sqrt(n) batches of steps.

    Batches rather than steps, because neighbouring steps are alike (Law and Kelton, batch means). It describes one run
    and says nothing of the next one. None below 16 steps.
    """
    if len(steps) < 16:
        return None
    size = math.isqrt(len(steps))
    means = np.array(steps[: len(steps) // size * size], np.float64).reshape(-1, size).mean(axis=1)
    return float(means.std(ddof=1) / math.sqrt(len(means)) / means.mean())
