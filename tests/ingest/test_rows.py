"""Rows of tables: the same columns as joining, leaving out and sorting them at once."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.ingest.assemble import rows as assembled
from profkit.ingest.assemble.rows import Rows, longest_ns, sort_order
from profkit.model.arrays import is_constant
from profkit.model.trace import TraceWarning
from tests.conftest import examples

Part = list[tuple[int, int]]
PARTS = st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=6), min_size=1, max_size=5)


def rows_of(*tables: list[Part]) -> Rows:
    """Tables whose rows are (start, duration), each with its place and a column that only some parts have."""
    rows, n = Rows(lambda _, column: column, lambda: None), 0
    for number, parts in enumerate(tables):
        rows.begin(f"table {number}")
        for part in parts:
            start = np.array([start for start, _ in part], np.int64)
            place = np.arange(n, n + len(part))
            columns: dict[str, Any] = {"start_ns": start, "place": place, "grid": np.stack((place,) * 3, axis=1)}
            columns["end_ns"] = start + np.array([duration for _, duration in part], np.int64)
            if len(part) % 2:
                columns["told"] = place.astype(np.int32)
            rows.add(columns)
            n += len(part)
    return rows


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(PARTS, min_size=1, max_size=2), st.sampled_from([1, 2, 3, 4, 1024]))
def test_rows_are_in_time_order_the_longer_first(tables: list[list[Part]], least: int) -> None:
    """Of one table they come in stretches, where these are long enough, else one by one."""
    with mock.patch.object(assembled, "_LEAST_STRETCH", least):
        rows = rows_of(*tables)
        rows.leave_out_untrue([])
        columns = rows.in_time_order()
    parts = [part for table in tables for part in table]
    flat = [row for part in parts for row in part]
    expected = sorted(range(len(flat)), key=lambda at: (flat[at][0], -flat[at][1], at))
    assert columns["place"].tolist() == expected
    assert columns["grid"].tolist() == [[at] * 3 for at in expected]
    assert columns["start_ns"].tolist() == [flat[at][0] for at in expected]
    assert columns["end_ns"].tolist() == [sum(flat[at]) for at in expected]
    if len(tables) > 1:
        assert (rows.places.tolist() if rows.places is not None else list(range(len(flat)))) == expected
    told = [at if len(part) % 2 else -1 for at, part in enumerate(part for part in parts for _ in part)]
    if any(len(part) % 2 for part in parts):
        assert columns["told"].tolist() == [told[at] for at in expected]


def test_threads_of_a_large_file_are_merged_without_a_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 5000
    parts = [[(at, 1) for at in range(first, first + 4 * n, 4)] for first in (2, 0, 8 * n)]
    rows = rows_of(parts[:1], parts[1:])  # of two tables one by one, of one in stretches
    assert rows.in_time_order()["start_ns"].tolist() == sorted(at for part in parts for at, _ in part)
    assert rows.places is not None
    monkeypatch.setattr(np, "argsort", None)
    rows = rows_of([parts[2], parts[0], [(16 * n, 1)]])
    columns = rows.in_time_order()
    assert columns["place"].tolist() == [*range(n, 2 * n), *range(n), 2 * n]
    assert columns["start_ns"].tolist() == [*(at for at, _ in parts[0]), *(at for at, _ in parts[2]), 16 * n]
    assert columns["told"].tolist() == [-1] * 2 * n + [2 * n]


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=1, max_size=30))
def test_the_longest_duration(times: list[tuple[int, int]]) -> None:
    start, end = np.array(times, np.int64).T
    with mock.patch.object(assembled, "_BLOCK", 4):
        assert longest_ns(start, end) == max(last - first for first, last in times)


def test_rows_that_cannot_be_true_are_judged_table_by_table() -> None:
    late = 2 * 10**9
    warnings: list[TraceWarning] = []
    rows = rows_of([[(late, 1), (0, 5)], [(late - 1, 2 * 10**15)]], [[(0, 1), (2, 1)]])
    rows.leave_out_untrue(warnings)
    rows.add(
        {"start_ns": np.array([0]), "end_ns": np.array([9]), "place": np.array([5]), "grid": np.zeros((1, 3), int)}
    )
    assert rows.in_time_order()["place"].tolist() == [5, 3, 4, 0]
    assert [(warning.id, warning.message) for warning in warnings] == [
        ("dur.overflow", "1 table 0 with a duration of more than 11 days (an overflow) left out"),
        ("ts.zero", "1 table 0 with a zero timestamp left out"),
    ]


def test_a_column_that_no_row_tells_stays_in_the_room_of_one_value() -> None:
    rows = Rows(lambda _, column: column, lambda: None)
    rows.begin("calls")
    for start in (5, 3):
        rows.add({"start_ns": np.array([start, start + 1]), "id": np.broadcast_to(np.array(-1), (2,))})
    columns = rows.in_time_order()
    assert columns["start_ns"].tolist() == [3, 4, 5, 6]
    assert is_constant(columns["id"])
    assert columns["id"].tolist() == [-1] * 4


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3)), max_size=30), st.sampled_from((1, 9))
)
def test_order_is_that_of_a_sort_by_all_keys(keys: list[tuple[int, int, int]], least: int) -> None:
    values, second, third = np.array(keys, np.int64).reshape(-1, 3).T
    with mock.patch.object(assembled, "_LEAST_STRETCH", least):
        order, ordered = sort_order(values, lambda rows: (third[rows], second[rows]))
    expected = np.lexsort((third, second, values))
    assert (np.arange(len(keys)) if order is None else order).tolist() == expected.tolist()
    assert ordered.tolist() == sorted(values.tolist())
