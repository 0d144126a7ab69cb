"""Student's t: what the tests need of it, without scipy. Agrees with scipy to 1e-9 (tests/compare)."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

_TINY: Final = 1e-300
_MAX_TERMS: Final = 10_000
_MAX_STEPS: Final = 200
_NORMAL: Final = NormalDist()
_NORMAL_FROM_DF: Final = 1e12
"""Degrees of freedom from which t is the normal distribution to all digits."""


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
