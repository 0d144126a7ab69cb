"""What the script may wait for the steps with Python stacks, and what that buys."""

import pytest

from profkit.capture.inside.places import room
from profkit.capture.inside.places.room import Allowance

MS = 1_000_000


@pytest.fixture
def run_for(monkeypatch):
    def lasted(seconds: float) -> None:
        monkeypatch.setattr(room, "_BEGUN_NS", 0)
        monkeypatch.setattr(room.time, "perf_counter_ns", lambda: round(seconds * 1e9))

    return lasted


@pytest.mark.parametrize(("seconds", "most_ms"), [(3, 500), (40, 800), (3600, 2000)])
def test_it_is_two_percent_of_the_run_at_most_two_seconds(run_for, seconds, most_ms):
    run_for(seconds)
    assert Allowance(usual_ns=MS, operators_ns=0, is_limited=True).most_ns == most_ms * MS


@pytest.mark.parametrize(
    ("n_calls", "seconds", "n_steps"), [(900, 3, 2), (9_600, 3, 1), (9_600, 60, 2), (58_000, 300, 0)]
)
def test_it_buys_as_many_steps_as_it_pays_for(run_for, n_calls, seconds, n_steps):
    run_for(seconds)
    assert Allowance(usual_ns=40 * MS, operators_ns=n_calls * 9_500, is_limited=True).steps(2, n_calls) == n_steps


def test_who_asks_for_them_gets_them(run_for):
    run_for(3)
    assert Allowance(usual_ns=40 * MS, operators_ns=0, is_limited=False).steps(2, 400_000) == 2


def test_what_is_too_dear_now_is_waited_for(run_for):
    run_for(3)
    allowance = Allowance(usual_ns=250 * MS, operators_ns=200 * MS, is_limited=True)
    assert allowance.steps(2, 12_000) == 0
    assert allowance.waits_for(allowance.cost_ns(1, 12_000))
    assert not allowance.is_long_enough()
    run_for(71)
    assert allowance.is_long_enough()
    assert allowance.steps(2, 12_000) == 2
    assert not allowance.waits_for(3_000 * MS), "never more than two seconds"


def test_short_steps_are_sampled_until_there_is_something_to_see(run_for):
    run_for(3)
    assert Allowance(usual_ns=6 * MS, operators_ns=0, is_limited=True).looked_at(2) == 20
    assert Allowance(usual_ns=900 * MS, operators_ns=0, is_limited=True).looked_at(2) == 2


def test_a_step_of_very_many_operators_is_paid_for_from_the_start(run_for):
    run_for(3)
    assert Allowance(usual_ns=300 * MS, operators_ns=480 * MS, is_limited=True).steps(2, 7_000) == 1
    assert Allowance(usual_ns=300 * MS, operators_ns=480 * MS, is_limited=True).cost_ns(1, 700) == 1_440 * MS
    assert Allowance(usual_ns=300 * MS, operators_ns=480 * MS, is_limited=True).looked_at(2) == 1
    assert Allowance(usual_ns=300 * MS, operators_ns=1_100 * MS, is_limited=True).looked_at(2) == 0
