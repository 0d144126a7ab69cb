"""Student's t against scipy."""

import math

import pytest
from scipy import stats

from profkit.compare.stats.inference import t_quantile, two_sided_p

DFS = (0.5, 1, 1.5, 2, 2.72, 3, 4.78, 7, 30, 199.5, 1999, 2001, 1e5, 1e6)


def t_cdf(value: float, df: float) -> float:
    tail = 0.5 * two_sided_p(value, df)
    return tail if value < 0 else 1 - tail


@pytest.mark.parametrize("df", DFS)
def test_cdf_agrees_with_scipy(df: float) -> None:
    for value in (-1e6, -40, -3.3, -1, -1e-9, 0, 1e-3, 0.7, 1.96, 2.776, 12.7, 500):
        assert t_cdf(value, df) == pytest.approx(stats.t.cdf(value, df), abs=1e-9)


@pytest.mark.parametrize("df", DFS)
def test_quantile_agrees_with_scipy(df: float) -> None:
    for probability in (1e-6, 0.01, 0.2, 0.49999, 0.5, 0.6, 0.8, 0.95, 0.975, 0.9995, 1 - 1e-7):
        assert t_quantile(probability, df) == pytest.approx(stats.t.ppf(probability, df), rel=1e-9, abs=1e-9)


def test_far_tails_keep_their_digits() -> None:
    assert two_sided_p(60, 7) == pytest.approx(2 * stats.t.sf(60, 7), rel=1e-9)
    assert two_sided_p(-60, 7) == two_sided_p(60, 7)
    assert two_sided_p(math.inf, 3) == 0


def test_very_many_degrees_of_freedom_are_the_normal_distribution() -> None:
    assert t_quantile(0.975, 1e13) == pytest.approx(stats.norm.ppf(0.975), rel=1e-9)
    assert t_cdf(-1.0, 1e13) == pytest.approx(stats.norm.cdf(-1.0), abs=1e-12)


@pytest.mark.parametrize("probability", [0, 1, -0.1, math.nan])
def test_no_quantile_outside_zero_and_one(probability: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        t_quantile(probability, 3)


def test_no_distribution_without_degrees_of_freedom() -> None:
    with pytest.raises(ValueError, match="df must be positive"):
        t_cdf(1, 0)
