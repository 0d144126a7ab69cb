"""Communication alone: what counts in the window, and one collective that holds most of it, at the limits."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from profkit.analyzers.overlap import Overlap, judge, measure
from profkit.testing import draw, span, trace_of
from profkit.timeline import Facts

US, MS = 1_000, 1_000_000


def exposed() -> Overlap:
    """Half of one step is communication without compute."""
    found = measure(
        Facts.of(
            draw("""
        steps   | 0...................
        gpu s7  | ..KKKKKKKK..........
        gpu s20 | ..........NNNNNNNNNN
    """)
        )
    )
    assert isinstance(found, Overlap)
    return found


@pytest.mark.parametrize(
    ("n_steps", "longest_ms", "usual_ms", "is_lone"),
    [
        (2, 50, 5, True),  # at both limits: half of the 100 ms, ten times as long
        (3, 50, 5, False),  # a third step would have shown it again
        (2, 49, 4, False),  # less than half
        (2, 59, 6, False),  # less than ten times
        (2, 50, 0, False),  # nothing of its like to set it against
    ],
)
def test_one_long_call_is_doubtful(n_steps: int, longest_ms: int, usual_ms: int, is_lone: bool) -> None:
    found = exposed()
    (finding,) = judge(
        replace(
            found,
            scope=replace(found.scope, n_steps=n_steps, window_ns=200 * MS),
            exposed_ns=100 * MS,
            longest_ns=longest_ms * MS,
            usual_ns=usual_ms * MS,
        )
    )
    assert finding.confidence == (0.35 if is_lone else 0.6)


@pytest.mark.parametrize(("exposed_ms", "fires"), [(10, True), (9, False)])
def test_it_fires_from_a_twentieth_of_the_window(exposed_ms: int, fires: bool) -> None:
    found = exposed()
    changed = replace(found, scope=replace(found.scope, window_ns=200 * MS), exposed_ns=exposed_ms * MS)
    assert bool(judge(changed)) == fires


def test_a_collective_that_the_window_cuts_counts_inside_it_but_is_as_long_as_it_was():
    """The step ends at 1000 us: of the second collective 200 of 700 us lie inside."""
    found = measure(
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
