"""Rows of tables: the same columns as joining, leaving out and sorting them at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.ingest.assemble.rows import Rows, sort_order
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


@settings(max_examples=examples(100), deadline=None)
@given(PARTS, PARTS)
def test_rows_are_in_time_order_the_longer_first(first: list[Part], second: list[Part]) -> None:
    rows = rows_of(first, second)
    rows.leave_out_untrue([])
    columns = rows.in_time_order()
    flat = [row for part in (*first, *second) for row in part]
    expected = sorted(range(len(flat)), key=lambda at: (flat[at][0], -flat[at][1], at))
    assert columns["place"].tolist() == expected
    assert columns["grid"].tolist() == [[at] * 3 for at in expected]
    assert columns["start_ns"].tolist() == [flat[at][0] for at in expected]
    assert columns["end_ns"].tolist() == [sum(flat[at]) for at in expected]
    assert (rows.places.tolist() if rows.places is not None else list(range(len(flat)))) == expected
    told = [at if len(part) % 2 else -1 for at, part in enumerate(part for part in (*first, *second) for _ in part)]
    if any(len(part) % 2 for part in (*first, *second)):
        assert columns["told"].tolist() == [told[at] for at in expected]


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
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_order_is_that_of_a_sort_by_all_keys(keys: list[tuple[int, int, int]]) -> None:
    values, second, third = np.array(keys, np.int64).reshape(-1, 3).T
    order, ordered = sort_order(values, lambda rows: (third[rows], second[rows]))
    expected = np.lexsort((third, second, values))
    assert (np.arange(len(keys)) if order is None else order).tolist() == expected.tolist()
    assert ordered.tolist() == sorted(values.tolist())
