"""A layer that computes the same again and again: known by what the capture marked in steps that it recorded later."""

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.analyzers.patterns.thrown import PARAMETRIZATION, SAME_TENSORS
from profkit.testing import Row, trace_of
from tests.drawing import NODE, US, at, finding_in, frame, ranged, steps_of, triaged

N_CALLS = 4


def calls(*marked: int, name: str = SAME_TENSORS) -> Any:
    """In a step of 1 ms four calls of a layer of 50 us each, another product, and the backward passes of the four."""

    def drawn(step: int) -> list[Row]:
        rows = [at(step, "aten::mm", 400, 500, Input_Dims=[[9, 9], [9, 9]])]
        for call in range(N_CALLS):
            begin, back, number = call * 100, 500 + call * 100, step * N_CALLS + call
            dims = [[32, 64], [16, 64], [16]]
            rows.append(at(step, "aten::linear", begin, begin + 50, Input_Dims=dims, Sequence_number=number))
            rows.append(at(step, NODE + "AddmmBackward0", back, back + 100, Sequence_number=number, Fwd_thread_id=1))
            rows += [ranged(step, name.format(call), begin - 1, begin + 51)] if call in marked else []
        return rows

    return drawn


def found(*marked: int, name: str = SAME_TENSORS) -> Any:
    again = trace_of(steps_of(2, calls(*marked, name=name)), profkit_places_of="rank0")
    return finding_in(replace(trace_of(steps_of(8, calls())), again=again), "work.repeated")


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
    what = "weight by the hook of weight_norm"
    assert one.title == f"the parametrization of {what} is computed 4 times in a step, of the same tensors"
    assert one.fix.startswith("put torch.nn.utils.parametrizations.weight_norm in its place, and with")


def test_calls_of_other_tensors_are_needed() -> None:
    assert found() is None


def test_what_is_computed_twice_is_computed_once_too_often() -> None:
    """A model that scores each pair of three answers reads each answer twice."""
    one = found(1, 2, 3, name=SAME_TENSORS + " {}")
    assert one.title.startswith("a layer computes the same 2 times in a step")
    assert one.recoverable_ns == (250 + 3 * 100) * US


def overhead(n_steps: int, *more: Any) -> list[Row]:
    """Steps of 1 ms: an operator of 5 us every 20 us, every other one on the same tensors."""
    small = lambda step: [  # noqa: E731
        at(step, name, begin, begin + 5, Input_Dims=[dims])
        for start in range(0, 1000, 40)
        for begin, name, dims in ((start, "aten::sum", [8, 64]), (start + 20, "aten::mul", [32, 64]))
    ]
    return steps_of(n_steps, small, *more)


def marks(step: int) -> list[Row]:
    return [ranged(step, f"{SAME_TENSORS} 0", begin - 1, begin + 6) for begin in range(20, 1000, 40)]


@pytest.mark.parametrize("is_marked", [True, False])
def test_work_that_is_computed_again_is_named_before_the_overhead_that_it_makes(*, is_marked: bool) -> None:
    again = trace_of(overhead(2, *[marks] * is_marked), profkit_places_of="rank0")
    verdict = triaged(replace(trace_of(overhead(8)), again=again)).verdict
    assert (verdict.findings[0].id == "work.repeated") is is_marked
    assert ("the same is computed 26 times in a step" in verdict.headline) is is_marked


def test_the_function_that_computes_it_again_is_named() -> None:
    frames = lambda step: [frame(step, "train.py(30): si_sdr", 0.01, 999.99)]  # noqa: E731
    rows = [frame(0, "torch/profiler/p.py(1): start", -2, -1), *overhead(2, marks, frames)]
    again = trace_of(rows, profkit_places_of="rank0", profkit_user_files=["train.py"])
    one = finding_in(replace(trace_of(overhead(8)), again=again), "work.repeated")
    assert one.title == "si_sdr() computes the same 26 times in a step, of tensors that do not change"
