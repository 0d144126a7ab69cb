"""How many steps a capture takes of one of several ranks: enough collectives to tell a late one, in bearable time."""

from __future__ import annotations

import pytest

from profkit.capture.inside.clock import Mark, collectives_per_step
from profkit.capture.options import ENOUGH_COLLECTIVES, LEAST_STEPS_OF_RANKS, steps_of_ranks, why_steps_of_ranks
from profkit.findings.communication import SKEW
from profkit.ranks.measure.permutation_test import MIN_STEPS

MS, S = 10**6, 10**9


def test_the_numbers_are_those_of_the_analysis():
    assert SKEW.limit("matched") == ENOUGH_COLLECTIVES
    assert LEAST_STEPS_OF_RANKS == MIN_STEPS


@pytest.mark.parametrize(
    ("step_ns", "n_collectives", "steps"),
    [
        (40 * MS, 1, 20),  # short: more steps cost little
        (250 * MS, 30, 20),
        (400 * MS, 1, 20),  # one a step: as many steps as collectives are needed
        (400 * MS, 4, 6),  # enough in few steps: no longer than the test over steps needs
        (400 * MS, 2.5, 8),
        (2 * S, 1, 20),
        (5 * S, 1, 12),  # a minute is the most
        (5 * S, 3, 7),
        (50 * S, 1, 6),
        (2 * S, None, 20),  # not counted: one at least
        (2 * S, 0, 20),
    ],
)
def test_as_many_steps_as_hold_enough_collectives(step_ns, n_collectives, steps):
    assert steps_of_ranks(step_ns, n_collectives) == steps


def test_it_says_what_it_chose_and_what_would_be_enough():
    assert why_steps_of_ranks(20, 4, 1.0) == "chosen for 4 ranks with 1 collective a step"
    assert why_steps_of_ranks(6, 4, None) == "chosen for 4 ranks"
    said = why_steps_of_ranks(6, 4, 2.0)
    assert said == (
        "chosen for 4 ranks with 2 collectives a step; late ranks are told from 20 on, which --steps 10 would record"
    )


def marks(*counts):
    return [Mark(ended_ns=n, began_ns=n, collectives=one) for n, one in enumerate(counts)]


def test_collectives_are_those_of_the_busiest_group():
    assert collectives_per_step(marks((0, 10), (3, 11), (6, 12))) == 3
    assert collectives_per_step(marks((0,), (1,), (1,), (2,))) == pytest.approx(2 / 3)


def test_what_was_not_counted_is_not_known():
    assert collectives_per_step(marks((), ())) is None
    assert collectives_per_step(marks((0,), (0, 3))) is None
    assert collectives_per_step(marks((0,))) is None
