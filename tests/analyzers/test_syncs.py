"""Which calls wait, who makes them, and from when on that is a finding."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from profkit.analyzers.syncs import Syncs, judge, measure
from profkit.testing import draw, kernel, launch, span, trace_of
from profkit.timeline import Facts

US = 1000


def found_in(picture: str) -> Syncs:
    found = measure(Facts.of(draw(picture)))
    assert isinstance(found, Syncs)
    return found


def waiting() -> Syncs:
    """Two steps, each with a call that holds the host for 9 us while the device works to its end."""
    return found_in("""
        steps  | 0.............1.............
        gpu s7 | ..KKKKKKKK......KKKKKKKK....
        main   | LSSSSSSSSSS...LSSSSSSSSSS...
    """)


def test_what_waiting_costs_is_the_idle_time_behind_it() -> None:
    found = waiting()
    assert (found.n_calls, found.blocked_ns) == (2, 20 * US)
    assert found.callers == (("cudaStreamSynchronize", "outside operators", 2, 20 * US),)


@pytest.mark.parametrize(
    ("cost_us", "n_calls", "worst_share", "fires"),
    [(30, 4, 0.49, True), (29, 4, 0.49, False), (30, 3, 0.49, False), (30, 4, 0.5, False)],
)
def test_it_fires_at_three_hundredths_of_the_window_and_one_call_a_step(
    cost_us: int, n_calls: int, worst_share: float, fires: bool
) -> None:
    found = waiting()
    scope = replace(found.scope, window_ns=1000 * US, n_steps=4)
    changed = replace(found, scope=scope, cost_ns=cost_us * US, n_calls=n_calls, worst_share=worst_share)
    assert bool(judge(changed)) == fires


def test_allocating_calls_are_not_this_analyzers() -> None:
    found = found_in("""
        steps  | 0.............
        gpu s7 | ..KKKKKKKK....
        main   | LSSSAAAAAAA...
    """)
    assert (found.n_calls, found.blocked_ns) == (1, 3 * US)


def test_callers_come_with_their_operators_the_longest_first() -> None:
    start = 10**9
    rows = [
        span("ProfilerStep#0", start, start + 100 * US),
        launch(start, start + US, correlation=1),
        kernel("k", start + 2 * US, start + 90 * US, correlation=1),
        span("aten::item", start + 9 * US, start + 21 * US, cat="cpu_op"),
        launch(start + 10 * US, start + 20 * US, correlation=0, name="cudaStreamSynchronize"),
        launch(start + 30 * US, start + 60 * US, correlation=0, name="cudaDeviceSynchronize"),
        span("aten::item", start + 69 * US, start + 76 * US, cat="cpu_op"),
        launch(start + 70 * US, start + 75 * US, correlation=0, name="cudaStreamSynchronize"),
    ]
    found = measure(Facts.of(trace_of(rows)))
    assert isinstance(found, Syncs)
    assert found.callers == (
        ("cudaDeviceSynchronize", "outside operators", 1, 30 * US),
        ("cudaStreamSynchronize", "aten::item", 2, 15 * US),
    )
    assert found.longest_span_ns == (start + 30 * US, start + 60 * US)
