"""Ceilings beside what removing the cause gives, on a sample of the drawn jobs; `make simulated` has them all."""

from __future__ import annotations

import pytest

from tests.sim.job import CAUSES
from tests.sim.tally import CLOSE, Compared, close_share, tally, unbooked_share


@pytest.fixture(scope="module")
def sample() -> list[Compared]:
    return tally(range(300, 340))


def test_no_ceiling_is_below_the_true_gain_and_nearly_all_are_close(sample: list[Compared]) -> None:
    assert {one.cause for one in sample} == set(CAUSES)
    assert [one for one in sample if one.is_below] == []
    assert close_share(sample) >= CLOSE


def test_the_idle_time_right_behind_a_wait_is_no_ceiling(sample: list[Compared]) -> None:
    assert unbooked_share([one for one in sample if one.cause == "sync"]) > 0.4
