"""A layer that computes the same again and again: known by what the capture marked in steps that it recorded later."""

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.analyzers.patterns.thrown import SAME_TENSORS
from profkit.testing import Row, operator, span, trace_of
from tests.drawing import finding_in

US = 1000
BASE, STEP = 10**9, 1000 * US
NODE = "autograd::engine::evaluate_function: AddmmBackward0"
N_CALLS = 4


def steps(n_steps: int, *, marked: tuple[int, ...] = ()) -> list[Row]:
    """Steps of 1 ms: four calls of a layer of 50 us each, another product, and the backward passes of the four."""
    rows = []
    for step in range(n_steps):
        at = BASE + step * STEP
        rows.append(span(f"ProfilerStep#{step}", at, at + STEP))
        rows.append(operator("aten::mm", at + 400 * US, at + 500 * US, Input_Dims=[[9, 9], [9, 9]]))
        for call in range(N_CALLS):
            begin, back = at + call * 100 * US, at + (500 + call * 100) * US
            dims = {"Input_Dims": [[32, 64], [16, 64], [16]], "Sequence_number": step * N_CALLS + call}
            rows.append(operator("aten::linear", begin, begin + 50 * US, **dims))
            numbers = {"Sequence_number": step * N_CALLS + call, "Fwd_thread_id": 1}
            rows.append(operator(NODE, back, back + 100 * US, **numbers))
            if call in marked:
                rows.append(span(SAME_TENSORS, begin - US, begin + 51 * US))
    return rows


def found(*marked: int) -> Any:
    trace = replace(trace_of(steps(8)), again=trace_of(steps(2, marked=marked), profkit_places_of="rank0"))
    return finding_in(trace, "work.repeated")


def test_all_but_the_first_of_the_calls_of_the_same_tensors_are_spared() -> None:
    one = found(1, 2, 3)
    assert one.title.startswith("a layer computes the same 4 times in a step")
    assert one.recoverable_ns == 3 * (50 + 100) * US
    assert one.fraction == pytest.approx(0.45)


@pytest.mark.parametrize("marked", [(), (1,)], ids=["other tensors", "two passes"])
def test_calls_of_other_tensors_are_needed(marked: tuple[int, ...]) -> None:
    assert found(*marked) is None
