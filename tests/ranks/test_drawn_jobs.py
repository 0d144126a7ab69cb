"""A sample of the drawn jobs of eight ranks; `python -m tests.ranks.drawn_jobs` prints the tally of 300."""

import pytest

from tests.conftest import IN_FULL, every
from tests.ranks.drawn_jobs import CAUSES, MATERIAL, drawn, tried

N_SEEDS = 2 if IN_FULL else 1


def seeds_of(cause: str, n: int) -> list[int]:
    """The first seeds that draw a cause."""
    return [seed for seed in range(100) if drawn(seed).cause == cause][:n]


@pytest.mark.sampled
@pytest.mark.parametrize("seed", every(3, [seed for cause in CAUSES for seed in seeds_of(cause, N_SEEDS)], 1.3))
def test_the_right_rank_and_cause_where_it_costs_a_twentieth_of_the_step(seed):
    _, share, said = tried(seed)
    assert said == "right" or share < MATERIAL


@pytest.mark.sampled
@pytest.mark.parametrize("seed", range(N_SEEDS))
def test_no_rank_of_a_healthy_job_is_named(seed):
    assert tried(seed, is_healthy=True)[2] == "right"
