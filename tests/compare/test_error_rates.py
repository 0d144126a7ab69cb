"""Error rates by simulation: steps that are alike, runs that differ, machines that drift, and nothing that changed.

A rate counts as kept unless the number of alarms would be a surprise of one in a thousand. `analyses/error_rates`
prints the same rates from ten times the sessions.
"""

import numpy as np
import pytest
from scipy import stats

from analyses.error_rates.simulate import Machine, alarms, coverage, early_alarms, judge_all, run_means, sessions
from profkit.compare.bench.interleaved import Design, looks
from profkit.compare.stats.judge import Answer
from tests.conftest import IN_FULL, dear

SESSIONS = 600
STEADY = Machine()
RUNS = (3, 4, 8, 16) if IN_FULL else (3, 8)
DRIFTING = Machine(drift=0.05)


def is_kept(rate: float, n_sessions: int, limit: float = 0.05) -> bool:
    """Whether so many alarms are no surprise where the true rate is `limit`."""
    return stats.binomtest(round(rate * n_sessions), n_sessions, limit, alternative="greater").pvalue > 0.001


@pytest.mark.sampled
@pytest.mark.parametrize("n", RUNS)
def test_false_alarms_with_steps_that_are_alike(n: int) -> None:
    changes = judge_all(sessions(SESSIONS, n, STEADY), is_blocked=False)
    assert is_kept(alarms(changes), SESSIONS)
    assert 0.93 <= coverage(changes, 0) <= 0.98


@pytest.mark.sampled
@pytest.mark.parametrize("n", RUNS if IN_FULL else (3,))
def test_false_alarms_on_a_drifting_machine_with_interleaved_runs(n: int) -> None:
    changes = judge_all(sessions(SESSIONS, n, DRIFTING), is_blocked=True)
    assert is_kept(alarms(changes), SESSIONS)
    assert 0.93 <= coverage(changes, 0) <= 0.98


def test_without_their_blocks_drifting_runs_cost_power_not_truth() -> None:
    machine = Machine(drift=0.1)
    free = judge_all(sessions(200, 8, machine, effect=0.03), is_blocked=False)
    blocked = judge_all(sessions(200, 8, machine, effect=0.03), is_blocked=True)
    assert alarms(blocked) > alarms(free) + 0.3
    assert coverage(free, 0.03) > 0.97


@pytest.mark.sampled
@pytest.mark.parametrize(("n", "effect"), [(4, 0.04), dear(8, 0.5), dear(8, 0.04), dear(16, 0.02)])
def test_coverage_of_intervals_where_something_changed(n: int, effect: float) -> None:
    changes = judge_all(sessions(SESSIONS, n, STEADY, effect=effect), is_blocked=False)
    assert 0.93 <= coverage(changes, effect) <= 0.98


@pytest.mark.parametrize(
    ("n_a", "n_b", "cv_a", "cv_b"), [dear(3, 16, 0.05, 0.05), (3, 16, 0.05, 0.01), dear(4, 12, 0.05, 0.01)]
)
def test_lopsided_designs_keep_their_rate(n_a: int, n_b: int, cv_a: float, cv_b: float) -> None:
    few = sessions(SESSIONS, n_a, Machine(run_cv=cv_a, n_steps=1), seed=1)
    many = sessions(SESSIONS, n_b, Machine(run_cv=cv_b, n_steps=1), seed=2)
    pairs = ((first[0], second[0]) for first, second in zip(few, many, strict=True))
    assert is_kept(alarms(judge_all(pairs, is_blocked=False)), SESSIONS)


def test_power_is_what_the_detectable_effect_promises() -> None:
    spread = STEADY.run_cv**2 + run_means(np.random.default_rng(1), STEADY, (4000,), 0.0).var()
    n, df = 8, 14
    effect = (stats.t.ppf(0.975, df) + stats.t.ppf(0.8, df)) * np.sqrt(2 * spread / n)
    changes = judge_all(sessions(SESSIONS, n, STEADY, effect=float(effect)), is_blocked=False)
    assert alarms(changes) == pytest.approx(0.8, abs=0.05)
    assert np.median([change.minimum_detectable_effect for change in changes]) == pytest.approx(effect, rel=0.1)


def test_equivalence_is_seldom_claimed_of_a_change_at_the_margin() -> None:
    pairs = sessions(SESSIONS, 16, Machine(run_cv=0.01, step_cv=0.01), effect=0.02)
    changes = judge_all(pairs, is_blocked=False, margin=0.02)
    wrong = sum(change.answer is Answer.EQUIVALENT for change in changes) / SESSIONS
    assert is_kept(wrong, SESSIONS)
    same = judge_all(sessions(200, 16, Machine(run_cv=0.01, step_cv=0.01)), is_blocked=False, margin=0.02)
    assert sum(change.answer is Answer.EQUIVALENT for change in same) > 190


@pytest.mark.sampled
@pytest.mark.parametrize("machine", [STEADY, DRIFTING] if IN_FULL else [DRIFTING])
def test_an_early_end_keeps_the_error_rate(machine: Machine) -> None:
    design = Design(n_blocks=8, stops_early=True, margin=0.001)
    found, used = early_alarms(200, design, machine)
    assert is_kept(found, 200)
    assert used > 0.97


def test_the_looks_spend_what_was_promised() -> None:
    for n_blocks in (1, 3, 4, 5, 10, 40):
        plan = looks(n_blocks, 0.05, stops_early=True)
        assert sum(plan.values()) == pytest.approx(0.05)
        assert max(plan) == n_blocks
        assert plan[n_blocks] >= 0.045
    assert looks(10, 0.05, stops_early=False) == {10: 0.05}
