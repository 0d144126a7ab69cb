"""Work on equal matrices in memory of their own: known by what the capture marked in steps that it recorded later."""

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.testing import Row, trace_of
from tests.drawing import NODE, US, at, finding_in, frame, ranged, steps_of

MARK = "profkit: equal matrices, 512, {}"
SIZE, ONE, ROWS = (512, 32, 32), (32, 32), (512, 32, 1)
STRIDES = {SIZE: [1024, 32, 1], ONE: [32, 1], ROWS: [32, 1, 1], (512, 32, 64): [2048, 64, 1]}
PRODUCT = ("aten::matmul", ONE, SIZE)
MADE = {0: "result", 1: "result"}


def passes(
    marked: dict[int, str], named: tuple[Any, ...] = PRODUCT, *, n: int = 1, each: int = 200, small: int = 0
) -> Any:
    """In a step of 1 ms, `n` times an operator and a sum of 50 us; the backward nodes of the last take 100 us each."""

    def drawn(step: int) -> list[Row]:
        rows, number = [], 10 * step
        for begin in range(20, 20 + 300 * n, 300):
            for place, (name, *dims, length) in enumerate(((*named, each), ("aten::add", SIZE, SIZE, 50))):
                start = begin + 220 * place
                told = {"Input_Strides": [STRIDES[one] for one in dims], "Sequence_number": number + place}
                rows.append(at(step, name, start, start + length, dims, Fwd_thread_id=0, **told))
                if place in marked:
                    rows.append(ranged(step, MARK.format(marked[place]), start + length + 1, start + length + 2))
        for place in (0, 1):
            begin = 900 - 100 * place
            taken = {"Sequence_number": number + place, "Fwd_thread_id": 1}
            rows.append(at(step, NODE + f"A{place}Backward0", begin, begin + 100, **taken))
        return rows + [at(step, "aten::mul", 300 + 7 * k, 305 + 7 * k) for k in range(small)]

    return drawn


def found(marked: dict[int, str], named: Any = PRODUCT, *, again: dict[str, Any] | None = None, **how: Any) -> Any:
    later = trace_of(steps_of(2, passes(marked, named, **how, **(again or {}))), profkit_places_of="rank0")
    return finding_in(replace(trace_of(steps_of(8, passes({}, named, **how))), again=later), "work.one_matrix")


def test_all_but_one_of_the_equal_matrices_are_spared_and_what_lies_on_the_same_chain() -> None:
    one = found(MADE)
    assert one.title == "torch.matmul works on 512 copies of one matrix"
    assert one.evidence[0].value == 8 * 450 * US
    assert one.recoverable_ns == pytest.approx(450 * US * 511 / 512, rel=1e-3)
    assert one.fix.startswith("leave out the expand() or repeat()")


@pytest.mark.parametrize(
    "named",
    [
        ("aten::matmul", SIZE, ROWS),
        ("aten::linalg_solve_triangular", SIZE, ROWS),
    ],
)
def test_a_product_or_solve_of_equal_matrices_with_a_vector_each_keeps_its_share(named: tuple[Any, ...]) -> None:
    assert found({0: "0"}, named).recoverable_ns == pytest.approx(300 * US * 0.9, rel=1e-3)


def test_of_a_factor_the_matrix_comes_last() -> None:
    named = ("aten::cholesky_solve", ROWS, SIZE)
    assert found({0: "1"}, named).recoverable_ns == pytest.approx(300 * US * 0.9, rel=1e-3)
    assert found({0: "0"}, named) is None


def test_the_fixed_cost_of_an_operator_stays() -> None:
    one = found({0: "result"}, each=10, small=60)
    assert one is not None
    assert one.recoverable_ns == pytest.approx((110 - 2 * 5) * US, rel=0.01)


def test_two_passes_in_a_step_are_told_where_both_are_marked() -> None:
    """Which of them a timed one is nobody knows: the step that was recorded later was evaluated as well."""
    assert found(MADE, again={"n": 2}) is not None


def test_the_line_with_most_of_it_is_named() -> None:
    frames = lambda step: [frame(step, "train.py(30): forward", 0.01, 999.99)]  # noqa: E731
    rows = [frame(0, "torch/profiler/p.py(1): start", -2, -1), *steps_of(2, passes(MADE), frames)]
    again = trace_of(rows, profkit_places_of="rank0", profkit_user_files=["train.py"])
    one = finding_in(replace(trace_of(steps_of(8, passes({}))), again=again), "work.one_matrix")
    assert one.title == "torch.matmul works on 512 copies of one matrix (most at forward() (train.py:30))"


@pytest.mark.parametrize(
    ("marked", "named"),
    [
        ({}, PRODUCT),
        ({1: "result"}, PRODUCT),  # no linear algebra
        ({0: "0"}, ("aten::matmul", SIZE, (512, 32, 64))),  # many columns
        ({0: "0"}, ("aten::linalg_solve", SIZE, (512, 32, 64))),
        ({0: "1"}, ("aten::matmul", SIZE, ROWS)),  # the vectors are equal
    ],
)
def test_other_matrices_are_worked_on_for_each_sample(marked: dict[int, str], named: tuple[Any, ...]) -> None:
    assert found(marked, named) is None


def test_one_of_two_passes_that_is_marked_is_not_told() -> None:
    def half(step: int) -> list[Row]:
        return [*passes(MADE)(step), *(row for row in passes({}, n=2)(step) if row not in passes({})(step))]

    again = trace_of(steps_of(2, half), profkit_places_of="rank0")
    assert finding_in(replace(trace_of(steps_of(8, passes({}))), again=again), "work.one_matrix") is None
