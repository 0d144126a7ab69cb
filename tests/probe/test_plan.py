"""The schedule of a probe: random, balanced, the same everywhere, and as cheap as promised."""

import random

from profkit.capture.inside.probe.plan import Plan, doses_for, from_text, ranks_of, steps_for


def plan(n_places=4, n_steps=400, cost=0.05, seed=0):
    places = tuple(f"place{number}" for number in range(n_places))
    return Plan(
        places=places, doses_ns=doses_for(10_000_000), n_steps=n_steps, seed=seed, cost=cost, step_ns=10_000_000
    )


def test_every_block_has_each_treatment_once():
    one = plan()
    for first in range(0, 400 - one.block, one.block):
        given = [one.treatment(step) for step in range(first, first + one.block)]
        assert sorted(filter(None, given)) == sorted((place, dose) for place in one.places for dose in (0, 1))


def test_delays_cost_no_more_than_asked():
    for n_places in (1, 2, 4, 12):
        for cost in (0.01, 0.05, 0.2):
            one = plan(n_places, 5000, cost)
            given = [one.doses_ns[found[1]] for found in map(one.treatment, range(5000)) if found]
            assert one.most_cost <= cost
            assert sum(given) <= cost * 5000 * one.step_ns + n_places * sum(one.doses_ns)


def test_steps_before_and_after_are_untouched():
    assert [plan().treatment(step) for step in (-20, -1, 400, 500)] == [None] * 4


def test_ranks_draw_the_same_schedule_and_seeds_differ():
    first, again, other = plan(), from_text(plan().to_text()), plan(seed=1)
    drawn = [[one.treatment(step) for step in range(400)] for one in (first, again, other)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_draw_leaves_the_scripts_generator_alone():
    random.seed(3)
    expected = random.getstate()
    plan(seed=77).treatment(5)
    assert random.getstate() == expected


def test_a_few_ranks_are_places_of_many():
    assert ranks_of(1) == ()
    assert ranks_of(3) == (0, 1, 2)
    assert len(ranks_of(512)) == 8
    assert ranks_of(512)[::7] == (0, 511)


def test_more_short_steps_are_probed_up_to_a_limit():
    assert steps_for(100_000_000) == 400
    assert steps_for(30_000_000) == 1000
    assert steps_for(2_000_000) == 2000
