"""Forward work that nobody reads, gradients that nobody uses, loops over parameters: each, and healthy twins."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from profkit.model.documents.report import Bottleneck
from profkit.pipeline import triage_trace
from profkit.testing import Row, operator, span, trace_of
from tests.drawing import finding_in

BASE = 10**9
US = 1000
STEP = 1000 * US
N_STEPS = 5
NODE = "autograd::engine::evaluate_function: "


def at(step: int, name: str, start_us: float, end_us: float, **args: Any) -> Row:
    """An operator at that place of a step."""
    begin = BASE + step * STEP
    return operator(name, begin + round(start_us * US), begin + round(end_us * US), **args)


def sized(step: int, name: str, start_us: float, lasts_us: float, size: list[int]) -> Row:
    """The same with the size of the tensor that it takes."""
    return at(step, name, start_us, start_us + lasts_us, Input_Dims=[size], Input_type=["float"])


def training(step: int) -> list[Row]:
    """A forward product, its backward node with a gradient that is accumulated, and an optimizer's step."""
    begin, number = BASE + step * STEP, 10 * step
    return [
        span(f"ProfilerStep#{step}", begin, begin + STEP),
        at(step, "aten::linear", 10, 100, Sequence_number=number, Fwd_thread_id=0),
        at(step, NODE + "AddmmBackward0", 110, 250, Sequence_number=number, Fwd_thread_id=1),
        at(step, "aten::mm", 120, 240),
        at(step, NODE + "torch::autograd::AccumulateGrad", 255, 260),
        span("Optimizer.step#AdamW.step", begin + 270 * US, begin + 300 * US),
        at(step, "aten::_fused_adamw_", 275, 295),
    ]


def rows_with(*more: Any, first: Any = training) -> list[Row]:
    """Steps of 1 ms that also have these rows, each made for a step."""
    return [row for step in range(N_STEPS) for each in (first, *more) for row in each(step)]


def found(finding_id: str, *more: Any, **metadata: Any) -> Any:
    """The finding of that id in such steps; None where silent."""
    return finding_in(rows_with(*more), finding_id, **metadata)


def evaluation(step: int, **args: Any) -> list[Row]:
    """After the optimizer's step: a batch, and a model on it."""
    return [
        at(step, "aten::randn", 310, 390),
        at(step, "aten::linear", 400, 700, **args),
        at(step, "aten::argmax", 710, 740),
    ]


def test_a_forward_pass_without_gradients_is_named_with_its_time() -> None:
    one = found("work.unread_forward", evaluation)
    assert one.evidence[0].value == N_STEPS * 340 * US  # from its product on: the batch is another's
    assert one.recoverable_ns == 0  # without modules and lines nobody knows what it is for


def test_one_whose_graph_nobody_reads_is_told_to_make_none() -> None:
    numbered = lambda step: [  # noqa: E731
        at(step, "aten::linear", 400 + 100 * place, 490 + 100 * place, Sequence_number=10 * step + 1 + place)
        for place in range(3)
    ]
    one = found("work.unread_forward", numbered)
    assert one.fix.startswith("run it under torch.no_grad()")
    assert one.evidence[0].value == N_STEPS * 290 * US
    assert not found("work.unread_forward", evaluation).fix.startswith("run it under")


@pytest.mark.parametrize(
    "beside",
    [
        lambda step: [at(step, "aten::linear", 400, 440)],
        lambda step: [at(step, "aten::add_", 400, 700)],
        lambda step: [
            at(step, "aten::linear", 400, 600, Sequence_number=10 * step + 5, Fwd_thread_id=0),
            at(step, NODE + "AddmmBackward0", 610, 800, Sequence_number=10 * step + 5, Fwd_thread_id=1),
        ],
        lambda step: [
            at(step, "CheckpointFunction", 400, 700, Sequence_number=10 * step + 5, Fwd_thread_id=0),
            at(step, "aten::linear", 410, 690),
            at(step, NODE + "CheckpointFunctionBackward", 710, 900, Sequence_number=10 * step + 5, Fwd_thread_id=1),
        ],
    ],
    ids=["little", "no model", "read by a second backward pass", "inside a node's forward"],
)
def test_other_work_is_no_forward_work_for_nothing(beside: Any) -> None:
    assert found("work.unread_forward", beside) is None


def in_frames(*calls: tuple[str, float, float]) -> Any:
    """Forward work behind the training, and a trained layer, each in these frames."""

    def drawn(step: int) -> list[Row]:
        begin = BASE + step * STEP
        frames = [("nn.Module: Linear_0", 5, 105), *calls]
        return [
            *evaluation(step),
            *(span(name, begin + round(a * US), begin + round(b * US), cat="python_function") for name, a, b in frames),
        ]

    return drawn


MAIN = span("train.py(99): <module>", BASE - 9, BASE + N_STEPS * STEP, cat="python_function")


def of_main(*calls: tuple[str, float, float]) -> Any:
    """The frames above, of a script that runs throughout."""
    drawn = in_frames(*calls)
    return lambda step: [*([MAIN] if step == 0 else []), *drawn(step)]


def called(*calls: tuple[int, int]) -> dict[str, list[int]]:
    """What a capture tells of lines that call: us from a step's begin, and the line."""
    each = [(BASE + step * STEP + at_us * US, line) for step in range(N_STEPS) for at_us, line in calls]
    return {"unix_ns": [one[0] for one in each], "line": [one[1] for one in each]}


def test_a_model_that_trains_and_runs_again_has_a_saving() -> None:
    one = found("work.unread_forward", of_main(("nn.Module: Linear_0", 395, 705)))
    assert one.title == "the model that trains runs again, and no backward pass reads it"
    assert one.recoverable_ns == 340 * US


@pytest.mark.parametrize(("ends", "is_again"), [(495, False), (395, True)], ids=["one call", "another call"])
def test_what_a_layer_computes_of_frozen_features_is_no_second_run(ends: int, is_again: bool) -> None:
    """graphsage-simple: a dense mask times features, behind it the weights of the same layer; 2.1x was promised."""

    def layer(step: int) -> list[Row]:
        begin, number = BASE + step * STEP, 10 * step
        calls = [("nn.Module: Encoder_0", 95, ends), *([("nn.Module: Linear_0", 396, 495)] if is_again else [])]
        return [
            span(f"ProfilerStep#{step}", begin, begin + STEP),
            at(step, "aten::mm", 100, 390),
            at(step, "aten::linear", 400, 490, Sequence_number=number, Fwd_thread_id=0),
            at(step, "aten::linear", 500, 505, Sequence_number=number + 1, Fwd_thread_id=0),
            at(step, NODE + "AddmmBackward0", 510, 600, Sequence_number=number, Fwd_thread_id=1),
            at(step, NODE + "AddmmBackward0", 610, 620, Sequence_number=number + 1, Fwd_thread_id=1),
            at(step, NODE + "torch::autograd::AccumulateGrad", 655, 660),
            *(
                span(name, begin + a * US, begin + b * US, cat="python_function")
                for name, a, b in [*calls, ("nn.Module: Encoder_0", 496, 506)]
            ),
        ]

    one = finding_in(rows_with(first=layer), "work.unread_forward")
    assert (one.recoverable_ns > 0) == is_again


def test_a_model_that_never_trains_is_told_without_a_saving() -> None:
    other = of_main(("train.py(7): distil", 305, 800), ("nn.Module: Linear_1", 395, 705))
    one = found("work.frozen_forward", other)
    assert one.recoverable_ns == 0
    assert one.evidence[0].value == N_STEPS * 340 * US
    assert found("work.unread_forward", other) is None
    _, verdict = triage_trace(trace_of(rows_with(other)))
    assert "never trains" not in verdict.headline


@pytest.mark.parametrize(("each_us", "is_asked"), [(30, True), (15, True), (5, False)])
def test_a_model_that_never_trains_is_asked_about_before_overhead_that_is_usual(each_us: int, is_asked: bool) -> None:
    other = of_main(("train.py(7): distil", 305, 800), ("nn.Module: Linear_1", 395, 705))
    beside = lambda step: [at(step, "aten::gelu", one, one + each_us) for one in range(750, 1000, 50)]  # noqa: E731
    _, verdict = triage_trace(trace_of(rows_with(other, beside)))
    assert ("a model that never trains runs in each step" in verdict.headline) is is_asked
    assert not is_asked or verdict.headline.endswith("Is that intentional?")
    assert not is_asked or (verdict.bottleneck, verdict.recoverable_ns) == (Bottleneck.KERNEL, 0)


@pytest.mark.parametrize(("function", "saved"), [("act", 0), ("sample_image", 340 * US)])
def test_the_model_that_acts_is_needed(function: str, saved: int) -> None:
    drawn = of_main((f"train.py(7): {function}", 305, 800), ("nn.Module: Linear_0", 395, 705))
    one = found("work.unread_forward", drawn, profkit_call_lines=called((305, 71)))
    assert one.recoverable_ns == saved


def test_a_copy_of_the_weights_that_is_evaluated_has_a_saving() -> None:
    copy = of_main(("train.py(7): evaluate", 305, 800), ("nn.Module: Linear_1", 395, 705))
    told = {"profkit_call_lines": called((305, 71))}
    one = found("work.unread_forward", copy, **told)
    assert one.recoverable_ns == 340 * US
    assert one.places[0].place.line == 71
    assert found("work.frozen_forward", copy, **told) is None


@pytest.mark.parametrize(("until_us", "line"), [(805, 72), (900, 71)], ids=["only passes on", "does more"])
def test_a_callback_that_only_passes_on_is_not_the_line_but_what_it_calls(until_us: int, line: int) -> None:
    drawn = of_main(
        ("train.py(7): after", 305, until_us),
        ("torch/utils/_contextlib.py(120): decorate_context", 306, 801),
        ("train.py(17): evaluate", 307, 800),
        ("nn.Module: Linear_0", 395, 705),
    )
    one = found("work.unread_forward", drawn, profkit_call_lines=called((305, 71), (306, 72)))
    assert one.places[0].place.line == line


def layers(step: int, *between: str, n: int = 2, shapes: Any = ()) -> list[Row]:
    """Layers with a backward node each, and before each but the first operators that no gradient goes through."""
    rows = []
    for layer in range(n + 1):
        number, begin = 10 * step + 5 + layer, 310 + (200 // n) * layer
        rows += [
            at(step, "aten::linear", begin, begin + 10, Sequence_number=number, Fwd_thread_id=0),
            at(step, NODE + "AddmmBackward0", 900 + layer, 901 + layer, Sequence_number=number, Fwd_thread_id=1),
        ]
        if layer < n:
            size = shapes[layer % len(shapes)] if shapes else [8]
            rows += [sized(step, name, begin + 15 + 20 * place, 20, size) for place, name in enumerate(between)]
    return rows


def test_what_layers_make_alike_without_gradients_is_made_once() -> None:
    one = found("work.no_gradient", lambda step: layers(step, "aten::arange", "aten::sort", "aten::exp"))
    assert one.evidence[0].value == N_STEPS * 2 * 60 * US
    assert one.recoverable_ns == 1.25 * 2 * 60 * US  # a bound alone: some of it may be of the batch
    assert one.most_recoverable_ns is None
    assert "register_buffer" in one.fix


@pytest.mark.parametrize(
    "between",
    [
        lambda step: layers(step, "aten::rand", "aten::sort", "aten::exp"),
        lambda step: layers(step, "aten::sort", "aten::exp", "aten::mul", shapes=([step + 1],)),
        lambda step: layers(step, "aten::sort", "aten::exp", "aten::mul") if step % 2 else [],
        lambda step: layers(step, "aten::sort"),
    ],
    ids=["random numbers", "other shapes in each step", "not in each step", "little"],
)
def test_what_differs_from_step_to_step_is_no_constant(between: Any) -> None:
    assert found("work.no_gradient", between) is None


def test_without_a_backward_pass_all_is_forward_and_nothing_is_said() -> None:
    marked = lambda step: [span(f"ProfilerStep#{step}", BASE + step * STEP, BASE + (step + 1) * STEP)]  # noqa: E731
    assert finding_in(rows_with(evaluation, first=marked), "work.unread_forward") is None


def piled(step: int, *, adds: bool = True) -> list[Row]:
    """A backward pass of its own layout: a gradient in use, then two that pile up behind long nodes."""
    begin, number = BASE + step * STEP, 10 * step
    inner = [at(step, "aten::add_", 415, 418), at(step, "aten::add_", 625, 628)] if adds else []
    return [
        span(f"ProfilerStep#{step}", begin, begin + STEP),
        at(step, "aten::linear", 10, 100, Sequence_number=number, Fwd_thread_id=0),
        at(step, "aten::linear", 100, 190, Sequence_number=number + 1, Fwd_thread_id=0),
        at(step, NODE + "AddmmBackward0", 195, 205, Sequence_number=number + 1, Fwd_thread_id=1),
        at(step, NODE + "torch::autograd::AccumulateGrad", 205, 210),
        at(step, NODE + "AddmmBackward0", 210, 410, Sequence_number=number, Fwd_thread_id=1),
        at(step, "aten::mm", 220, 400),
        at(step, NODE + "torch::autograd::AccumulateGrad", 410, 420),
        at(step, NODE + "TBackward0", 420, 620),
        at(step, NODE + "torch::autograd::AccumulateGrad", 620, 630),
        *inner,
        span("Optimizer.zero_grad#AdamW.zero_grad", begin + 192 * US, begin + 194 * US),
        span("Optimizer.step#AdamW.step", begin + 700 * US, begin + 800 * US),
        at(step, "aten::_fused_adamw_", 710, 790),
    ]


@pytest.mark.parametrize("adds", [True, False])
def test_gradients_that_pile_up_are_nobodys(*, adds: bool) -> None:
    one = finding_in(rows_with(first=partial(piled, adds=adds)), "work.unused_gradients")
    assert (one and one.recoverable_ns) == (420 * US if adds else None)


@pytest.mark.parametrize("change", ["another optimizer clears", "to zero"])
def test_gradients_that_are_cleared_otherwise_do_not_pile_up(change: str) -> None:
    """An optimizer that sets its gradients to zero, or has a way of its own, has autograd add to them."""
    rows = rows_with(first=piled)
    if change == "to zero":
        rows += [at(step, "aten::_foreach_zero_", 192.5, 193.5) for step in range(N_STEPS)]
    else:
        rows = [replace(row, name=row.name.replace("AdamW.step", "FusedAdam.step")) for row in rows]
    assert finding_in(rows, "work.unused_gradients") is None


def test_gradients_of_a_second_pass_add_up_on_purpose() -> None:
    """Accumulation: the first pass after the optimizer's step finds none, what the second adds to is in use."""

    def second(step: int) -> list[Row]:
        shifted = [row for row in piled(step) if not row.name.startswith(("ProfilerStep", "Optimizer", "aten::_fused"))]
        later = lambda args: {key: args[key] + 5 * (key == "Sequence number") for key in args}  # noqa: E731
        ns = 300 * US
        return [
            replace(row, start_ns=row.start_ns + ns, end_ns=row.end_ns + ns, args=later(row.args)) for row in shifted
        ]

    first = lambda step: training(step)[:5]  # noqa: E731
    assert finding_in(rows_with(second, _late_optimizer, first=first), "work.unused_gradients") is None


@pytest.mark.parametrize("is_second", [True, False])
def test_a_pass_that_begins_anew_without_a_forward_one_between_adds_up_on_purpose(*, is_second: bool) -> None:
    """A pipeline's stage runs all micro-batches forward, then one pass for each: autograd goes back in time in each."""

    def first(step: int) -> list[Row]:
        begin, number = BASE + step * STEP, 10 * step
        numbers = (1, 0, 3, 2) if is_second else (3, 2, 1, 0)
        passes = [
            row
            for place, one in enumerate(numbers)
            for start in (200 + 110 * place,)
            for row in (
                at(step, NODE + "AddmmBackward0", start, start + 90, Sequence_number=number + one, Fwd_thread_id=1),
                at(step, "aten::mm", start + 10, start + 80),
                at(step, NODE + "torch::autograd::AccumulateGrad", start + 90, start + 100),
                *([at(step, "aten::add_", start + 92, start + 98)] if place >= 2 else []),
            )
        ]
        return [
            span(f"ProfilerStep#{step}", begin, begin + STEP),
            *(
                at(step, "aten::linear", 10 + 40 * one, 50 + 40 * one, Sequence_number=number + one, Fwd_thread_id=0)
                for one in range(4)
            ),
            span("Optimizer.zero_grad#AdamW.zero_grad", begin + 192 * US, begin + 194 * US),
            *passes,
            span("Optimizer.step#AdamW.step", begin + 700 * US, begin + 800 * US),
            at(step, "aten::_fused_adamw_", 710, 790),
        ]

    one = finding_in(rows_with(first=first), "work.unused_gradients")
    assert (one is None) is is_second


def _late_optimizer(step: int) -> list[Row]:
    begin = BASE + step * STEP
    return [
        span("Optimizer.step#AdamW.step", begin + 950 * US, begin + 990 * US),
        at(step, "aten::_fused_adamw_", 955, 985),
    ]


@pytest.mark.parametrize("checks", [True, False])
def test_anomaly_mode_is_known_by_its_looks_for_nan(*, checks: bool) -> None:
    def beside(step: int) -> list[Row]:
        looked = [
            at(step, "aten::isnan", 242, 244),
            at(step, "aten::_is_any_true" if checks else "aten::any", 244, 246),
            at(step, "aten::item", 246, 248),
        ]
        return [*looked, *(row for place in range(3) for row in view(step, place))]

    def view(step: int, place: int) -> list[Row]:
        number, begin = 10 * step + 1 + place, 400 + 40 * place
        return [
            at(step, "aten::t", begin, begin + 20, Sequence_number=number, Fwd_thread_id=0),
            at(step, NODE + "TBackward0", begin + 20, begin + 21, Sequence_number=number, Fwd_thread_id=1),
        ]

    one = found("host.anomaly_mode", beside)
    assert (one is not None) == checks
    if checks:
        assert one.evidence[0].value == N_STEPS * (6 + 4 * 20) * US
        assert "set_detect_anomaly" in one.fix


def gradients(step: int) -> list[Row]:
    """What tells the shapes of parameters."""
    return [sized(step, "torch::autograd::AccumulateGrad", 256 + k, 1, size) for k, size in enumerate(([64, 64], [64]))]


def loop(step: int, *, n: int = 60, shapes: Any = ([64, 64], [64]), lasts_us: float = 5) -> list[Row]:
    """An average of the weights, one parameter after the other."""
    each_us = lasts_us + 3
    return [sized(step, "aten::lerp_", 310 + each_us * k, lasts_us, shapes[k % len(shapes)]) for k in range(n)]


def test_a_loop_over_parameters_is_named_with_its_own_time() -> None:
    one = found("host.parameter_loop", gradients, loop)
    took = 59 * 8 + 5
    assert one.evidence[0].value == N_STEPS * took * US
    assert one.recoverable_ns == round(took * US * 0.75)
    assert "torch._foreach" in one.fix


@pytest.mark.parametrize(
    "args",
    [{"n": 20}, {"shapes": ([64],)}, {"shapes": ([7], [8, 9])}, {"n": 11, "lasts_us": 55}],
    ids=["few", "one shape: samples", "other shapes", "long operators"],
)
def test_other_loops_are_none(args: dict[str, Any]) -> None:
    assert found("host.parameter_loop", gradients, lambda step: loop(step, **args)) is None


def test_an_evaluation_on_batches_of_a_weights_shape_is_no_loop() -> None:
    def model(step: int) -> list[Row]:
        names, sizes = ("aten::mm", "aten::relu"), ([64, 64], [64])
        return [sized(step, names[k % 2], 310 + 8 * k, 5, sizes[k % 4 // 2]) for k in range(60)]

    assert found("host.parameter_loop", gradients, model) is None


def test_an_evaluation_of_small_operators_is_named_before_their_overhead() -> None:
    def small(step: int) -> list[Row]:
        return [at(step, "aten::mm", 310 + 7 * place, 313 + 7 * place) for place in range(95)]

    rank, verdict = triage_trace(trace_of(rows_with(small)))
    assert "host.launch_bound" in [one.id for one in rank.findings]
    assert verdict.findings[0].id == "work.unread_forward"
    assert verdict.bottleneck is Bottleneck.KERNEL
