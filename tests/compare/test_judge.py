"""The judge against scipy, against the seed's study, and by its symmetries."""

import math
import re

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from profkit.compare.stats.inference import batch_means_error, paired, permutation_p, welch
from profkit.compare.stats.judge import Answer, Judgement, Sample, judge
from tests.special import within

# The seed's facts: tokens/s of four runs on 8 GPUs without and with forward prefetch.
OFF = (3230.0, 3197.0, 3104.0, 3125.0)
ON = (3138.0, 3149.0, 2934.0, 3013.0)
MIRROR = {
    Answer.IMPROVED: Answer.REGRESSED,
    Answer.REGRESSED: Answer.IMPROVED,
    Answer.EQUIVALENT: Answer.EQUIVALENT,
    Answer.INCONCLUSIVE: Answer.INCONCLUSIVE,
}


def rates(*values: float, **fields: object) -> Sample:
    return Sample(name="runs", values=values, unit="tokens/s", higher_is_better=True, **fields)


def times(*values: float, **fields: object) -> Sample:
    return Sample(name="runs", values=values, unit="ns/step", higher_is_better=False, **fields)


def assert_is_the_seeds_verdict(change: Judgement) -> None:
    assert change.answer is Answer.INCONCLUSIVE
    assert round(100 * change.effect, 1) == -3.3
    assert round(change.p_value, 2) == 0.14
    assert tuple(round(100 * bound, 1) for bound in change.interval) == (-8.2, 1.6)
    assert round(100 * change.minimum_detectable_effect) == 7
    assert change.n == (4, 4)
    assert change.unit_of_replication == "run"
    assert "-3.3 % (95 % interval -8.2 to +1.6 %), 4 runs each, p = 0.14" in change.sentence


def test_the_seeds_prefetch_study_is_inconclusive() -> None:
    assert_is_the_seeds_verdict(judge(rates(*OFF), rates(*ON)))


@pytest.mark.parametrize(("n_a", "n_b"), [(2, 2), (3, 3), (3, 4), (5, 4), (8, 8), (16, 12)])
def test_welch_agrees_with_scipy(n_a: int, n_b: int) -> None:
    rng = np.random.default_rng(n_a * 100 + n_b)
    first, second = rng.normal(100, 3, n_a), rng.normal(104, 9, n_b)
    ours, theirs = welch(first, second), stats.ttest_ind(second, first, equal_var=False)
    assert ours.p_value == pytest.approx(theirs.pvalue, abs=1e-9)
    assert ours.df == pytest.approx(theirs.df, rel=1e-12)
    assert ours.interval(0.05) == pytest.approx(tuple(theirs.confidence_interval(0.95)), abs=1e-8)


def test_a_lopsided_design_has_the_degrees_of_freedom_of_its_smaller_side() -> None:
    rng = np.random.default_rng(1)
    assert welch(rng.normal(9, 1, 3), rng.normal(9, 1, 6)).df <= 2


def test_paired_t_agrees_with_scipy() -> None:
    rng = np.random.default_rng(3)
    first, second = rng.normal(5, 1, 6), rng.normal(5, 1, 6)
    assert paired(second - first).p_value == pytest.approx(stats.ttest_rel(first, second).pvalue, abs=1e-9)


@pytest.mark.parametrize("n", [4, 5])
def test_permutation_agrees_with_scipy(n: int) -> None:
    rng = np.random.default_rng(n)
    for shift in (0, 1, 3):
        first, second = rng.normal(0, 1, n), rng.normal(shift, 1, n)
        theirs = stats.permutation_test((first, second), lambda a, b: np.mean(a) - np.mean(b), n_resamples=10**5)
        assert permutation_p(first, second) == pytest.approx(theirs.pvalue)


def test_too_many_relabellings_are_not_tried() -> None:
    assert permutation_p(range(5), range(100)) is None


def test_one_run_cannot_tell() -> None:
    for change in (judge(rates(1000), rates(2000)), judge(rates(1000, 1001, 1002, 1001), rates(2000))):
        assert change.answer is Answer.INCONCLUSIVE
        assert change.ratio == pytest.approx(2, rel=0.01)
        assert (change.interval, change.p_value, change.minimum_detectable_effect, change.runs_to_settle) == (None,) * 4
        assert change.test.startswith("none: one run")
        assert "cannot rule out noise" in change.sentence


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: judge(times(214e6), times(181e6)), "181 ms/step: 15.4 % less time (1.18x) in this pair; unproven"),
        (lambda: judge(times(181e6), times(214e6)), "214 ms/step: 18.2 % more time (1.18x) in this pair; unproven"),
        (lambda: judge(times(100e6), times(20e6)), "20.0 ms/step: 80.0 % less time (5.00x) in this pair; unproven"),
        (lambda: judge(times(100e6), times(101e6)), "+1.0 %: no change beyond 2.0 % in this pair; unproven"),
        (lambda: judge(rates(100), rates(130)), "+30.0 %: 30.0 % faster in this pair; unproven"),
        (lambda: judge(rates(100, 101, 99), rates(130)), "+30.0 %: 30.0 % faster in these runs; unproven"),
    ],
)
def test_one_run_says_what_it_saw(change, said) -> None:
    assert said in change().sentence


def test_a_change_has_one_sign_whichever_direction_is_better() -> None:
    slower, more = judge(times(100, 101, 99), times(130, 131, 129)), judge(rates(100, 101, 99), rates(130, 131, 129))
    for change in (slower, more):
        low, high = change.change_interval
        assert change.change == pytest.approx(0.3)
        assert low < change.change < high
    assert (slower.effect, more.effect) == (pytest.approx(-0.3), pytest.approx(0.3))  # for programs: positive is better


def test_steps_of_single_runs_describe_and_never_infer() -> None:
    rng = np.random.default_rng(2)
    fast, slow = (times(mean, steps=(tuple(rng.normal(mean, 1, 400)),)) for mean in (100.0, 150.0))
    change = judge(slow, fast)
    assert change.answer is Answer.INCONCLUSIVE
    assert change.interval is None
    assert "batch means" in change.method_note


def test_two_runs_are_a_pilot() -> None:
    change = judge(rates(100, 101), rates(200, 201))
    assert change.answer is Answer.INCONCLUSIVE
    assert change.interval is not None
    assert "pilot" in change.method_note


def test_what_hardly_anything_can_be_seen_with_is_a_factor() -> None:
    assert re.search(r"can show changes of [\d.]+x or more", judge(rates(100, 160), rates(100, 30)).sentence)


def test_answers_of_plain_cases() -> None:
    assert judge(rates(100, 101, 102), rates(120, 121, 122)).answer is Answer.IMPROVED
    assert judge(times(100, 101, 102), times(120, 121, 122)).answer is Answer.REGRESSED
    assert judge(times(120, 121, 122), times(100, 101, 102)).answer is Answer.IMPROVED
    assert judge(rates(100, 100.1, 100.2), rates(100.1, 100.2, 100)).answer is Answer.EQUIVALENT


def test_a_change_smaller_than_the_margin_is_equivalent_even_if_it_is_certain() -> None:
    change = judge(rates(1000, 1000.1, 1000.2), rates(1005, 1005.1, 1005.2))
    assert change.p_value < 0.001
    assert change.answer is Answer.EQUIVALENT
    assert judge(rates(1000, 1000.1, 1000.2), rates(1005, 1005.1, 1005.2), margin=0.001).answer is Answer.IMPROVED


def test_four_runs_need_both_tests() -> None:
    # One overlap of the sides: p of the 70 relabellings cannot be below 4/70, whatever t says.
    change = judge(rates(100, 100.5, 101, 103.1), rates(103, 106, 106.5, 107), margin=0.001)
    assert change.p_value < 0.05
    assert permutation_p(np.log([100, 100.5, 101, 103.1]), np.log([103, 106, 106.5, 107])) > 0.05
    assert change.answer is Answer.INCONCLUSIVE


def test_large_changes_carry_the_error_of_the_baseline() -> None:
    change = judge(rates(100, 110, 120), rates(600, 601, 602))
    logs = stats.ttest_ind(np.log([600, 601, 602]), np.log([100, 110, 120]), equal_var=False).confidence_interval(0.95)
    assert change.interval == pytest.approx(tuple(math.expm1(bound) for bound in logs), rel=1e-8)


def test_blocks_take_the_drift_out() -> None:
    drift = np.array([1, 1.1, 1.22, 1.33])
    old, new = tuple(100 * drift), tuple(103 * drift + np.array([0.1, -0.1, 0, 0.1]))
    assert judge(rates(*old), rates(*new)).answer is Answer.INCONCLUSIVE
    change = judge(rates(*old, blocks=(0, 1, 2, 3)), rates(*new, blocks=(0, 1, 2, 3)))
    assert change.answer is Answer.IMPROVED
    assert change.n == (4, 4)
    assert change.p_value == pytest.approx(stats.ttest_rel(np.log(new), np.log(old)).pvalue, abs=1e-9)


def test_blocks_are_matched_by_their_number() -> None:
    old = rates(100, 200, 300, 7, blocks=(1, 2, 3, 9))
    new = rates(330, 110, 221, blocks=(3, 1, 2))
    change = judge(old, new)
    assert change.n == (3, 3)
    assert change.answer is Answer.IMPROVED


def test_a_block_may_hold_several_runs_of_a_side() -> None:
    change = judge(rates(100, 104, 100, 104, blocks=(1, 1, 2, 2)), rates(102, 102, 102, 103, blocks=(1, 1, 2, 2)))
    assert change.n == (2, 2)


def test_runs_without_any_spread_prove_nothing() -> None:
    change = judge(rates(100, 100, 100), rates(110, 110, 110))
    assert change.answer is Answer.INCONCLUSIVE
    assert change.interval is None
    assert "rounded or copied" in change.sentence


def test_the_runs_that_would_settle_it() -> None:
    change = judge(rates(*OFF), rates(*ON))
    spread = [np.var(np.log(side), ddof=1) for side in (OFF, ON)]
    effect = abs(np.mean(np.log(ON)) - np.mean(np.log(OFF)))

    def detectable(n: int) -> float:
        df = 2 * (n - 1)
        return (stats.t.ppf(0.975, df) + stats.t.ppf(0.8, df)) * math.sqrt(sum(spread) / n)

    assert detectable(change.runs_to_settle) <= effect < detectable(change.runs_to_settle - 1)


@pytest.mark.parametrize("after", [(10, 11, 12, 13), (13 + 1e-9, 12, 11, 10)], ids=["no change", "next to none"])
def test_no_number_of_runs_is_named_that_nobody_makes(after: tuple[float, ...]) -> None:
    """With a margin of 0 % the smallest change counts, and a change of nothing takes endless runs to see."""
    change = within(20, lambda: judge(times(10, 11, 12, 13), times(*after), margin=0.0))
    assert isinstance(change, Judgement), change
    assert (change.answer, change.runs_to_settle) == (Answer.INCONCLUSIVE, None)
    assert change.sentence.endswith("or more")


def test_runs_that_are_equal_are_neither_faster_nor_slower() -> None:
    change = judge(times(10), times(10), margin=0.0)
    assert "+0.0 %: no change in this pair; unproven" in change.sentence


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"values": ()}, "no runs"),
        ({"values": (1.0, -1.0)}, "not positive"),
        ({"values": (1.0, math.nan)}, "not positive"),
        ({"values": (math.inf,)}, "not positive"),
        ({"values": (1.0, 2.0), "blocks": (1,)}, "2 runs and 1 blocks"),
    ],
)
def test_impossible_samples_are_refused(fields: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Sample(name="bad", unit="s", higher_is_better=True, **fields)


def test_samples_of_different_kinds_are_not_compared() -> None:
    with pytest.raises(ValueError, match="different kinds"):
        judge(rates(1, 2, 3), times(1, 2, 3))


def test_blocks_that_are_not_shared_are_no_design() -> None:
    old, new = (1.0, 2.0, 3.0), (2.0, 3.0, 4.0)
    free = judge(rates(*old), rates(*new))
    assert judge(rates(*old, blocks=(1, 2, 3)), rates(*new, blocks=(4, 5, 6))) == free
    assert judge(rates(*old, blocks=(1, 2, 3)), rates(*new, blocks=(3, 4, 5))) == free
    assert judge(rates(*old, blocks=(1, 2, 3)), rates(*new)) == free


def test_batch_means_see_that_neighbouring_steps_are_alike() -> None:
    rng = np.random.default_rng(7)
    independent = rng.normal(100, 5, 900)
    alike = np.repeat(rng.normal(100, 5, 30), 30)
    assert batch_means_error(alike) > 3 * batch_means_error(independent)
    assert batch_means_error(independent) == pytest.approx(5 / 30 / 100, rel=0.4)
    assert batch_means_error(range(1, 16)) is None


runs = st.lists(st.floats(90, 130), min_size=1, max_size=8).map(tuple)


@given(runs, runs)
def test_swapping_the_sides_mirrors_the_answer(first: tuple[float, ...], second: tuple[float, ...]) -> None:
    there, back = judge(rates(*first), rates(*second)), judge(rates(*second), rates(*first))
    assert back.answer is MIRROR[there.answer]
    assert back.ratio == pytest.approx(1 / there.ratio)
    assert back.p_value == pytest.approx(there.p_value)
    assert back.n == there.n[::-1]


@given(runs, runs, st.sampled_from([1e-9, 0.125, 1000.0, 1e12]))
def test_the_unit_does_not_matter(first: tuple[float, ...], second: tuple[float, ...], factor: float) -> None:
    plain = judge(rates(*first), rates(*second))
    assume(plain.p_value is None or abs(plain.p_value - 0.05) > 1e-6)
    scaled = judge(rates(*(factor * x for x in first)), rates(*(factor * x for x in second)))
    assert scaled.answer is plain.answer
    assert scaled.effect == pytest.approx(plain.effect)
    assert (scaled.interval is None) == (plain.interval is None)
    if plain.interval is not None:
        assert scaled.interval == pytest.approx(plain.interval, rel=1e-6, abs=1e-9)


@given(runs, runs, st.randoms())
def test_the_order_of_runs_does_not_matter(first: tuple[float, ...], second: tuple[float, ...], random: object) -> None:
    shuffled = list(second)
    random.shuffle(shuffled)
    plain, other = judge(rates(*first), rates(*second)), judge(rates(*first), rates(*shuffled))
    assert other.answer is plain.answer
    assert other.p_value == pytest.approx(plain.p_value)


@given(runs, runs)
def test_rates_and_times_are_judged_alike(first: tuple[float, ...], second: tuple[float, ...]) -> None:
    by_rate = judge(rates(*first), rates(*second))
    by_time = judge(times(*(1e9 / x for x in first)), times(*(1e9 / x for x in second)))
    assert by_time.p_value == pytest.approx(by_rate.p_value, abs=1e-9)
    if by_rate.answer is not by_time.answer:  # where the interval of raw values decides, to a hair
        assert by_rate.p_value == pytest.approx(0.05, abs=0.01)


@given(runs, runs)
def test_an_answer_and_its_interval_never_contradict(first: tuple[float, ...], second: tuple[float, ...]) -> None:
    change = judge(rates(*first), rates(*second))
    if change.answer in (Answer.IMPROVED, Answer.REGRESSED):
        low, high = change.interval
        assert low > 0 if change.answer is Answer.IMPROVED else high < 0
        assert change.p_value < 0.05
        assert min(change.n) >= 3
