"""Intervals cover the true slope about as often as they say: simulated, with noise that remembers."""

import os

import numpy as np
import pytest

from profkit.probe.fit import Steps, Terms, fitted
from tests.probe.pipeline import noise

N_RUNS = 1000 if os.environ.get("PROFKIT_IN_FULL") else 100


@pytest.mark.parametrize("memory", [0.0, 0.6, 0.9])
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
