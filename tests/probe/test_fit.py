"""The estimator on loops whose slopes are known, without a clock."""

import numpy as np
import pytest

from profkit.probe.fit import Steps, Terms, fitted
from profkit.probe.report import more_steps, read
from tests.conftest import dear
from tests.probe.pipeline import Loop, noise, probed

SERIAL = [1, 1, 1, 1, 1]
LOADER = [1, 0, 0, 0, 1]
HOST = [0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("loop", "expected", "within"),
    [
        (Loop(fetch=20, compute=10), SERIAL, 0.1),
        (Loop(fetch=20, compute=10, n_workers=1), LOADER, 0.15),
        (Loop(fetch=5, compute=20, n_workers=1), HOST, 0.2),
        (Loop(fetch=40, compute=10, n_workers=2), LOADER, 0.25),
        dear(Loop(fetch=20, compute=20, n_workers=4), HOST, 0.3),
    ],
    ids=["serial", "loader", "hidden loader", "two workers, in bursts", "four workers, hidden"],
)
def test_slopes_of_a_known_pipeline(loop, expected, within):
    found = [probed(loop, seed=seed) for seed in (1, 2, 3)]
    assert np.mean([one.value for one in found], axis=0) == pytest.approx(expected, abs=within)
    for one in found:
        assert np.mean(np.abs(one.value - expected) <= one.half) >= 0.6


def test_a_validation_and_a_checkpoint_do_not_move_a_slope():
    rng = np.random.default_rng(4)
    dose = np.where(rng.random(400) < 0.1, 3e6, 0.0)
    duration = 10e6 + noise(rng, 400, 2e5, 0.3) + dose
    is_odd = np.zeros(400, bool)
    is_odd[[100, 200, 300]] = True
    duration[is_odd] += 4e8
    duration[[50, 250]] += 3e7
    steps = Steps(duration=duration, is_probed=np.ones(400, bool), is_odd=is_odd)
    found = fitted(steps, [Terms(dose=dose, n_lags=1)], np.eye(1))
    assert found.value[0] == pytest.approx(1.0, abs=0.3)
    assert found.half[0] < 0.6


def test_drift_is_no_slope():
    rng = np.random.default_rng(5)
    dose = np.where(rng.random(400) < 0.1, 3e6, 0.0)
    duration = 10e6 * (1 + 0.5 * np.sin(np.arange(400) / 60)) + noise(rng, 400, 1e5, 0.3)
    steps = Steps(duration=duration, is_probed=np.ones(400, bool), is_odd=np.zeros(400, bool))
    found = fitted(steps, [Terms(dose=dose, n_lags=1)], np.eye(1))
    assert abs(found.value[0]) < 0.1


def test_a_delay_that_shows_in_every_second_step_has_an_honest_interval():
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        dose = np.zeros(400)
        dose[rng.choice(400, 16, replace=False)] = 4e6
        duration = 10e6 + noise(rng, 400, 1e5, 0.0) + dose * rng.integers(0, 2, 400)
        steps = Steps(duration=duration, is_probed=np.ones(400, bool), is_odd=np.zeros(400, bool))
        found = fitted(steps, [Terms(dose=dose, n_lags=1)], np.eye(1), seed=seed, n_shuffles=0)
        covered += abs(found.value[0] - 0.5) <= found.half[0]
    assert covered >= 50


def test_too_few_steps_are_refused():
    dose = np.zeros(6)
    dose[2] = 1.0
    steps = Steps(duration=np.full(6, 9.0), is_probed=np.ones(6, bool), is_odd=np.zeros(6, bool))
    with pytest.raises(ValueError, match="unknowns"):
        fitted(steps, [Terms(dose=dose, n_lags=5)], np.eye(1))


@pytest.mark.parametrize(
    ("value", "half", "reading"),
    [
        (1.0, 0.2, "critical"),
        (0.85, 0.3, "critical"),
        (0.0, 0.2, "hidden"),
        (0.1, 0.35, "hidden"),
        (-0.2, 0.6, "hidden"),
        (-0.7, 0.4, "inconclusive"),
        (1.5, 0.6, "inconclusive"),
        (0.5, 0.2, "partly"),
        (0.5, 0.6, "inconclusive"),
        (0.9, 0.5, "inconclusive"),
        (-5.0, 2.0, "inconclusive"),
    ],
)
def test_readings(value, half, reading):
    assert read(value, (value - half, value + half)) == reading


def test_more_steps_narrow_an_interval_to_what_can_be_read():
    assert more_steps(0.8, 400, 100_000) == 1200
    assert more_steps(0.3, 400, 100_000) == 1200
    assert more_steps(0.41, 400, 100_000) == 50
    assert more_steps(2.0, 60, 3) < more_steps(2.0, 60, 100)
