"""A sample of the drawn jobs of eight ranks; `python -m tests.ranks.drawn_jobs` prints the tally of 300."""

from __future__ import annotations

import pytest

from tests.ranks.drawn_jobs import CAUSES, MATERIAL, drawn, tried


def seeds_of(cause: str, n: int) -> list[int]:
    """The first seeds that draw a cause."""
    return [seed for seed in range(100) if drawn(seed).cause == cause][:n]


@pytest.mark.parametrize("seed", [seed for cause in CAUSES for seed in seeds_of(cause, 2)])
def test_the_right_rank_and_cause_where_it_costs_a_twentieth_of_the_step(seed):
    _, share, said = tried(seed)
    assert said == "right" or share < MATERIAL


@pytest.mark.parametrize("seed", range(2))
def test_no_rank_of_a_healthy_job_is_named(seed):
    assert tried(seed, is_healthy=True)[2] == "right"
