"""Kernels of two runs are the same by function, grid, block and order in the step; steps by number, else by order."""

import pytest

from profkit.crosscheck.launches import KernelKey, launches_of, match, paired_steps
from profkit.testing import kernel, launch, span, trace_of
from profkit.timeline.steps import steps_in_window

SHAPE = {"grid": [8, 1, 1], "block": [128, 1, 1]}


def run(*steps, late=0):
    """Give the launches of steps of 1 ms; a step is a list of (name, stream, us, shape or None)."""
    rows, correlation = [], 0
    for number, step in enumerate(steps):
        begin = 10**9 + number * 10**6
        rows.append(span(f"ProfilerStep#{number}", begin, begin + 10**6))
        for place, (name, stream, us, shape) in enumerate(step):
            correlation += 1
            at = begin + place * 10_000
            rows.append(launch(at, at + 1000, correlation=correlation))
            start = at + 5000 + late
            rows.append(kernel(name, start, start + us * 1000, correlation=correlation, stream=stream, **shape or {}))
    trace = trace_of(rows)
    return launches_of(trace, 0, steps_in_window(trace))


def paired(first, second):
    pairs, _ = paired_steps(range(first.n_steps), range(second.n_steps))
    return match(first, second, pairs)


def test_order_across_streams_does_not_count_and_order_within_a_key_does():
    first = run([("a", 7, 10, SHAPE), ("b", 20, 3, SHAPE), ("a", 7, 30, SHAPE)])
    second = run([("b", 20, 6, SHAPE), ("a", 7, 20, SHAPE), ("a", 7, 60, SHAPE)])
    found = paired(first, second)
    assert (found.first.n_matched, found.second.n_matched) == (3, 3)
    assert sorted((found.second_ns / found.first_ns).tolist()) == [2.0, 2.0, 2.0]


def test_another_grid_is_another_kernel():
    other = {"grid": [16, 1, 1], "block": [128, 1, 1]}
    first = run([("a", 7, 10, SHAPE), ("a", 7, 30, SHAPE)])
    second = run([("a", 7, 10, SHAPE), ("a", 7, 30, other)])
    found = paired(first, second)
    assert (found.first.n_matched, found.first.n) == (1, 2)
    assert found.first.time_share == pytest.approx(10 / 40)
    assert paired(first.named(), second.named()).time_share == 1.0


def test_what_is_launched_more_often_on_one_side_is_unmatched_there():
    first = run([("a", 7, 10, SHAPE)] * 2, [("a", 7, 10, SHAPE)] * 2)
    second = run([("a", 7, 10, SHAPE)] * 5, [("a", 7, 10, SHAPE)])
    found = paired(first, second)
    assert (found.first.n_matched, found.first.n) == (3, 4)
    assert (found.second.n_matched, found.second.n) == (3, 6)
    assert found.time_share == pytest.approx(3 / 6)


def test_names_are_reduced_to_the_function_as_every_tool_writes_it():
    kineto = run([("void at::native::(anonymous namespace)::k<4, float>(int, float*)", 7, 10, SHAPE)])
    nsys = run([("void at::native::<unnamed>::k<(int)4, float>(T1, T2 *)", 7, 11, SHAPE)])
    ncu = run([("k", 7, 12, SHAPE)])
    assert kineto.keys == nsys.keys == ncu.keys == (KernelKey(function="k", grid=(8, 1, 1), block=(128, 1, 1)),)


def test_a_kernel_belongs_to_the_step_that_launched_it():
    late = run([("a", 7, 10, SHAPE)] * 3, [("a", 7, 10, SHAPE)], late=990_000)
    assert late.step.tolist() == [0, 0, 0, 1]


def test_a_trace_without_grids_says_so():
    assert not run([("a", 7, 10, None)]).has_shapes
    assert run([("a", 7, 10, SHAPE)]).has_shapes


def test_steps_pair_by_number_where_one_side_has_all_of_the_others():
    assert paired_steps((3, 4, 5, 6), (5, 6)) == (((2, 0), (3, 1)), "number")
    assert paired_steps((3, 4, 5), (5, 6)) == (((0, 0), (1, 1)), "order")
    assert paired_steps((), (5, 6)) == ((), "order")


def test_nothing_at_all_matches_nothing():
    none = run([])
    found = paired(none, run([("a", 7, 10, SHAPE)]))
    assert (found.time_share, found.first.n, found.second.n_matched) == (0.0, 0, 0)
