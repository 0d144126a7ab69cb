"""A column of one value takes the room of that value, and stays one through what readers do to columns."""

import numpy as np

from profkit.model.arrays import constant, is_constant, joined, picked


def test_a_constant_column_is_read_like_any_other():
    column = constant(-1, 5)
    assert column.tolist() == [-1] * 5
    assert (column.dtype, column.base.nbytes) == (np.int64, 8)
    assert not column.flags.writeable
    assert constant(3, 0).tolist() == []


def test_choosing_rows_of_it_gives_one_of_that_length():
    column = constant(7, 6)
    mask = np.array([True, False, True, False, False, False])
    for rows, n in ((mask, 2), (np.array([5, 0, 0]), 3), (np.empty(0, np.intp), 0)):
        chosen = picked(column, rows)
        assert chosen.tolist() == [7] * n
        assert n == 0 or is_constant(chosen)
    assert picked(np.arange(3), np.array([2, 0])).tolist() == [2, 0]


def test_joining_keeps_it_where_all_parts_have_that_value():
    assert is_constant(joined([constant(1, 2), constant(1, 3)]))
    assert joined([constant(1, 2), constant(1, 3)]).tolist() == [1] * 5
    assert joined([constant(1, 2), constant(2, 1)]).tolist() == [1, 1, 2]
    assert joined([constant(1, 1), np.array([4])]).tolist() == [1, 4]
    assert joined([constant(1, 0), np.array([4])]).tolist() == [4]


def test_what_merely_holds_one_value_or_several_columns_is_none():
    assert not is_constant(np.zeros(3, np.int64))
    assert not is_constant(np.broadcast_to(np.int32(0), (4, 3)))
