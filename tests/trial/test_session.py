"""Runs in turns: every block holds every open arm, what fails or is settled ends, and no noise passes for a gain."""

import pytest
from msgspec.structs import replace

from profkit.compare.bench.process import TooLongError
from profkit.compare.stats.judge import DEFAULT_ALPHA
from profkit.errors import ProfkitError
from profkit.model.documents.comparison import Answer
from profkit.trial.outcome import TrialError
from profkit.trial.session import BASELINE, Session, keys, measure
from tests.trial.drawn import machine


def session(*arms, n_blocks=6, **options):
    return Session(arms=keys(arms), n_blocks=n_blocks, **options)


def test_each_block_holds_each_arm_once_and_each_second_one_goes_backwards():
    made = session("a", "b", n_blocks=4, stops_early=False)
    measure(made, machine({"": 10, "a": 9, "b": 10}))
    blocks = [[arm for arm, block in made.order if block == number] for number in range(1, 5)]
    assert all(sorted(block) == ["", "a", "b"] for block in blocks)
    assert blocks[1] == blocks[0][::-1]
    assert blocks[3] == blocks[2][::-1]


def test_the_same_seed_draws_the_same_order_and_another_one_another():
    orders = []
    for seed in (1, 1, 2, 3):
        made = session("a", "b", "c", n_blocks=6, seed=seed, stops_early=False)
        measure(made, machine({"": 10, "a": 9, "b": 10, "c": 10}))
        orders.append(tuple(made.order))
    assert orders[0] == orders[1]
    assert len(set(orders)) > 1


def test_a_clear_answer_ends_its_arm_early_and_the_others_go_on():
    made = session("fast", "same")
    measure(made, machine({"": 10, "fast": 5, "same": 10}, noise=0.02))
    assert made.settled["fast"].answer is Answer.IMPROVED
    assert 4 <= len(made.runs["fast"]) < 6
    assert len(made.runs["same"]) == 6


def test_all_arms_share_one_error():
    assert session("a").alpha == DEFAULT_ALPHA
    assert session("a", "b", "c", "d").alpha == pytest.approx(DEFAULT_ALPHA / 4)


def test_of_many_sessions_without_an_effect_few_claim_one():
    claimed = 0
    for seed in range(120):
        made = session("a", "b", n_blocks=5, seed=seed)
        measure(made, machine({"": 10, "a": 10, "b": 10}, noise=0.1, seed=seed))
        answers = [found.answer for arm in "ab" if (found := made.judged(arm)) is not None]
        claimed += any(answer in (Answer.IMPROVED, Answer.REGRESSED) for answer in answers)
    assert claimed <= 12  # 5 % of 120 are 6, and 12 or fewer come with 99 %


def test_an_arm_that_fails_or_changes_nothing_is_run_no_more():
    good = machine({"": 10, "fails": 10, "idle": 10, "works": 8})

    def run(arm):
        if arm == "fails":
            raise TrialError("the command ended with exit code 1: ValueError", 1)
        if arm == "idle":
            made = good(arm)
            return replace(made, record=replace(made.record, done="", why_not="nothing to change"))
        return good(arm)

    made = session("fails", "idle", "works", n_blocks=4)
    measure(made, run)
    assert made.failed == {"fails": "the command ended with exit code 1: ValueError"}
    assert made.unmade == {"idle": "nothing to change"}
    assert len(made.runs["idle"]) == 1
    assert len(made.runs["works"]) == 4


def test_the_unchanged_job_must_work():
    def run(arm):
        raise ProfkitError("nothing to compare")

    with pytest.raises(ProfkitError, match="nothing to compare"):
        measure(session("a"), run)


def test_what_was_run_before_an_interrupt_is_kept():
    good, n_runs = machine({"": 10, "a": 5}), 0

    def run(arm):
        nonlocal n_runs
        n_runs += 1
        if n_runs == 8:
            raise KeyboardInterrupt
        return good(arm)

    made = session("a", n_blocks=6, stops_early=False)
    with pytest.raises(KeyboardInterrupt):
        measure(made, run)
    assert len(made.order) == 7
    found = made.judged("a")
    assert found is not None
    assert found.answer is Answer.IMPROVED
    assert BASELINE in made.runs


def test_a_session_ends_before_it_takes_longer_than_it_may():
    made = session("a", stops_early=False)
    made.most_ns = 7 * 10**9  # a run takes 1 s
    measure(made, machine({"": 10, "a": 9}))
    assert made.n_whole == 3
    assert made.spent_ns == 6 * 10**9


def test_an_arm_too_slow_for_the_time_is_left_out_and_the_others_go_on():
    def run(arm):
        return replace(machine({"": 10, "a": 9, "slow": 9})(arm), wall_ns=10**9 * (20 if arm == "slow" else 1))

    made = session("a", "slow", stops_early=False)
    made.most_ns = 40 * 10**9
    measure(made, run)
    assert "one run of it takes 20.0 s, too long for the time announced" in made.unmade["slow"]
    assert len(made.runs["a"]) == 6


def test_a_run_that_is_ended_for_its_time_ends_its_arm():
    def run(arm):
        if arm == "slow":
            raise TooLongError("a run of it was ended after 9.00 s: longer than was announced")
        return machine({"": 10, "a": 9})(arm)

    made = session("a", "slow", stops_early=False)
    measure(made, run)
    assert "longer than was announced" in made.unmade["slow"]
    assert len(made.runs["a"]) == 6
