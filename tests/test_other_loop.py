"""A capture of a loop that is not the job gives no verdict, but the command that records the job."""

import pytest

from profkit.model.documents.report import Bottleneck
from profkit.testing import Row, span
from tests.drawing import MS, in_steps, launched, triaged

OTHER = {
    "name": "Adam (optimizer 2)",
    "recorded": "SGD (optimizer 1)",
    "share": 0.09,
    "spent_ns": 380 * MS,
    "options": "--optimizer 2 --steps 2",
}


def steps() -> list[Row]:
    """Eight steps of 40 ms that the loader holds up."""
    drawn = lambda at, number: [  # noqa: E731
        span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 25 * MS),
        span("aten::mm", at + 25 * MS, at + 40 * MS - 1000, cat="cpu_op"),
        *launched("gemm", at + 26 * MS, at + 26 * MS + 10_000, at + 38 * MS, number + 1, call_ns=5_000),
    ]
    return in_steps(8, 40 * MS, drawn)


def test_a_loop_that_is_not_the_job_gets_no_verdict_but_the_command_for_it():
    verdict = triaged(steps(), profkit_other_loop=OTHER).verdict
    assert verdict.bottleneck is Bottleneck.INCONCLUSIVE
    assert "the loop of SGD (optimizer 1), 9.0 % of the time" in verdict.headline
    assert "that of Adam (optimizer 2) took 380 ms" in verdict.headline
    assert verdict.next_tool.command.startswith("profkit run --optimizer 2 --steps 2 -- ")


@pytest.mark.parametrize(
    "change",
    [{"share": 0.45}, {"share": "0.1"}, {"options": "--optimizer 2; rm -rf /"}, {"options": ""}, {"spent_ns": None}],
)
def test_the_recorded_loop_is_judged_where_it_may_be_the_job_or_nothing_sound_is_told(change):
    verdict = triaged(steps(), profkit_other_loop={**OTHER, **change}).verdict
    assert verdict.bottleneck is Bottleneck.DATA
