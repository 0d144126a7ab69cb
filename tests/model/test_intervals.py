"""`Intervals` as a set: laws that hold for any, and the edges where they break first."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.model import arrays
from profkit.model.intervals import Intervals
from profkit.testing import interval_lists

Pairs = list[tuple[int, int]]
SIZE = 60
UNIX_NS = 1_732_109_889_123_456_789  # one float64 step is 256 ns here


def times(pairs: Pairs, offset: int = 0) -> Intervals:
    return Intervals.pairs((start + offset, end + offset) for start, end in pairs)


def members(made: Intervals) -> set[int]:
    edges = zip(made.start_ns.tolist(), made.end_ns.tolist(), strict=True)
    return {time for start, end in edges for time in range(start, end)}


@given(interval_lists(), interval_lists())
def test_large_times_are_as_exact_as_small_ones(first: Pairs, second: Pairs) -> None:
    near, far = times(first) - times(second), times(first, UNIX_NS) - times(second, UNIX_NS)
    assert (far.start_ns - UNIX_NS).tolist() == near.start_ns.tolist()
    assert (far.end_ns - UNIX_NS).tolist() == near.end_ns.tolist()
    assert far.covered_ns(np.array([UNIX_NS]), np.array([UNIX_NS + SIZE])).tolist() == [near.total_ns]


@given(interval_lists(), st.permutations(range(12)))
def test_the_order_of_what_it_is_made_of_does_not_matter(pairs: Pairs, order: list[int]) -> None:
    shuffled = [pairs[place] for place in order if place < len(pairs)]
    assert times(shuffled) == times(pairs)
    assert hash(times(shuffled)) == hash(times(pairs))


@given(interval_lists(), st.integers(-5, SIZE + 5), st.integers(-5, SIZE + 5))
def test_gaps_are_the_rest_of_a_window(pairs: Pairs, low: int, high: int) -> None:
    made, gaps = times(pairs), times(pairs).gaps(low, high)
    assert members(gaps) == set(range(low, high)) - members(made)
    assert gaps.total_ns + made.clip(low, high).total_ns == max(high - low, 0)


@given(interval_lists(), st.lists(st.integers(-5, SIZE + 5), max_size=8))
def test_coverage_is_the_measure_of_what_lies_before(pairs: Pairs, at: list[int]) -> None:
    made = times(pairs)
    before = [sum(member < time for member in members(made)) for time in at]
    assert arrays.coverage(made.sets, np.array(at, np.int64)).tolist() == before
    assert made.contains(np.array(at, np.int64)).tolist() == [time in members(made) for time in at]


def test_half_open_touching_and_empty() -> None:
    assert Intervals.pairs([(0, 5), (5, 9), (3, 3), (8, 2)]) == Intervals.pairs([(0, 9)])
    assert Intervals.pairs([(0, 5)]) & Intervals.pairs([(5, 9)]) == Intervals.empty()
    assert Intervals.pairs([(0, 5)]).contains(np.array([-1, 0, 4, 5])).tolist() == [False, True, True, False]


def test_it_is_read_only_and_leaves_its_source_alone() -> None:
    start, end = np.array([1, 5]), np.array([3, 9])
    made = Intervals.of(start, end)
    with pytest.raises(ValueError, match="read-only"):
        made.start_ns[0] = 0
    start[0] = 2
    assert made.start_ns.tolist() == [1, 5]


def test_it_is_compared_by_value_and_only_with_its_kind() -> None:
    assert Intervals.pairs([(0, 5)]) != Intervals.pairs([(0, 6)])
    assert Intervals.pairs([(0, 5)]) != [(0, 5)]
    assert len({Intervals.pairs([(0, 5)]), Intervals.pairs([(0, 2), (2, 5)])}) == 1
