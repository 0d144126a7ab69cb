"""Intervals cover the true slope about as often as they say: simulated, with noise that remembers."""

import os

import numpy as np
import pytest

from profkit.capture.inside.probe.plan import BEFORE, Plan
from profkit.probe.fit import Steps, Terms, fitted
from tests.conftest import rarely
from tests.probe.pipeline import PLACES, noise

N_RUNS = 1000 if os.environ.get("PROFKIT_IN_FULL") else 100


@pytest.mark.parametrize("memory", [0.0, rarely(2, 0.6), rarely(2, 0.9)])
@pytest.mark.parametrize("is_heavy", [False, True], ids=["normal", "bursts of another job"])
def test_intervals_cover(memory, is_heavy):
    covered, halves = np.zeros(2), []
    for run in range(N_RUNS):
        rng = np.random.default_rng([run, round(10 * memory), is_heavy])
        order = rng.permutation(300)
        doses = [np.zeros(300), np.zeros(300)]
        doses[0][order[:16]] = rng.choice([1.5, 4.5], 16)
        doses[1][order[16:32]] = rng.choice([1.5, 4.5], 16)
        errors = noise(rng, 300, 0.7, memory)
        if is_heavy:
            begins = rng.choice(290, 6)
            for begin in begins:
                errors[begin : begin + 8] += rng.exponential(3.0)
        late = np.concatenate([[0.0], doses[1][:-1]])
        duration = 10 + errors + doses[0] + 0.4 * doses[1] - 0.4 * late  # made good in the next step
        steps = Steps(duration=duration, is_probed=np.ones(300, bool), is_odd=np.zeros(300, bool))
        found = fitted(steps, [Terms(dose=dose, n_lags=1) for dose in doses], np.eye(2), seed=run, n_shuffles=20)
        covered += np.abs(found.value - [1.0, 0.0]) <= found.half
        halves.append(found.half)
    assert covered.min() / N_RUNS >= (0.93 if N_RUNS > 500 else 0.9)
    assert np.median(halves) < 0.6


def test_bursts_of_another_job_do_not_reach_the_weights_of_quiet_steps():
    """A fit to the bursts is wrong where all is quiet: with weights from its residuals, slopes of 1 vary by 1."""
    found = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        plan = Plan(
            places=PLACES, doses_ns=(1_500_000, 4_500_000), n_steps=400, seed=seed, cost=0.05, step_ns=10_000_000
        )
        duration = rng.normal(10e6, 0.3e6, 440)
        for begin in rng.integers(0, 400, 4):  # steps up to 15 times as long, for 30 steps
            duration[begin : begin + 30] *= rng.uniform(1, 15, len(duration[begin : begin + 30]))
        doses = {place: np.zeros(440) for place in PLACES}
        for step in range(400):
            if (treatment := plan.treatment(step)) is not None:
                doses[treatment[0]][BEFORE + step] = plan.doses_ns[treatment[1]]
        is_probed = (np.arange(440) >= BEFORE) & (np.arange(440) < BEFORE + 400)
        steps = Steps(duration=duration + sum(doses.values()), is_probed=is_probed, is_odd=np.zeros(440, bool))
        terms = [Terms(dose=doses[place], n_lags=1) for place in PLACES]
        found.append(fitted(steps, terms, np.full((1, 4), 0.25), n_shuffles=0).value[0])
    assert np.mean(found) == pytest.approx(1, abs=0.1)
    assert np.std(found) < 0.15
