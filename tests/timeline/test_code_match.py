"""Operators of two windows of one process are matched by their order, and not where the order leaves a choice."""

import numpy as np
import pytest

from profkit.testing import Row, span, trace_of
from profkit.timeline.code.match import _aligned, _Budget, match_ops

STEP_NS = 1_000_000


def window(*steps, tid=1000, first=0):
    """A trace whose steps hold operators of these names, one after the other; a digit before a name is its thread."""
    rows = []
    for number, names in enumerate(steps):
        begin = (number + 1) * STEP_NS
        rows.append(span(f"ProfilerStep#{first + number}", begin, begin + STEP_NS, tid=tid))
        for place, name in enumerate(names.split()):
            thread = tid + int(name[0]) if name[0].isdigit() else tid
            start = begin + 10 + 100 * place
            rows.append(
                Row(name=name.lstrip("0123456789"), cat="cpu_op", start_ns=start, end_ns=start + 50, tid=thread)
            )
    return trace_of(rows)


def matched(timed, other):
    """The names of the operators that each of the timed trace's is matched with, and their places in their step."""
    match = match_ops(timed, other)
    starts = other.ops.start_ns
    return [int((starts[row] % STEP_NS - 10) // 100) if row >= 0 else None for row in match.rows.tolist()], match


def test_equal_steps_are_matched_row_by_row_whatever_number_they_have():
    timed = window("mm relu mm add", "mm relu mm add", "mm relu mm add")
    places, match = matched(timed, window("mm relu mm add", first=40))
    assert places == [0, 1, 2, 3] * 3
    assert match.share == 1.0
    named = [timed.strings[code] for code in timed.ops.name]
    assert named[:4] == ["mm", "relu", "mm", "add"]


def test_each_step_takes_the_step_it_is_most_like():
    timed = window("mm add", "mm add item", "mm add")
    places, match = matched(timed, window("mm add item", "mm add"))
    assert places == [0, 1, 0, 1, 2, 0, 1]
    other = window("mm add item", "mm add")
    assert match.rows.tolist()[:2] == [3, 4], "the step without item"
    assert [other.strings[other.ops.name[row]] for row in match.rows] == ["mm", "add", "mm", "add", "item", "mm", "add"]


def test_what_the_other_window_lacks_has_no_row_and_the_rest_keeps_its_own():
    places, match = matched(window("mm add item relu mul"), window("mm add relu mul"))
    assert places == [0, 1, None, 2, 3]
    assert match.share == pytest.approx(0.8)


def test_a_layer_less_in_equal_layers_leaves_open_which_it_is():
    places, _ = matched(window("embed mm add mm add mm add loss"), window("embed mm add mm add loss"))
    assert places == [0, None, None, None, None, None, None, 5]


def test_threads_are_matched_with_themselves():
    places, _ = matched(window("mm 1grad add 1grad"), window("1grad mm 1grad add"))
    assert places == [1, 0, 3, 2]
    assert matched(window("mm 1grad"), window("mm"))[0] == [0, None]


def test_nothing_is_matched_with_other_work_or_with_no_window():
    assert matched(window("mm add"), window("conv relu"))[0] == [None, None]
    assert match_ops(window("mm add"), window("")).share == 0.0
    assert match_ops(window(""), window("mm")).share == 0.0


@pytest.mark.parametrize("seed", range(30))
def test_matches_are_a_longest_common_sequence_in_order(seed):
    draw = np.random.default_rng(seed)
    one, two = (draw.integers(0, 4, draw.integers(0, 40)) for _ in range(2))
    lengths = np.zeros((one.size + 1, two.size + 1), int)
    for row in range(one.size):
        for place in range(two.size):
            same = lengths[row, place] + 1
            longer = max(lengths[row, place + 1], lengths[row + 1, place])
            lengths[row + 1, place + 1] = same if one[row] == two[place] else longer
    for found in _aligned(one, two, _Budget()):
        chosen = found[found >= 0]
        assert (np.diff(chosen) > 0).all()
        assert (one[found >= 0] == two[chosen]).all()
        assert chosen.size == lengths[-1, -1]


@pytest.mark.parametrize("seed", range(10))
def test_long_windows_that_differ_little_are_matched_as_well_as_short_ones(seed):
    draw = np.random.default_rng(seed)
    layer = draw.integers(0, 30, 90)
    one = np.concatenate([np.tile(layer, 40), draw.integers(30, 60, 40)])
    two = np.delete(one, draw.choice(one.size, 9, replace=False))
    two = np.insert(two, draw.choice(two.size, 6, replace=False), 99)
    first, last = _aligned(one, two, _Budget())
    for found in (first, last):
        assert (one[found >= 0] == two[found[found >= 0]]).all()
        assert (found >= 0).sum() >= one.size - 9
    assert ((first == last) & (first >= 0)).mean() > 0.95
