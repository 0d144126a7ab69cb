"""Gradients of weights that `zero_grad` drops before a step: of attacks, and healthy twins that look like these."""

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.testing import Row, span
from tests.analyzers.test_forward_work import BASE, N_STEPS, NODE, STEP, US, at
from tests.drawing import finding_in

GRADIENT = NODE + "torch::autograd::AccumulateGrad"
CLEAR = "Optimizer.zero_grad#SGD.zero_grad"


def one_pass(step: int, number: int, start_us: float, *, has_both: bool = True) -> list[Row]:
    """A layer's forward product and its backward node of 100 us, with the gradients of a bias and a weight."""
    sequence = 100 * step + number
    second = [at(step, "aten::mm", start_us + 60, start_us + 90)] if has_both else []
    return [
        at(step, "aten::linear", start_us, start_us + 10, Sequence_number=sequence, Fwd_thread_id=0),
        at(step, NODE + "AddmmBackward0", start_us + 15, start_us + 115, Sequence_number=sequence, Fwd_thread_id=1),
        at(step, "aten::mm", start_us + 20, start_us + 50),
        *second,
        at(step, GRADIENT, start_us + 116, start_us + 126),
        at(step, NODE + "TBackward0", start_us + 127, start_us + 128, Sequence_number=sequence, Fwd_thread_id=1),
        at(step, GRADIENT, start_us + 129, start_us + 139),
    ]


def attack(step: int, *, has_both: bool = True, clears_us: float = 290) -> list[Row]:
    """Two passes, `zero_grad`, the pass that trains, and the optimizer's step."""
    begin = BASE + step * STEP
    return [
        span(f"ProfilerStep#{step}", begin, begin + STEP),
        *one_pass(step, 0, 0, has_both=has_both),
        *one_pass(step, 1, 140, has_both=has_both),
        span(CLEAR, begin + round(clears_us * US), begin + round((clears_us + 2) * US)),
        *one_pass(step, 2, 300),
        span("Optimizer.step#SGD.step", begin + 500 * US, begin + 520 * US),
        at(step, "aten::_fused_sgd_", 505, 515),
    ]


def found(*more: Any, first: Any = attack) -> Any:
    """The finding in steps that also have these rows."""
    rows = [row for step in range(N_STEPS) for each in (first, *more) for row in each(step)]
    return finding_in(rows, "work.dropped_gradients")


def test_gradients_that_an_attack_leaves_for_zero_grad_are_counted_in_all_its_passes() -> None:
    one = found()
    assert one.title == "2 of 3 backward passes compute gradients of weights that zero_grad drops"
    assert one.evidence[0].value == N_STEPS * 2 * 120 * US
    assert one.recoverable_ns == 2 * (50 + 20) * US, "half of what makes the gradient of the input as well stays"


def test_the_line_is_that_which_calls_the_pass() -> None:
    def frames(step: int) -> list[Row]:
        begin = BASE + step * STEP
        calls = [("train.py(9): attack", 0.5, 285), ("train.py(30): train", 295, 600)]
        calls += [("torch/_tensor.py(5): backward", low, high) for low, high in ((12, 139.5), (152, 280), (312, 440))]
        return [
            span(name, begin + round(low * US), begin + round(high * US), cat="python_function")
            for name, low, high in calls
        ]

    place = found(frames).places[0].place
    assert (place.function, place.call) == ("attack", "backward()")


def test_two_passes_behind_both_forward_ones_are_two() -> None:
    """Autograd goes back in time within a pass: a later forward operator begins another."""

    def together(step: int) -> list[Row]:
        both = [row for row in attack(step) if row.name == "aten::linear"]
        early = replace(both[1], start_ns=both[0].end_ns, end_ns=both[0].end_ns + 2 * US)
        return [early, *(row for row in attack(step) if row != both[1])]

    one = found(first=together)
    assert one.title == "2 of 3 backward passes compute gradients of weights that zero_grad drops"
    assert one.evidence[0].value == N_STEPS * 2 * 120 * US


def reads(step: int) -> list[Row]:
    """What takes each gradient before it is cleared."""
    return [at(step, "aten::mul_", 280 + place, 280.5 + place) for place in range(2)]


def reads_at_once(step: int) -> list[Row]:
    """The same by one operator."""
    return [at(step, "aten::_foreach_norm", 281, 284)]


@pytest.mark.parametrize("more", [reads, reads_at_once])
def test_gradients_that_may_be_read_before_are_used(more: Any) -> None:
    """SAM climbs by a pass's gradients, or by the sum of several, then clears them."""
    assert found(more) is None


def test_passes_whose_gradients_add_up_are_used() -> None:
    assert found(first=lambda step: attack(step, clears_us=600)) is None


def test_an_attack_on_a_frozen_model_makes_no_gradient_of_weights() -> None:
    assert found(first=lambda step: attack(step, has_both=False)) is None


def test_one_optimizer_that_clears_does_not_drop_what_is_another_ones() -> None:
    """The discriminator's pass, the generator's zero_grad and pass, then both step."""
    both = lambda step: [  # noqa: E731
        span("Optimizer.step#SGD.step", BASE + step * STEP + 530 * US, BASE + step * STEP + 540 * US),
    ]
    assert found(both) is None


def test_a_closure_that_an_optimizer_calls_uses_its_gradients() -> None:
    inside = lambda step: [  # noqa: E731
        replace(row, start_ns=BASE + step * STEP + US // 4) if row.name.startswith("Optimizer.step") else row
        for row in attack(step)
    ]
    assert found(first=inside) is None
