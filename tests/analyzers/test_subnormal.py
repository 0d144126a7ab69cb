"""Arithmetic on subnormal numbers: slow at the same passes of a loop, and products with what the capture has timed."""

from typing import Any

import pytest

from profkit.testing import Row, operator
from tests.analyzers.test_spared import N_STEPS, steps
from tests.analyzers.test_whole_run import RUN, UNKNOWN
from tests.drawing import at, finding_in, in_steps, triaged

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


def test_what_a_slow_operator_calls_is_counted_once() -> None:
    """A mean of 41 us, 10 us of usual numbers, most of it in its sum: 39 us, else 2 us."""

    def drawn(begin: int, _: int) -> list[Row]:
        rows = []
        for one in range(N):
            whole, inner = (41, 39) if one >= N // 2 else (10, 2)
            for name, spent in (("aten::mean", whole), ("aten::sum", inner)):
                at_ns = begin + (one * 90 + (name == "aten::sum")) * US
                rows.append(operator(name, at_ns, at_ns + spent * US))
        return rows

    one = finding_in(in_steps(4, STEP, drawn, begin_ns=BASE), "work.subnormal", profkit_subnormals=TOLD)
    assert one.recoverable_ns == pytest.approx(20 * 31 * US, rel=0.01)


def test_they_are_why_a_run_becomes_slower() -> None:
    run = {**RUN, "n_long": 0, "last_ns": 41 * 10**6, "slower": UNKNOWN}
    rows = in_steps(4, STEP, passes(range(20, 40)), begin_ns=BASE)
    unknown, known = (triaged(rows, profkit_run=run, profkit_subnormals=told).verdict for told in (None, TOLD))
    assert (unknown.confidence, known.confidence) == (0.7, 0.97)
    grown = {**run, "last_ns": 64 * 10**6}
    assert triaged(rows, profkit_run=grown, profkit_subnormals=TOLD).verdict.confidence == 0.7, (
        "they have less than half"
    )


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


SHAPE = [8, 300, 384]
MADE = {"of": "what Linear takes", "shape": SHAPE, "flop_per_s": 2 * 10**12, "flop_per_s_of_zeros": 2 * 10**13}


def multiplied(step: int, factor: int = 384, us: int = 200) -> list[Row]:
    """Forward and weight gradient of a layer of 0.47 GFLOP each, 2.4 TFLOP/s, and a product of other shapes."""
    return [
        at(step, "aten::addmm", 10, 10 + us, [(256,), (2400, factor), (factor, 256)]),
        at(step, "aten::mm", 420, 420 + us, [(256, 2400), (2400, factor)]),
        at(step, "aten::mm", 830, 930, [(2400, 256), (256, 64)]),
    ]


def products(made: Any = MADE, *, flushes: bool = False, **drawn: int) -> Any:
    told = {"flushes": flushes, "kinds": [], "products": made if made == 3 else [made]}
    return finding_in(steps(lambda step: multiplied(step, **drawn)), "work.subnormal", profkit_subnormals=told)


def test_products_with_what_is_subnormal_take_the_part_of_zeros() -> None:
    one = products()
    assert (
        one.title == "products with what Linear takes take 10.0 times as long: some of it is subnormal (below 1.2e-38)"
    )
    assert one.evidence[0].value == N_STEPS * 400 * US
    assert one.recoverable_ns == pytest.approx(2 * (200 - 23.6) * US, rel=0.01)  # 0.47 GFLOP at 20 TFLOP/s
    assert "set_flush_denormal(True)" in one.fix
    assert "x[x.abs() < 1e-30] = 0" in one.fix


def test_what_is_as_fast_as_zeros_stays_as_it_is() -> None:
    """Of calls of one shape some hold subnormal numbers, others do not: 1 TFLOP/s, and the 20 TFLOP/s of zeros."""

    def drawn(step: int) -> list[Row]:
        dims = [(256, 2400), (2400, 384)]
        return [at(step, "aten::mm", 10, 481, dims), at(step, "aten::mm", 500, 523.55, dims)]

    told = {"flushes": False, "kinds": [], "products": [MADE]}
    one = finding_in(steps(drawn), "work.subnormal", profkit_subnormals=told)
    assert one.recoverable_ns == pytest.approx(471 * 0.9 * US, rel=0.01)


@pytest.mark.parametrize(
    ("made", "drawn"),
    [
        (MADE, {"us": 0}),
        ({**MADE, "shape": [256]}, {}),  # that of a bias, which is added
        ({**MADE, "of": 10**5000, "shape": [1]}, {}),
        (MADE, {"flushes": True}),
        (MADE, {"factor": 383}),
        (MADE, {"us": 40}),  # as fast as with zeros
        ({**MADE, "shape": [2400, 383]}, {}),
        ({**MADE, "shape": ["a"]}, {}),
        ({**MADE, "shape": []}, {}),
        ({**MADE, "flop_per_s": 15 * 10**12}, {}),
        ({**MADE, "flop_per_s": "2"}, {}),
        ({**MADE, "flop_per_s": float("nan")}, {}),
        ({**MADE, "flop_per_s_of_zeros": float("inf")}, {}),
        (3, {}),
    ],
)
def test_other_products_are_not_slow_by_subnormal_numbers(made: Any, drawn: Any) -> None:
    assert products(made, **drawn) is None
