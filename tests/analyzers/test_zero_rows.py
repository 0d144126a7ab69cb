"""Rows on which no loss depends, and rows without a target: known by what the capture marked in the backward pass."""

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.testing import Row, operator, span, trace_of
from tests.drawing import finding_in, in_steps

US = 1000
BASE, STEP = 10**9, 1000 * US
NODE = "autograd::engine::evaluate_function: {}Backward0"
MARK = "profkit: zero rows of node {}, {} %"
NO_TARGET = "profkit: rows without a target of node {}, {} %"


def drawn(
    *,
    share: int = 0,
    of: int = 1,
    beside: str = "",
    unknown: bool = False,
    layer: str = "aten::linear",
    mark: str = MARK,
) -> Any:
    """The rows of a step: a layer of 100 us whose node takes 200 us, another one, and a node without a number."""

    def rows(at: int, number: int) -> list[Row]:
        first = 3 * number
        dims = {"Input_Dims": [[512, 64], [16, 64], [16]]}
        made = [operator(layer, at, at + 100 * US, Sequence_number=first + 1, **dims)]
        made.append(operator("aten::mul", at + 100 * US, at + 150 * US, Sequence_number=first + 2, **dims))
        for place, name in ((2, "Mul"), (1, "Addmm")):
            begin = at + (500 - 200 * (place - 1)) * US
            numbers = {"Sequence_number": first + place, "Fwd_thread_id": 1}
            made.append(operator(NODE.format(name), begin, begin + 200 * US, **numbers))
            if share and place == of:
                made.append(span(mark.format(first + place, share), begin + US, begin + 2 * US))
        if unknown:
            made.append(operator(NODE.format("MmBackward"), at + 800 * US, at + 900 * US))
            made.append(operator("aten::mm", at + 800 * US, at + 900 * US, Input_Dims=[[64, 512], [512, 9]]))
        if beside:
            made.append(operator(NODE.format(beside), at + 750 * US, at + 760 * US, Sequence_number=-1))
        return made

    return rows


def found(kind: str = "work.zero_rows", **how: Any) -> Any:
    timed = {key: value for key, value in how.items() if key in ("unknown", "beside", "layer")}
    trace = trace_of(in_steps(8, STEP, drawn(**timed), begin_ns=BASE))
    again = trace_of(in_steps(2, STEP, drawn(**how), begin_ns=BASE), profkit_places_of="rank0")
    return finding_in(replace(trace, again=again), kind)


def test_zero_rows_cost_their_share_of_the_layer_and_its_node() -> None:
    one = found(share=75)
    assert one.recoverable_ns == pytest.approx(0.75 * 300 * US, rel=0.01)
    assert one.title == "about 75 % of the rows that layers compute have no influence on the loss"


def test_a_gradient_that_is_differentiated_has_nodes_of_no_known_operator() -> None:
    assert found(share=75, unknown=True).recoverable_ns == pytest.approx(0.75 * 400 * US, rel=0.01)


@pytest.mark.parametrize("layer", ["aten::linalg_vector_norm", "aten::bmm"])
def test_each_row_of_a_norm_and_of_a_product_is_computed_alone(layer: str) -> None:
    assert found(share=75, layer=layer) is not None


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"share": 75, "of": 7},
        {"share": 75, "beside": "Amax"},
        {"share": 10},
        {"share": 75, "layer": "aten::_fft_r2c"},
    ],
)
def test_rows_that_count_are_needed(how: dict[str, Any]) -> None:
    assert found(**how) is None


def test_rows_without_a_target_cost_their_share_of_the_output_layer_and_its_node() -> None:
    one = found("work.no_target", share=87, mark=NO_TARGET)
    assert one.recoverable_ns == pytest.approx(0.87 * 300 * US, rel=0.01)
    assert one.title == "about 87 % of the rows of the output layer have no target: the loss ignores them"
    assert found(share=87, mark=NO_TARGET) is None


@pytest.mark.parametrize("how", [{}, {"share": 25, "mark": NO_TARGET}, {"share": 75}])
def test_few_rows_without_a_target_are_left(how: dict[str, Any]) -> None:
    assert found("work.no_target", **how) is None
