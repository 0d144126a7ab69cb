"""Recorded steps that are no example of the run: a validation in one of them, or all faster than those before."""

import pytest

from profkit.api import triage
from profkit.model.trace import Trace
from profkit.testing import Row, span, trace_of
from tests.conftest import ROOT
from tests.drawing import MS, triaged

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def job(*fetches: int, each_ms: int = 0, **metadata: int) -> Trace:
    """Steps of 100 ms that fetch so many batches and then work; a batch beyond four takes so many more."""
    rows: list[Row] = []
    begin = MS
    for step, count in enumerate(fetches):
        length = (100 + max(count - 4, 0) * each_ms) * MS
        rows.append(span(f"ProfilerStep#{step + 15}", begin, begin + length))
        for one in range(count):
            at = begin + one * MS
            rows += [span("data_loader", at, at + MS // 2), span(LOADER, at + 1000, at + MS // 4)]  # as captures do
        rows.append(span("aten::mm", begin + 60 * MS, begin + length - MS, cat="cpu_op"))
        begin += length
    return trace_of(rows, **metadata)


def caveats(trace: Trace) -> str:
    return " | ".join(triaged(trace).verdict.caveats)


@pytest.mark.parametrize(
    ("fetches", "said"),
    [
        (
            (14, 4, 4, 4, 4),
            "step 15 fetches 14 batches, the others 4: is a validation in it? (--step-range 1:5 leaves it out)",
        ),
        ((1, 1, 40, 1, 30, 1, 1, 1), "steps 17, 19 fetch up to 40 batches, the others 1: is a validation in them?"),
        ((1, 1, 40, 1, 30, 1, 1, 1), "(--step-range 5:8 leaves them out)"),
        (
            (0, 0, 9, 0),
            "step 17 fetches 9 batches, the others 0: is a validation in it? (--step-range 0:2 leaves it out)",
        ),
    ],
)
def test_a_step_with_another_loop_in_it_is_named(fetches, said):
    assert said in caveats(job(*fetches))


def test_a_long_step_with_another_loop_in_it_is_set_apart():
    verdict, _, rank = triaged(job(1, 1, 1, 1, 1, 22, 1, 1, each_ms=50))
    assert verdict.step_ns == 100 * MS
    assert "step 20 also fetches the batches of another loop, a validation, and takes 1.00 s: shares are of the 5" in (
        " | ".join(verdict.caveats)
    )
    assert rank.steps.n == 5


@pytest.mark.parametrize("fetches", [(2, 1, 1, 1), (4, 4, 4), (0, 0, 0), (1, 2, 2, 1), (8, 4, 4, 4)])
def test_the_first_batch_of_an_epoch_is_no_other_loop(fetches):
    assert "validation" not in caveats(job(*fetches))


def test_a_recording_that_ended_for_its_price_is_said():
    said = "fewer than 20 steps were recorded: to write the operators of more may hold the script up for long, by"
    assert said in caveats(job(1, 1, 1, profkit_steps_wanted=20))
    assert "were recorded" not in caveats(job(1, 1, 1))
    assert "were recorded" not in caveats(job(1, 1, 1, profkit_steps_wanted=-1))


def test_a_recording_of_faster_steps_than_before_is_said():
    times = {"profkit_unprofiled_step_mean_ns": 250 * MS, "profkit_profiled_step_mean_ns": 100 * MS}
    assert "the steps before the recording took 250 ms, the recorded ones 100 ms" in caveats(job(1, 1, 1, **times))
    times["profkit_unprofiled_step_mean_ns"] = 110 * MS
    assert "before the recording" not in caveats(job(1, 1, 1, **times))


@pytest.mark.parametrize("name", ["baseline", "data", "data_workers2", "kernel", "overhead"])
def test_steady_captures_have_neither(name):
    said = " ".join(triage(ROOT / "traces" / f"{name}_cpu.pt.trace.json.gz").verdict.caveats)
    assert "validation" not in said
    assert "before the recording" not in said
