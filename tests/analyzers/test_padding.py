"""Padding in the steps of one rank, by what its script told of their tokens."""

from __future__ import annotations

from typing import Any

import pytest

from profkit.pipeline import triage_trace
from profkit.testing import HOST_PID, Row, kernel, launch, operator, span, trace_of

BASE = 10**9
US = 1000
STEP = 1000 * US
N_STEPS = 8


def told(kind: str, step: int, value: float) -> Row:
    """What a script told at the end of a step."""
    at = BASE + (step + 1) * STEP - 5 * US
    return Row(name=f"profkit.{kind}", cat="profkit", ph="C", start_ns=at, end_ns=at, tid=HOST_PID, args={kind: value})


def rows(*, is_gpu: bool = False) -> list[Row]:
    """Steps of 1 ms that compute from 10 to 810 us."""
    found = [span(f"ProfilerStep#{step}", BASE + step * STEP, BASE + (step + 1) * STEP) for step in range(N_STEPS)]
    for step in range(N_STEPS):
        start, end = BASE + step * STEP + 10 * US, BASE + step * STEP + 810 * US
        if is_gpu:
            found += [launch(start - 8 * US, start - 4 * US, correlation=step + 1)]
            found += [kernel("gemm", start, end, correlation=step + 1)]
        else:
            found.append(operator("aten::mm", start, end))
    return found


def waste(*counts: Row, is_gpu: bool = False, **metadata: Any) -> Any:
    """The finding in the triage of these steps; None where it is silent."""
    rank, _ = triage_trace(trace_of([*rows(is_gpu=is_gpu), *counts], **metadata))
    return next((one for one in rank.findings if one.id == "padding.waste"), None)


def counts(tokens: int, padded: int, *, steps: range = range(N_STEPS)) -> list[Row]:
    """Both counts in each of these steps."""
    return [
        told(kind, step, value) for step in steps for kind, value in (("tokens", tokens), ("padded_tokens", padded))
    ]


@pytest.mark.parametrize("is_gpu", [True, False])
def test_padding_costs_its_share_of_compute(is_gpu: bool) -> None:
    one = waste(*counts(60, 100), is_gpu=is_gpu)
    assert one.title == "40.0 % of computed tokens are padding"
    assert one.recoverable_ns == 320 * US
    assert one.fraction == pytest.approx(0.32)
    assert one.evidence[0].statement == "480 of 800 computed tokens are real, in 8 steps"
    assert "compute takes 800 us per step; without padding it takes 320 us less" in one.evidence[1].statement
    assert "--vs" in one.next_tools[0].command


def test_it_is_weighed_by_the_compute_of_each_step() -> None:
    """All padding is in half of the steps: these save 60 %, the others nothing."""
    one = waste(*counts(40, 100, steps=range(4)), *counts(100, 100, steps=range(4, 8)))
    assert one.recoverable_ns == 240 * US


def test_steps_without_counts_are_taken_to_be_like_the_others() -> None:
    one = waste(*counts(60, 100, steps=range(3)))
    assert one.recoverable_ns == 320 * US
    assert one.fraction == pytest.approx(0.32)
    assert "in 3 steps" in one.evidence[0].statement


@pytest.mark.parametrize(
    "told_rows",
    [
        [],
        counts(91, 100),
        [row for row in counts(60, 100) if row.name == "profkit.tokens"],
        [row for row in counts(60, 100) if row.name == "profkit.padded_tokens"],
        [*counts(60, 100), *counts(60, 10, steps=range(1))],  # 120 of 110
    ],
    ids=["nothing told", "a tenth", "real tokens alone", "padded tokens alone", "more real tokens than computed"],
)
def test_healthy_twins(told_rows: list[Row]) -> None:
    assert waste(*told_rows) is None


def test_a_rank_of_several_leaves_it_to_all_ranks_together() -> None:
    assert waste(*counts(60, 100), distributedInfo={"backend": "gloo", "rank": 0, "world_size": 2}) is None
