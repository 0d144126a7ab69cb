"""Communication by name holds what lies in the window, as the sum above it does."""

from __future__ import annotations

from profkit.analyzers import overlap
from profkit.testing import span, trace_of
from profkit.timeline import Facts

US = 1000


def test_a_collective_that_the_window_cuts_counts_inside_it_but_is_as_long_as_it_was():
    """The step ends at 1000 us: of the second collective 200 of 700 us lie inside."""
    found = overlap.measure(
        Facts.of(
            trace_of(
                [
                    span("ProfilerStep#0", 0, 1000 * US),
                    span("aten::mm", 10 * US, 50 * US, cat="cpu_op"),
                    span("gloo:all_reduce", 100 * US, 400 * US, tid=2000),
                    span("gloo:all_reduce", 800 * US, 1500 * US, tid=2000),
                ]
            )
        )
    )
    assert found.top == (("gloo:all_reduce", 2, 500 * US),)
    assert found.comm_ns == 500 * US
    assert found.longest_ns == 700 * US
