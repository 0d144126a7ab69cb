"""What a few runs can say of a difference: Welch's t, paired t, exact permutation, detectable effects.

Student's t, what the tests need of it, is here without scipy. It agrees with scipy to 1e-9 (tests/compare).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import combinations
from statistics import NormalDist
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

POWER: Final = 0.8
"""The chance of seeing an effect that defines "detectable" (the convention of Cohen 1988)."""
MAX_PERMUTATIONS: Final = 50_000
_TINY: Final = 1e-300
_MAX_TERMS: Final = 10_000
_MAX_STEPS: Final = 200
_NORMAL: Final = NormalDist()
_NORMAL_FROM_DF: Final = 1e12
"""Degrees of freedom from which t is the normal distribution to all digits."""


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


def two_sided_p(value: float, df: float) -> float:
    """P(|T| >= |value|) of Student's t with `df` > 0 degrees of freedom, whole or not; exact in the far tail."""
    if df <= 0:
        raise ValueError(f"df must be positive, got {df}")
    if math.isinf(value):
        return 0.0
    if df > _NORMAL_FROM_DF:
        return math.erfc(abs(value) / math.sqrt(2))
    square = value * value
    return _tail(df / (df + square), square / (df + square), df / 2)


@lru_cache(maxsize=4096)
def t_quantile(probability: float, df: float) -> float:
    """The quantile: x with P(T <= x) = probability, which lies in (0, 1).

    Newton's steps from the expansion in 1/df (Abramowitz and Stegun 26.7.5). It begins left of the root, and the tail
    is convex, so the steps come closer from there.
    """
    if not 0 < probability < 1:
        raise ValueError(f"a probability lies between 0 and 1, got {probability}")
    if probability == 0.5:
        return 0.0
    tail = 2 * min(probability, 1 - probability)
    z = -_NORMAL.inv_cdf(tail / 2)
    guess = z + (z**3 + z) / (4 * df) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2)
    for _ in range(_MAX_STEPS):
        step = guess + (two_sided_p(guess, df) - tail) / (2 * t_density(guess, df))
        is_done = abs(step - guess) <= 1e-13 * guess
        guess = max(step, guess / 2)
        if is_done:
            break
    return guess if probability > 0.5 else -guess


def t_density(value: float, df: float) -> float:
    """The density of Student's t."""
    if df > _NORMAL_FROM_DF:
        return math.exp(-value * value / 2) / math.sqrt(2 * math.pi)
    log_scale = _log_gamma_step(df / 2) - 0.5 * math.log(df * math.pi)
    return math.exp(log_scale - (df + 1) / 2 * math.log1p(value * value / df))


def _log_gamma_step(a: float) -> float:
    """The log of gamma(a + 1/2) / gamma(a)); by its series where two large logarithms would cancel (DLMF 5.11.13)."""
    if a < 1000:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    return 0.5 * math.log(a) - 1 / (8 * a) + 1 / (192 * a**3)


def _tail(x: float, complement: float, a: float) -> float:
    """The regularised incomplete beta function I_x(a, 1/2); `complement` is 1 - x, exact where x is close to 1.

    Lentz's continued fraction (DLMF 8.17.22) converges fast for x below (a + 1) / (a + 5/2); beyond, by symmetry.
    """
    if x <= 0 or complement <= 0:
        return float(x > 0)
    log_x = math.log1p(-complement) if complement < 0.5 else math.log(x)  # multiplied by a: must be exact
    log_front = _log_gamma_step(a) - math.lgamma(0.5) + a * log_x + 0.5 * math.log(complement)
    if x > (a + 1) / (a + 2.5):
        return 1 - math.exp(log_front) / 0.5 * _beta_fraction(complement, 0.5, a)
    return math.exp(log_front) / a * _beta_fraction(x, a, 0.5)


def _beta_fraction(x: float, a: float, b: float) -> float:
    upper = 1.0
    lower = 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = lower
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            lower = 1 / _not_zero(1 + term * lower)
            upper = _not_zero(1 + term / upper)
            change = lower * upper
            value *= change
        if change == 1:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
