"""fp32 among half precision on a CPU: named where half precision is meant, silent where fp32 is usual."""

from typing import Any

import pytest

from tests.drawing import US, at, finding_in, steps_of, triaged

N_STEPS = 8
HALF, FULL = "c10::BFloat16", "float"
WEIGHT = [64, 128]


def product(start_us: int, end_us: int, kind: str, *, name: str = "aten::mm", dims: Any = None) -> Any:
    """A product in each step, its second factor a weight."""
    sizes = dims or [[32, 128], WEIGHT[::-1]]
    types = {"Input_Dims": sizes, "Input_type": [kind] * len(sizes), "Concrete_Inputs": [""] * len(sizes)}
    return lambda step: [at(step, name, start_us, end_us, **types)]


def cast(start_us: int, before: str, after: str, dims: list[int]) -> Any:
    """A conversion of 20 us in each step."""
    types = {"Input_Dims": [dims, []], "Input_type": [before, "Scalar"], "Concrete_Inputs": ["", after]}
    return lambda step: [at(step, "aten::_to_copy", start_us, start_us + 20, **types)]


def fallback(*made: Any, **device: Any) -> Any:
    """The finding in the triage of steps of 1 ms with these rows; None where it is silent."""
    told = {"profkit_device": {"type": "cpu", **device}} if device else {}
    return finding_in(steps_of(N_STEPS, *made), "precision.fallback", **told)


ATTENTION = "aten::_scaled_dot_product_flash_attention_for_cpu"


def test_linear_layers_in_fp32_beside_attention_in_half_precision_are_a_fallback() -> None:
    one = fallback(product(0, 600, FULL), product(600, 700, HALF, name=ATTENTION, dims=[[1, 4, 32, 32]] * 3))
    assert one.title == "some matrix products fall back to fp32"
    assert "85.7 % of matrix-product time is in fp32, about 600 us per step" in one.evidence[0].statement
    assert one.recoverable_ns == 0
    assert "does not say whether this CPU multiplies in bf16" in one.evidence[-1].statement


def test_what_it_saves_is_said_where_the_cpu_has_units_for_it() -> None:
    work = (product(0, 600, FULL), product(600, 700, HALF))
    assert fallback(*work, has_bf16=True).recoverable_ns == 562_500  # 600 us less 1/16 of it
    without = fallback(*work, has_bf16=False)
    assert without.recoverable_ns == 0
    assert "bf16 is not faster here" in without.evidence[-1].statement
    assert "train in fp32 throughout" in without.fix
    assert fallback(*work, has_bf16="yes").evidence[-1].statement.startswith("the capture does not say")


def test_weights_in_half_precision_that_are_converted_for_each_product_are_a_fallback() -> None:
    one = fallback(product(100, 700, FULL), cast(20, HALF, "6", WEIGHT))
    assert one.title == "weights in half precision are multiplied in fp32"
    assert "100.0 % of the fp32 products' time" in one.evidence[1].statement


@pytest.mark.parametrize(
    "work",
    [
        [product(0, 700, FULL)],
        [product(0, 700, HALF)],
        [product(100, 700, FULL), cast(20, HALF, "6", [8, 16, 192])],  # an input, as features kept in half precision
        [product(100, 700, FULL), cast(20, FULL, "15", WEIGHT)],  # gradients sent in half precision
        [product(100, 110, FULL), product(200, 900, HALF)],  # one small product: a router, a norm
        [product(100, 110, FULL), product(200, 210, HALF)],  # little of the window
    ],
    ids=["fp32 throughout", "bf16 throughout", "an input", "gradients", "a router", "little work"],
)
def test_healthy_twins(work: list[Any]) -> None:
    assert fallback(*work) is None


def test_an_input_in_half_precision_that_its_gradient_multiplies_is_not_most_of_the_work() -> None:
    """A table of features, converted once: in backward it is the second factor of the first layer's product alone."""
    table = [32, 500]
    first = product(100, 200, FULL, dims=[[64, 32], table])
    assert fallback(cast(20, HALF, "6", table), first, product(200, 700, FULL)) is None


def test_operators_around_a_product_do_not_count_twice() -> None:
    """Under autocast aten::linear is called on fp32 and multiplies in bf16."""
    assert fallback(product(0, 700, FULL, name="aten::linear"), product(50, 650, HALF)) is None


def test_without_types_it_says_how_to_get_them() -> None:
    rank = triaged(steps_of(N_STEPS, lambda step: [at(step, "aten::mm", 0, 500)])).rank
    (skipped,) = (one for one in rank.skipped if one.analyzer == "precision")
    assert "profkit capture --shapes" in skipped.how_to_get


def double(*made: Any) -> Any:
    """`precision.fp64` in the triage of steps of 1 ms with these rows; None where it is silent."""
    return finding_in(steps_of(N_STEPS, *made), "precision.fp64")


def test_operators_on_double_take_at_least_twice_as_long_as_on_float() -> None:
    one = double(product(100, 800, "double"))
    assert one.evidence[0].value == N_STEPS * 700 * US
    assert one.recoverable_ns == round(700 * US * (1 - 1 / 2.2))
    assert "the first operator of a step that is given float64 is aten::mm" in one.evidence[1].statement
    slower = double(product(100, 800, "double", name="aten::slow_conv2d_forward", dims=[[8, 3, 9, 9], [4, 3, 3, 3]]))
    assert slower.recoverable_ns == round(700 * US * (1 - 1 / 6))


def test_doubles_beside_a_model_in_single_precision_are_no_models() -> None:
    one = double(product(0, 300, FULL), product(300, 800, "double", name="aten::mul"))
    assert "becomes float64" in one.evidence[2].statement
    assert one.most_recoverable_ns == 1.25 * 500 * US, "all of it, and what a cause takes beyond its time"
    assert "where they are made" in one.fix
    assert "model" not in one.fix


def test_complex128_is_double_precision_and_complex64_is_not() -> None:
    wave, single = "c10::complex<double>", "c10::complex<float>"
    fft = product(300, 800, wave, name="aten::_fft_c2c")
    one = double(product(0, 300, FULL), fft, product(800, 900, "double", name="aten::sum"))
    assert one.title == "operators compute in double precision, on complex128"
    assert one.evidence[0].value == N_STEPS * 600 * US
    assert "no product of matrices is in complex128" in one.evidence[2].statement
    assert ".to(torch.complex64)" in one.fix
    assert ".float()" not in one.fix + one.proof
    assert double(product(0, 300, FULL), product(300, 800, single, name="aten::_fft_c2c")) is None
    products = double(product(0, 300, FULL), product(300, 800, wave))
    assert len(products.evidence) == 2, "a product of matrices is among them"


def test_what_an_operator_calls_is_counted_once() -> None:
    one = double(product(100, 800, "double", name="aten::addmm"), product(200, 300, "double", name="aten::copy_"))
    assert one.evidence[0].value == N_STEPS * 700 * US


@pytest.mark.parametrize(
    "work",
    [
        [product(0, 700, FULL)],
        [product(0, 700, FULL), product(700, 900, "double", name="aten::mul", dims=[[], []])],
        [product(0, 700, FULL), product(700, 900, "double", name="aten::mul", dims=[[1], [1]])],
        [product(0, 700, FULL), product(700, 710, "double")],
    ],
    ids=["float", "numbers of Python", "single elements", "little"],
)
def test_work_that_is_not_in_double(work: list[Any]) -> None:
    assert double(*work) is None
