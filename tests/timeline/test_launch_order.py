"""Which launch of a kernel is typical, counted as a profiler counts: by function, in the order of launches."""

from profkit.testing import kernel, launch, span, trace_of
from profkit.timeline.launch_order import LaunchOrder, Typical

STEP = 1_000_000


def typical(launches, name, *, n_steps=1):
    """`launches`: (name, host time in us, device time in us, duration in us), the same in each step."""
    rows, number = [], 0
    for step in range(n_steps):
        begin = 10**9 + step * STEP
        rows.append(span(f"ProfilerStep#{step}", begin, begin + STEP))
        for text, asked, start, length in launches:
            number += 1
            rows.append(launch(begin + asked * 1000, begin + asked * 1000 + 500, correlation=number))
            at = begin + start * 1000
            rows.append(kernel(text, at, at + length * 1000 + step, correlation=number))
    trace = trace_of(rows)
    code = trace.strings.index(name) if name in trace.strings else -1
    found = LaunchOrder(trace, 0).typical(code)
    return None if found is None else found.before


def test_other_functions_do_not_count_and_other_names_of_the_function_do():
    launches = [("a<1>()", 10, 20, 5), ("b()", 30, 40, 5), ("a<2>()", 50, 60, 5)]
    assert typical(launches, "a<2>()", n_steps=3) == 1
    assert typical(launches, "b()", n_steps=3) == 0


def test_the_order_is_that_of_launches_not_of_execution():
    assert typical([("a<1>()", 10, 90, 5), ("a<2>()", 20, 30, 5)], "a<2>()") == 1


def test_the_launch_that_has_the_time_is_typical():
    alike = [("a()", 10, 20, 6), ("a()", 40, 50, 8), ("a()", 70, 80, 7)]
    assert typical(alike, "a()") == 2
    one_is_long = [("a()", 10, 20, 1), ("a()", 40, 50, 1), ("a()", 70, 80, 100), ("a()", 200, 210, 1)]
    assert typical(one_is_long, "a()") == 2


def unmarked(*lengths_us):
    rows = []
    for number, length in enumerate(lengths_us, 1):
        at = 10**9 + 10_000_000 * number
        rows.append(launch(at, at + 500, correlation=number))
        rows.append(kernel("triton_", at + 5000, at + 5000 + length * 1000, correlation=number))
    return trace_of(rows)


def test_without_steps_it_is_counted_from_the_first_launch_of_the_trace():
    trace = unmarked(2, 3, 1187, 2)
    found = LaunchOrder(trace, 0).typical(trace.strings.index("triton_"))
    assert found == Typical(before=2, duration_ns=1187 * 1000)


def test_without_launches_there_is_none():
    trace = unmarked(2)
    assert LaunchOrder(trace, 1).typical(0) is None
    assert typical([("a()", 10, 20, 6)], "b()") is None
