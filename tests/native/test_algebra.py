"""The compiled algebra is numpy's, to the bit: on drawn columns, on any order of rows, and on whole traces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit import pipeline
from profkit.ingest.read import read_traces
from profkit.model import arrays
from profkit.model.trace import Spans
from profkit.native import algebra
from profkit.timeline import host
from profkit.timeline.replay import clocks
from tests.conftest import ROOT
from tests.ingest.both_ways import needs_library
from tests.model import test_arrays
from tests.native.both_ways import both, compiled

pytestmark = needs_library

TIMES = st.one_of(st.integers(0, 30), st.integers(-(2**61), 2**61))
PAIRS = st.lists(st.tuples(TIMES, TIMES), max_size=20)
NEAR = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=30)
"""Starts and lengths that nest, touch and cross."""
CODES = st.lists(st.integers(-1, 3), min_size=30, max_size=30)


def columns(pairs: list[tuple[int, int]]) -> arrays.IntervalArrays:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def set_of(pairs: list[tuple[int, int]]) -> arrays.IntervalArrays:
    return arrays.union(*columns(pairs))


def ranges(near: list[tuple[int, int]], codes: list[int], *, is_ordered: bool = True) -> Spans:
    """Ranges in order of start, the longer first, as a trace has them, or as they come."""
    start, length = columns(near)
    order = np.lexsort((-length, start)) if is_ordered else np.arange(start.size)
    thread = np.array(codes[: start.size], np.int32)[order]
    name, kind = np.zeros(start.size, np.int32), np.zeros(start.size, np.int8)
    return Spans(start_ns=start[order], end_ns=(start + length)[order], name=name, thread=thread, kind=kind)


@pytest.mark.parametrize(
    "oracle",
    [
        test_arrays.test_the_algebra_is_that_of_masks,
        test_arrays.test_a_set_is_sorted_disjoint_and_without_empty_or_touching_parts,
        test_arrays.test_coverage_and_membership,
        test_arrays.test_clipping,
        test_arrays.test_overlapping_pairs_are_all_of_them,
        test_arrays.test_nothing_in_nothing_out,
        test_arrays.test_distinct_values_are_a_sorted_set,
        test_arrays.test_the_next_equal_value,
    ],
    ids=lambda oracle: oracle.__name__,
)
def test_it_is_what_the_oracles_say(oracle: Callable[[], None]) -> None:
    with compiled():
        oracle()


@given(PAIRS, PAIRS, TIMES, TIMES)
def test_sets_of_any_times(first: list[tuple[int, int]], second: list[tuple[int, int]], low: int, high: int) -> None:
    quick, plain = both(
        lambda: (
            a := set_of(first),
            b := set_of(second),
            arrays.either(a, b),
            arrays.intersect(a, b),
            arrays.subtract(a, b),
            arrays.clip(*columns(first), low, high),
            arrays.covered_ns(a, *columns(second)),
            arrays.coverage(a, columns(second)[0]),
            arrays.contains(a, columns(second)[1]),
        )
    )
    assert quick == plain


@given(PAIRS, PAIRS)
def test_what_is_no_set_is_left_to_numpy(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    a, b = columns(first), columns(second)
    quick, plain = both(lambda: (arrays.either(a, b), arrays.union(*a)))
    assert quick == plain


@given(st.lists(TIMES, max_size=40), st.lists(TIMES, max_size=40), st.booleans())
def test_places_in_any_order(ordered: list[int], values: list[int], after: bool) -> None:
    among, sought = np.array(sorted(ordered), np.int64), np.array(values, np.int64)
    quick, plain = both(lambda: arrays.place_among(among, sought, after=after))
    assert quick == plain


@given(st.lists(TIMES, max_size=60))
def test_order_keeps_equal_values_as_they_stand(values: list[int]) -> None:
    given_values = np.array(values, np.int64)
    quick, plain = both(lambda: (arrays.order_of(given_values), arrays.order_of(given_values[::-1].copy())))
    assert quick == plain


@given(st.lists(TIMES, max_size=60))
def test_the_next_equal_value_of_any(values: list[int]) -> None:
    quick, plain = both(lambda: arrays.next_equal(np.array(values, np.int64)))
    assert quick == plain


def test_the_next_equal_value_of_many() -> None:
    values = np.random.default_rng(3).integers(0, 30_000, 100_000)
    quick, plain = both(lambda: arrays.next_equal(values))
    assert quick == plain


@given(PAIRS, TIMES, TIMES)
def test_the_rest_of_any_stretch(pairs: list[tuple[int, int]], low: int, high: int) -> None:
    quick, plain = both(lambda: arrays.complement(set_of(pairs), low, high))
    assert quick == plain


@given(NEAR, CODES, NEAR, CODES, st.booleans())
def test_nesting_and_what_runs_when(
    near: list[tuple[int, int]], codes: list[int], asked: list[tuple[int, int]], of: list[int], is_ordered: bool
) -> None:
    mine = ranges(near, codes, is_ordered=is_ordered)
    at, thread = columns(asked)[0], np.array(of[: len(asked)], np.int32)
    quick, plain = both(lambda: host.enclosing_op(mine, thread, at))
    assert quick == plain


@given(NEAR, st.lists(st.integers(0, 3), min_size=30, max_size=30))
def test_parents_leaves_and_tops(near: list[tuple[int, int]], codes: list[int]) -> None:
    mine: Any = ranges(near, codes)
    quick, plain = both(lambda: (host.parent_rows(mine), host.without_children_ns(mine, mine.end_ns - mine.start_ns)))
    assert quick == plain
    if near:
        made, other = both(lambda: (host.nesting(mine), host.outermost(mine)))
        assert made == other


LENGTHS = st.integers(0, 2**40)
BEHIND = st.one_of(st.just(float("-inf")), LENGTHS.map(float))


@given(st.lists(st.tuples(LENGTHS, LENGTHS, st.integers(-1, 1), BEHIND, BEHIND, BEHIND, st.booleans()), min_size=1))
def test_clocks(rows: list[tuple[int, int, int, float, float, float, bool]]) -> None:
    spent, on, lane, reach, first, second, gone = map(np.array, zip(*rows, strict=True))
    for number, behind in enumerate((first, second)):  # a stream's own work is never without a length
        behind[(lane == number) & (behind == -np.inf)] = 0
    events = clocks.Events(
        at_ns=np.cumsum(spent),
        left_ns=np.cumsum(spent) + on,
        lane=lane.astype(np.int8),
        reach=reach.astype(np.float64),
        behind=(first.astype(np.float64), second.astype(np.float64)),
    )
    is_gone = gone & (lane == clocks.WAIT)

    def run() -> list[float]:
        return clocks.run(clocks.program_of(events), spent.astype(np.int64), is_gone, (5, 2**30))

    quick, plain = both(run)
    assert quick == plain


@given(st.lists(st.integers(-1, 9), max_size=40))
def test_codes_that_occur(codes: list[int]) -> None:
    quick, plain = both(lambda: arrays.distinct_codes(np.array(codes, np.int32)))
    assert quick == plain


def test_columns_of_another_kind_are_left_to_numpy() -> None:
    start, end = np.array([1, 5], np.int32), np.array([3, 9], np.int32)
    with compiled():
        assert algebra.union(start, end) is None  # type: ignore[arg-type]
        assert arrays.union(start, end)[1].tolist() == [3, 9]  # type: ignore[arg-type]
        assert algebra.place_among(np.array([1, 5]), np.array([[1], [2]]), after=True) is None


def test_a_column_that_is_a_stride_is_read_as_numpy_reads_it() -> None:
    every = np.arange(40, dtype=np.int64)
    with compiled():
        assert [one.tolist() for one in arrays.union(every[::4], every[2::4])] == [
            list(range(0, 40, 4)),
            list(range(2, 40, 4)),
        ]
        assert arrays.clip(arrays.constant(3, 4), arrays.constant(9, 4), 5, 7)[0].tolist() == [5] * 4


def test_ranges_deeper_than_it_climbs() -> None:
    deep = [(i, 1000 - 2 * i) for i in range(400)]
    mine = ranges(deep, [0] * 400)
    at, thread = np.full(3, 700, np.int64), np.zeros(3, np.int32)
    quick, plain = both(lambda: host.enclosing_op(mine, thread, at))
    assert quick == plain


def said(path: Path) -> Any:
    """All that a triage says of a file."""
    return [
        json.loads(msgspec.json.encode(pipeline.alone(pipeline.analyse(trace)).rank)) for trace in read_traces(path)
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "traces").glob("*.json.gz")), ids=lambda path: path.name)
def test_whole_traces(path: Path) -> None:
    quick, plain = both(lambda: said(path))
    assert quick == plain
