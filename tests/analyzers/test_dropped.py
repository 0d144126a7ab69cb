"""Gradients of weights that `zero_grad` drops before a step: of attacks, and healthy twins that look like these."""

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.testing import Row
from tests.drawing import ACCUMULATES, BASE, NODE, STEP, US, at, finding_in, frame, ranged, steps_of

N_STEPS = 5
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
        at(step, ACCUMULATES, start_us + 116, start_us + 126),
        at(step, NODE + "TBackward0", start_us + 127, start_us + 128, Sequence_number=sequence, Fwd_thread_id=1),
        at(step, ACCUMULATES, start_us + 129, start_us + 139),
    ]


def attack(step: int, *, has_both: bool = True, clears_us: float = 290) -> list[Row]:
    """Two passes, `zero_grad`, the pass that trains, and the optimizer's step."""
    return [
        *one_pass(step, 0, 0, has_both=has_both),
        *one_pass(step, 1, 140, has_both=has_both),
        ranged(step, CLEAR, clears_us, clears_us + 2),
        *one_pass(step, 2, 300),
        ranged(step, "Optimizer.step#SGD.step", 500, 520),
        at(step, "aten::_fused_sgd_", 505, 515),
    ]


def found(*more: Any, first: Any = attack) -> Any:
    """The finding in steps that also have these rows."""
    return finding_in(steps_of(N_STEPS, first, *more), "work.dropped_gradients")


def test_gradients_that_an_attack_leaves_for_zero_grad_are_counted_in_all_its_passes() -> None:
    one = found()
    assert one.title == "2 of 3 backward passes compute gradients of weights that zero_grad drops"
    assert one.evidence[0].value == N_STEPS * 2 * 120 * US
    assert one.recoverable_ns == 2 * (50 + 20) * US, "half of what makes the gradient of the input as well stays"


def test_the_line_is_that_which_calls_the_pass() -> None:
    def frames(step: int) -> list[Row]:
        calls = [("train.py(9): attack", 0.5, 285), ("train.py(30): train", 295, 600)]
        calls += [("torch/_tensor.py(5): backward", low, high) for low, high in ((12, 139.5), (152, 280), (312, 440))]
        return [frame(step, *call) for call in calls]

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


def in_a_closure(step: int) -> list[Row]:
    """The attack, of which all is called by the optimizer."""
    begin = BASE + step * STEP + US // 4
    return [replace(row, start_ns=begin) if row.name.startswith("Optimizer.step") else row for row in attack(step)]


@pytest.mark.parametrize(
    "made",
    [
        (attack, lambda step: [at(step, "aten::mul_", 280 + place, 280.5 + place) for place in range(2)]),
        (attack, lambda step: [at(step, "aten::_foreach_norm", 281, 284)]),
        (lambda step: attack(step, clears_us=600),),
        (lambda step: attack(step, has_both=False),),
        (attack, lambda step: [ranged(step, "Optimizer.step#SGD.step", 530, 540)]),
        (in_a_closure,),
    ],
    ids=[
        *("SAM reads each before it is cleared", "SAM reads all at once", "gradients that add up", "a frozen model"),
        *("of a generator, then both step", "a closure"),
    ],
)
def test_gradients_that_may_be_used_are_not_dropped(made: Any) -> None:
    first, *more = made
    assert found(*more, first=first) is None
