"""The test against chance with thousands of ranks: as with few, in a fraction of the time."""

import numpy as np
import pytest

from profkit.ranks.measure import permutation_test
from profkit.ranks.measure.permutation_test import is_gross, p_of_largest
from tests.ranks.simulate import MS, Job, simulate


def late(n_ranks: int, *, by: float, n_blocks: int = 12, seed: int = 0) -> np.ndarray:
    """Lateness by block and rank, of which rank 5 has more in each block."""
    values = np.random.default_rng(seed).exponential(1.0, (n_blocks, n_ranks))
    values[:, 5] += by
    return values


@pytest.fixture
def counted(monkeypatch) -> list[int]:
    """How many shuffles of all ranks were drawn, each time."""
    drawn = []
    whole = permutation_test._largest_sums

    def counting(generator, by_block, n, least):
        drawn.append(n)
        return whole(generator, by_block, n, least)

    monkeypatch.setattr(permutation_test, "_largest_sums", counting)
    return drawn


def test_a_rank_that_is_late_in_each_block_is_told_without_shuffling_all(counted):
    assert p_of_largest(late(1_000, by=9.0)) == pytest.approx(1 / 2001)
    assert counted == []
    assert p_of_largest(late(100, by=9.0)) == pytest.approx(1 / 2001)
    assert sum(counted) == 2000


def test_what_may_be_chance_is_shuffled_in_full(counted):
    assert p_of_largest(late(1_000, by=0.0)) > 0.05
    assert sum(counted) == 2000


@pytest.mark.parametrize("by", [1.0, 1.5, 2.0])
def test_both_ways_find_the_same_chance(monkeypatch, by):
    values = late(40, by=by, n_blocks=6, seed=3)
    whole = p_of_largest(values)
    monkeypatch.setattr(permutation_test, "_is_told_by_heaviest", lambda *_: True)
    assert p_of_largest(values) == pytest.approx(whole, abs=0.04)
    assert 0.001 < whole < 0.99


def test_totals_are_those_of_a_shuffle():
    values = np.arange(5.0 * 30).reshape(5, 30) % 7
    found = permutation_test._largest_of_many(np.random.default_rng(1), values, 200, 0.0)
    assert (found == found.round()).all()
    assert found.max() <= values.max(axis=1).sum()
    assert found.min() >= values.sum() / 30


def test_the_result_does_not_depend_on_how_many_are_drawn_at_once(monkeypatch):
    values = late(50, by=1.0, n_blocks=4)
    at_once = p_of_largest(values)
    monkeypatch.setattr(permutation_test, "_CHUNK", 999)
    assert p_of_largest(values) == at_once


def test_drawn_columns_are_distinct_and_alike():
    drawn = permutation_test._distinct(np.random.default_rng(0), (3_000, 2, 3), 6)
    assert (np.sort(drawn, axis=2)[..., 1:] != np.sort(drawn, axis=2)[..., :-1]).all()
    counts = np.bincount(drawn.reshape(-1), minlength=6)
    assert abs(counts / counts.mean() - 1).max() < 0.05


@pytest.mark.parametrize(("slow", "is_said"), [({2: 25 * MS, 7: 20 * MS}, True), ({2: 25 * MS}, False)])
def test_a_ranks_own_time_in_each_step_tells_where_its_group_waits_for_others_as_well(slow, is_said):
    """Rank 6 is late in one step by what it waited for rank 2 in another group: the group alone does not say who."""
    job = Job(n_ranks=8, n_steps=4, slow={rank: ("host", ns) for rank, ns in slow.items()})
    late_ns = np.array([[0, 0, 0, 10], [1, 0, 2, 32], [0, 0, 7, 10], [0, 1, 0, 14]]) * MS
    present = np.ones(late_ns.shape, np.bool_)
    by_rank = {summary.rank: summary for summary in simulate(job).summaries}
    assert is_gross(np.arange(4), late_ns, present, 3, rank=7, effect=0.1, by_rank=by_rank) == is_said
