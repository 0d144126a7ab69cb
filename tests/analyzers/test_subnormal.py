"""Arithmetic on subnormal numbers: slow at the same passes of a loop in each step, where the capture saw such."""

from typing import Any

import pytest

from profkit.testing import Row, operator
from tests.drawing import finding_in, in_steps

US = 1000
BASE, STEP = 10**9, 4000 * US
N = 40
TOLD = {"flushes": False, "kinds": [{"of": "what Cell gives", "n_found": 9, "n_looks": 30}]}


def passes(*slow_in: range, last: str = "aten::sub") -> Any:
    """The rows of a step: 40 passes of three operators of 3 us, `add` of 40 us in the passes of the step's range."""

    def drawn(at: int, number: int) -> list[Row]:
        rows = []
        for one in range(N):
            length = 40 if one in slow_in[number % len(slow_in)] else 3
            for place, (name, spent) in enumerate((("aten::mm", 3), ("aten::add", length), (last, 3))):
                begin = at + (one * 90 + (0, 4, 50)[place]) * US
                rows.append(operator(name, begin, begin + spent * US))
        return rows

    return drawn


def found(*slow_in: range, told: Any = TOLD, n_steps: int = 4) -> Any:
    return finding_in(
        in_steps(n_steps, STEP, passes(*slow_in), begin_ns=BASE), "work.subnormal", profkit_subnormals=told
    )


def test_what_slow_passes_take_more_is_spared() -> None:
    one = found(range(20, 40))
    assert one.recoverable_ns == pytest.approx(20 * 37 * US, rel=0.01)
    assert "what Cell gives" in one.title
    assert "set_flush_denormal(True)" in one.fix


@pytest.mark.parametrize(
    "told",
    [
        None,
        3,
        {**TOLD, "flushes": True},
        {**TOLD, "kinds": []},
        {**TOLD, "kinds": [{"of": "x", "n_found": 0}]},
        {"kinds": 3},
    ],
)
def test_a_larger_tensor_is_no_subnormal_number(told: Any) -> None:
    assert found(range(20, 40), told=told) is None


@pytest.mark.parametrize(
    ("slow_in", "n_steps"),
    [
        ((range(0),), 4),  # none is slow
        ((range(N),), 4),  # all are: nothing says what they would take
        ((range(20), range(20, 40)), 4),  # others in each step: it had no core
        ((range(20, 40),), 1),
        ((range(38, 40),), 4),
    ],
)
def test_passes_that_tell_nothing(slow_in: tuple[range, ...], n_steps: int) -> None:
    assert found(*slow_in, n_steps=n_steps) is None
