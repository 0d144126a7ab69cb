"""A layer that computes the same again and again: known by what the capture marked in steps that it recorded later."""

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.analyzers.patterns.thrown import PARAMETRIZATION, SAME_TENSORS
from profkit.pipeline import triage_trace
from profkit.testing import Row, operator, span, trace_of
from tests.drawing import finding_in

US = 1000
BASE, STEP = 10**9, 1000 * US
NODE = "autograd::engine::evaluate_function: AddmmBackward0"
N_CALLS = 4


def steps(n_steps: int, *, marked: tuple[int, ...] = (), name: str = SAME_TENSORS) -> list[Row]:
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
                rows.append(span(name.format(call), begin - US, begin + 51 * US))
    return rows


def found(*marked: int, name: str = SAME_TENSORS) -> Any:
    again = trace_of(steps(2, marked=marked, name=name), profkit_places_of="rank0")
    trace = replace(trace_of(steps(8)), again=again)
    return finding_in(trace, "work.repeated")


def test_all_but_the_first_of_the_calls_of_the_same_tensors_are_spared() -> None:
    one = found(1, 2, 3)
    assert one.title.startswith("a layer computes the same 4 times in a step")
    assert one.recoverable_ns == (250 + 3 * 100) * US  # with what lies between the three
    assert one.fraction == pytest.approx(0.55)


def test_a_parametrization_is_named_with_what_spares_it() -> None:
    one = found(1, 2, 3, name=f"{SAME_TENSORS} 0: {PARAMETRIZATION}weight by Orthogonal")
    assert one.title == "the parametrization of weight by Orthogonal is computed 4 times in a step, of the same tensors"
    assert one.fix.startswith("with torch.nn.utils.parametrize.cached(): around the forward pass")


def test_an_old_hook_is_replaced_by_one_that_can_be_cached() -> None:
    one = found(1, 2, 3, name=f"{SAME_TENSORS} 0: {PARAMETRIZATION}weight by the hook of weight_norm")
    assert (
        one.title
        == "the parametrization of weight by the hook of weight_norm is computed 4 times in a step, of the same tensors"
    )
    assert one.fix.startswith("put torch.nn.utils.parametrizations.weight_norm in its place, and with")


@pytest.mark.parametrize("marked", [(), (1,)], ids=["other tensors", "two passes"])
def test_calls_of_other_tensors_are_needed(marked: tuple[int, ...]) -> None:
    assert found(*marked) is None


def test_calls_of_three_things_that_are_computed_twice_each_are_two_passes() -> None:
    assert found(1, 2, 3, name=SAME_TENSORS + " {}") is None


def overhead(n_steps: int, *, is_marked: bool) -> list[Row]:
    """Steps of 1 ms: an operator of 5 us every 20 us, every other one on the same tensors."""
    rows = []
    for step in range(n_steps):
        at = BASE + step * STEP
        rows.append(span(f"ProfilerStep#{step}", at, at + STEP))
        for number in range(50):
            begin = at + number * 20 * US
            name, dims = ("aten::mul", [32, 64]) if number % 2 else ("aten::sum", [8, 64])
            rows.append(operator(name, begin, begin + 5 * US, Input_Dims=[dims]))
            if is_marked and number % 2:
                rows.append(span(f"{SAME_TENSORS} 0", begin - US, begin + 6 * US))
    return rows


@pytest.mark.parametrize("is_marked", [True, False])
def test_work_that_is_computed_again_is_named_before_the_overhead_that_it_makes(*, is_marked: bool) -> None:
    again = trace_of(overhead(2, is_marked=is_marked), profkit_places_of="rank0")
    _, verdict = triage_trace(replace(trace_of(overhead(8, is_marked=False)), again=again))
    assert (verdict.findings[0].id == "work.repeated") is is_marked
    assert ("the same is computed 26 times in a step" in verdict.headline) is is_marked


def test_the_function_that_computes_it_again_is_named() -> None:
    frames = [span("torch/profiler/p.py(1): start", 1, 2, cat="python_function")]
    for step in range(2):
        begin, end = BASE + step * STEP, BASE + (step + 1) * STEP
        frames.append(span("train.py(30): si_sdr", begin + 10, end - 10, cat="python_function"))
    rows = [*overhead(2, is_marked=True), *frames]
    again = trace_of(rows, profkit_places_of="rank0", profkit_user_files=["train.py"])
    one = finding_in(replace(trace_of(overhead(8, is_marked=False)), again=again), "work.repeated")
    assert one.title == "si_sdr() computes the same 26 times in a step, of tensors that do not change"
