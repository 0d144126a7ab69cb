"""Products of which most is thrown away, and those beside them that are used."""

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.testing import Row, operator, span, trace_of
from tests.drawing import BASE, NODE, STEP, US, finding_in

N_STEPS = 6
VIEWS = ("UnsafeViewBackward0",)


def step_of(
    number: int,
    *,
    drop: str = "Select",
    giving: tuple[str, list[Any], list[str]] = ("aten::select_backward", [[8, 500]], ["", "[8, 20, 500]", "1", "-1"]),
    between: tuple[str, ...] = VIEWS,
    product: str = "Mm",
    gradient: tuple[int, ...] = (160, 500),
) -> list[Row]:
    """A layer of 200 us whose output a slice follows, and its backward: 20 us of zeros, views, 300 us of products."""
    at, sequence = BASE + number * STEP, 100 * number
    name, dims, concrete = giving
    rows = [
        span(f"ProfilerStep#{number}", at, at + STEP),
        operator("aten::linear", at + 10 * US, at + 210 * US),
        operator("aten::mm", at + 20 * US, at + 200 * US, Sequence_number=sequence, Fwd_thread_id=0),
    ]
    begin = at + 400 * US
    nodes = [f"{drop}Backward0", *between, f"{product}Backward0"]
    lasts = [20, *[1] * len(between), 300]
    for back, (node, us) in enumerate(zip(nodes, lasts, strict=True)):
        number_of = sequence + len(nodes) - 1 - back
        end = begin + us * US
        rows.append(operator(NODE + node, begin, end, Sequence_number=number_of, Fwd_thread_id=1))
        if back == 0:
            rows.append(operator(name, begin + US, end - US, Input_Dims=dims, Concrete_Inputs=concrete))
        if back == len(nodes) - 1:
            inner = {"Input_Dims": [[500, gradient[0]], list(gradient)], "Concrete_Inputs": ["", ""]}
            rows.append(operator("aten::mm", begin + US, end - US, **inner))
        begin = end
    return rows


def found(**kwargs: Any) -> Any:
    return finding_in([row for number in range(N_STEPS) for row in step_of(number, **kwargs)], "work.thrown_away")


def test_a_layer_for_all_positions_of_which_one_is_used() -> None:
    one = found()
    assert one.title == "a layer computes all rows, and 5 % of them are used"
    assert one.recoverable_ns == pytest.approx((200 + 321) * US * 0.95, rel=1e-3)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"giving": ("aten::select_backward", [[8, 20]], ["", "[8, 20, 500]", "2", "3"])},
        {"giving": ("aten::slice_backward", [[8, 12, 500]], ["", "[8, 20, 500]", "1", "0", "12", "1"])},
        {"between": ("AddBackward0", "UnsafeViewBackward0")},
        {"gradient": (90, 500)},
        {"product": "Embedding"},
        {"giving": ("aten::select_backward", [[8, 500]], ["", "", "1", "-1"])},
    ],
    ids=["columns", "most rows", "a residual", "another layer", "no product", "no size"],
)
def test_what_is_used_or_not_known_is_no_finding(kwargs: dict[str, Any]) -> None:
    assert found(**kwargs) is None


@pytest.mark.parametrize(
    ("drop", "giving"),
    [
        ("Index", ("aten::_index_put_impl_", [[8, 20, 500], [], [30, 500]], ["", "", "", "True", "True"])),
        ("IndexSelect", ("aten::index_add_", [[8, 20, 500], [], [1], [8, 1, 500]], ["", "1", "", "", "1"])),
    ],
)
def test_an_index_drops_rows_as_well(drop: str, giving: tuple[str, list[Any], list[str]]) -> None:
    assert found(drop=drop, giving=giving).title.startswith("a layer computes all rows")


def test_a_mask_that_keeps_other_rows_in_each_step_is_known_by_the_steps_recorded_once_more() -> None:
    """Their sizes differ, so the timed steps have none; what they have is of the product alone."""
    timed = trace_of([row for n in range(N_STEPS) for row in step_of(n, drop="Index", giving=_kept_of(None))])
    later = [row for n, rows in enumerate((24, 16)) for row in step_of(n, drop="Index", giving=_kept_of(rows))]
    one = finding_in(replace(timed, again=trace_of(later, profkit_places_of="rank0")), "work.thrown_away")
    assert one.title == "a layer computes all rows, and 15 % of them are used"


def _kept_of(n: int | None) -> tuple[str, list[Any], list[str]]:
    return "aten::_index_put_impl_", [[8, 20, 500], [], [n, 500]] if n else [], [""] * 5
