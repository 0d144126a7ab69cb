"""How many steps a capture takes: of short ones enough to tell rare causes, of ranks enough to tell a late one."""

import math

import pytest

from profkit.capture.inside.clock import Mark, collectives_per_step
from profkit.capture.inside.seen import Queue
from profkit.capture.options import (
    ENOUGH_COLLECTIVES,
    LEAST_STEPS_OF_RANKS,
    steps_of_one,
    steps_of_ranks,
    why_steps_of_ranks,
)
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


@pytest.mark.parametrize(
    ("step_ns", "least", "n_left", "steps"),
    [
        (20 * MS, 5, math.inf, 20),
        (70 * MS, 5, math.inf, 10),  # a second in all
        (150 * MS, 5, math.inf, 5),
        (9 * S, 5, math.inf, 5),
        (20 * MS, 6, math.inf, 18),  # whole bursts of three workers
        (20 * MS, 16, math.inf, 16),
        (20 * MS, 32, math.inf, 32),
        (20 * MS, 5, 12, 10),  # the loader is at its end after 12
        (20 * MS, 5, -3, 5),
    ],
)
def test_short_steps_of_a_process_alone_are_recorded_for_a_second(step_ns, least, n_left, steps):
    assert steps_of_one(step_ns, least, n_left) == steps


class Iterator:
    """A loader's iterator, as torch names its parts."""

    def __init__(self, n_batches, n_yielded):
        self._index_sampler = range(n_batches)
        self._num_yielded = n_yielded


def test_the_batches_that_are_left_are_those_of_the_epoch():
    queue = Queue()
    assert queue.n_left == 0, "a loop without a loader promises no steps"
    epoch = Iterator(30, 0)
    for number in range(14):
        epoch._num_yielded = number
        queue.note(epoch)
    assert queue.n_left == 17
    another = Iterator(30, 0)
    queue.note(another)
    assert queue.n_left == 30, "an epoch may be the last one"


def test_a_loader_without_a_length_is_no_end():
    queue, endless = Queue(), Iterator(1, 3)
    endless._index_sampler = iter(())
    queue.note(endless)
    assert queue.n_left == math.inf


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
