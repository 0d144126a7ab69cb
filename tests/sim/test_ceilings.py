"""Ceilings beside what removing the cause gives, on a sample of the drawn jobs; `make simulated` has them all."""

import pytest

from tests.sim.job import CAUSES
from tests.sim.tally import CLOSE, Compared, close_share, compared, tally, unbooked_share


@pytest.fixture(scope="module")
def sample() -> list[Compared]:
    return tally(range(300, 340))


def test_no_ceiling_is_below_the_true_gain_and_nearly_all_are_close(sample: list[Compared]) -> None:
    assert {one.cause for one in sample} == set(CAUSES)
    assert [one for one in sample if one.is_below] == []
    assert close_share(sample) >= CLOSE


@pytest.mark.parametrize(
    ("seed", "cause"),
    [
        (1159, "host"),  # copies for the next step start after a short kernel each time, and wait for none
        (1191, "sync"),  # what waits for something unknown was launched late as well
        (114, "host"),  # a collective waits for compute, and is launched when its own stream is idle
        (2100, "data"),  # work ends by chance during a short call for an event long past
        (1032, "host"),  # a call waits for one stream while a copy ends on another
    ],
)
def test_what_made_a_ceiling_too_low_is_known(seed: int, cause: str) -> None:
    (one,) = (one for one in compared(seed) if one.cause == cause)
    assert one.predicted_ns >= 0.999 * one.true_ns
    assert one.is_close


def test_the_idle_time_right_behind_a_wait_is_no_ceiling(sample: list[Compared]) -> None:
    assert unbooked_share([one for one in sample if one.cause == "sync"]) > 0.4
