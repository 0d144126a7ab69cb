"""Interval algebra equals a boolean mask, on any intervals."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profkit.model import arrays
from profkit.model.intervals import Intervals
from profkit.testing import interval_lists

SIZE = 60
pairs = interval_lists(size=SIZE)


def mask_of(intervals: list[tuple[int, int]]) -> np.ndarray:
    mask = np.zeros(SIZE, np.bool_)
    for start, end in intervals:
        mask[start:end] = True
    return mask


def set_of(mask: np.ndarray) -> Intervals:
    edges = np.flatnonzero(np.diff(np.concatenate(([0], mask.astype(np.int8), [0]))))
    return Intervals.of(edges[::2].astype(np.int64), edges[1::2].astype(np.int64))


@given(pairs, pairs)
def test_the_algebra_is_that_of_masks(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    a, b = Intervals.pairs(first), Intervals.pairs(second)
    mask_a, mask_b = mask_of(first), mask_of(second)
    assert a == set_of(mask_a)
    assert a | b == set_of(mask_a | mask_b)
    assert a & b == set_of(mask_a & mask_b)
    assert a - b == set_of(mask_a & ~mask_b)
    assert a.gaps(0, SIZE) == set_of(~mask_a)
    assert a.total_ns == int(mask_a.sum()) == int(a.lengths_ns.sum())
    assert (a - b).total_ns + (a & b).total_ns == a.total_ns


@given(pairs)
def test_a_set_is_sorted_disjoint_and_without_empty_or_touching_parts(intervals: list[tuple[int, int]]) -> None:
    made = Intervals.pairs(intervals)
    assert (made.end_ns > made.start_ns).all()
    assert (made.start_ns[1:] > made.end_ns[:-1]).all()
    assert not made.start_ns.flags.writeable


@given(pairs, st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)), max_size=6))
def test_coverage_and_membership(intervals: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    made, mask = Intervals.pairs(intervals), mask_of(intervals)
    start = np.array([low for low, high in wanted if high >= low], np.int64)
    end = np.array([high for low, high in wanted if high >= low], np.int64)
    assert made.covered_ns(start, end).tolist() == [
        int(mask[low:high].sum()) for low, high in zip(start, end, strict=True)
    ]
    at = np.arange(SIZE)
    assert made.contains(at).tolist() == mask.tolist()


@given(pairs, st.integers(0, SIZE), st.integers(0, SIZE))
def test_clipping(intervals: list[tuple[int, int]], low: int, high: int) -> None:
    low, high = min(low, high), max(low, high)
    mask = mask_of(intervals)
    mask[:low] = mask[high:] = False
    assert Intervals.pairs(intervals).clip(low, high) == set_of(mask)


@given(pairs, pairs)
def test_overlapping_pairs_are_all_of_them(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    a, b = Intervals.pairs(first), Intervals.pairs(second)
    rows = list(zip(*(row.tolist() for row in arrays.overlapping_pairs(a.sets, b.sets)), strict=True))
    expected = [
        (i, j)
        for i in range(len(a))
        for j in range(len(b))
        if a.start_ns[i] < b.end_ns[j] and b.start_ns[j] < a.end_ns[i]
    ]
    assert rows == expected


def test_nothing_in_nothing_out() -> None:
    none = Intervals.empty()
    assert not none
    assert none | none == none & none == none - none == none
    assert none.gaps(3, 3) == none
    assert none.covered_ns(np.array([1]), np.array([2])).tolist() == [0]
    assert arrays.distinct_codes(np.empty(0, np.int32)).size == 0
    assert arrays.distinct_codes(np.array([3, -1, 1, 3])).tolist() == [1, 3]


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=40))
def test_median_is_that_of_numpy_rounded_down(values: list[int]) -> None:
    assert arrays.median(np.array(values)) == int(np.floor(np.median(values)))


@given(st.lists(st.integers(-5, 5)))
def test_distinct_values_are_a_sorted_set(values: list[int]) -> None:
    assert arrays.distinct(np.array(values, np.int64)).tolist() == sorted(set(values))


@given(st.lists(st.integers(-5, 5)), st.lists(st.integers(-6, 6), max_size=3))
def test_is_one_of_is_membership(values: list[int], wanted: list[int]) -> None:
    assert arrays.is_one_of(np.array(values, np.int64), wanted).tolist() == [value in wanted for value in values]


@given(st.lists(st.integers(0, 2**40), min_size=1), st.booleans())
def test_the_middle_value_is_numpys_median(values: list[int], is_float: bool) -> None:
    column = np.array(values, np.int64) / (3 if is_float else 1)
    assert arrays.middle(column) == np.median(column)
    assert arrays.middle(np.array(values, np.int64)) == np.median(values)


@given(st.lists(st.integers(0, 2**40), min_size=1), st.sampled_from([0.05, 0.5, 0.75, 0.95, 1.0]))
def test_quantile_is_numpys(values: list[int], fraction: float) -> None:
    assert arrays.quantile(np.array(values, np.int64), fraction) == np.quantile(values, fraction)


@given(st.lists(st.one_of(st.integers(-9, 40), st.integers(-(2**62), 2**62 - 1)), max_size=30))
def test_coded_values_are_those_of_unique(values: list[int]) -> None:
    array = np.array(values, np.int64)
    found, place = arrays.coded(array)
    wanted, inverse = np.unique(array, return_inverse=True)
    assert found.tolist() == wanted.tolist()
    assert place.tolist() == inverse.reshape(-1).tolist()


@given(st.lists(st.integers(-3, 3), max_size=30))
def test_the_next_equal_value(values: list[int]) -> None:
    found = arrays.next_equal(np.array(values, np.int32))
    assert found.tolist() == [
        next((at for at in range(place + 1, len(values)) if values[at] == value), len(values))
        for place, value in enumerate(values)
    ]


def test_rows_that_are_all_of_a_column_are_the_column() -> None:
    column = np.arange(6).reshape(3, 2)
    assert arrays.of_rows(column, np.arange(3)) is column
    assert arrays.of_rows(column, np.array([0, 2])).tolist() == [[0, 1], [4, 5]]


NEAR = st.sampled_from([-(2**63), -(2**31) - 1, -(2**31), -1, 0, 7, 2**31 - 1, 2**31, 2**63 - 1])


@given(st.lists(NEAR, max_size=5))
def test_numbers_take_32_bits_where_all_fit(numbers: list[int]) -> None:
    made = arrays.narrowed(np.array(numbers, np.int64))
    assert made.tolist() == numbers
    fits = bool(numbers) and all(-(2**31) <= number < 2**31 for number in numbers)
    assert made.dtype == (np.int32 if fits else np.int64)


def test_a_constant_column_keeps_its_room_of_one_value() -> None:
    made = arrays.narrowed(arrays.constant(-1, 3))
    assert arrays.is_constant(made)
    assert made.tolist() == [-1, -1, -1]


@given(st.lists(NEAR, min_size=1, max_size=8))
def test_places_orders_and_codes_are_those_of_wide_numbers(numbers: list[int]) -> None:
    wide = np.array([number for number in numbers if -(2**31) <= number < 2**31], np.int64)
    narrow = arrays.narrowed(wide)
    assert arrays.order_of(narrow).tolist() == arrays.order_of(wide).tolist()
    assert [each.tolist() for each in arrays.coded(narrow)] == [each.tolist() for each in arrays.coded(wide)]
    ordered = np.sort(wide)
    assert arrays.place_among(arrays.narrowed(ordered), wide).tolist() == arrays.place_among(ordered, wide).tolist()
