"""Small layers called one by one: those of a list that do not wait for each other are named, a chain of them is not."""

from typing import Any

import pytest

from profkit.testing import Row, operator, span
from tests.drawing import BASE, US, finding_in, in_steps

STEP, N_STEPS = 2000 * US, 4


def steps(
    n: int, layer: str, *, column: str = "aten::select", each: int = 5, called: tuple[int, ...] = ()
) -> list[Row]:
    """Steps of 2 ms: a product, then layers of one list, each with what takes its column before it."""

    def drawn(at: int, _: int) -> list[Row]:
        rows = [span("train.py(44): train", at, at + STEP, cat="python_function")]
        rows.append(operator("aten::mm", at + 1000 * US, at + 1900 * US))
        for place, module in enumerate(called or range(n)):
            begin, call = at + place * (each + 5) * US, f"nn.Module: Layer_{module}"
            rows.append(operator(column, begin, begin + US))
            rows.append(span(call, begin + 2 * US, begin + (4 + each) * US, cat="python_function"))
            rows.append(operator(layer, begin + 3 * US, begin + (3 + each) * US))
        return rows

    return in_steps(N_STEPS, STEP, drawn, begin_ns=BASE)


def found(rows: list[Row]) -> Any:
    names = {f"Layer_{number}": f"model.columns.{number}" for number in range(100)}
    return finding_in(rows, "host.layer_loop", profkit_modules=names, profkit_user_files=["train.py"])


@pytest.mark.parametrize(
    "rows",
    [steps(60, "aten::embedding"), steps(60, "aten::embedding", column="aten::relu"), steps(60, "aten::linear")],
    ids=["embeddings", "behind any operator", "linear layers of columns"],
)
def test_layers_of_a_list_that_do_not_wait_for_each_other_could_be_one_operation(rows: list[Row]) -> None:
    one = found(rows)
    assert one.fraction == pytest.approx(0.3, rel=0.02)
    assert one.recoverable_ns == pytest.approx(0.75 * 0.3 * STEP, rel=0.02)


@pytest.mark.parametrize(
    "rows",
    [
        steps(60, "aten::linear", column="aten::relu"),
        steps(12, "aten::embedding"),
        steps(10, "aten::embedding", each=80),
        steps(60, "aten::embedding", called=(0, 1) * 30),
        steps(60, "aten::conv2d"),
    ],
    ids=["a chain", "few", "long ones", "the same two again", "other layers"],
)
def test_layers_that_wait_for_each_other_or_are_few_are_needed_as_they_are(rows: list[Row]) -> None:
    assert found(rows) is None
