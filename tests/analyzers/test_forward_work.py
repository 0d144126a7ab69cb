"""Forward work that nobody reads, gradients that nobody uses, loops over parameters: each, and healthy twins."""

from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from profkit.model.documents.report import Bottleneck
from profkit.testing import Row, span
from tests.drawing import ACCUMULATES, BASE, NODE, STEP, US, at, finding_in, frame, ranged, steps_of, triaged, twins

N_STEPS = 5
STORED = "torch::autograd::AccumulateGrad"


def training(step: int) -> list[Row]:
    """A forward product, its backward node with a gradient that is accumulated, and an optimizer's step."""
    return [
        at(step, "aten::linear", 10, 100, Sequence_number=10 * step, Fwd_thread_id=0),
        at(step, NODE + "AddmmBackward0", 110, 250, Sequence_number=10 * step, Fwd_thread_id=1),
        at(step, "aten::mm", 120, 240),
        at(step, ACCUMULATES, 255, 260),
        ranged(step, "Optimizer.step#AdamW.step", 270, 300),
        at(step, "aten::_fused_adamw_", 275, 295),
    ]


def rows_with(*more: Any, first: Any = training) -> list[Row]:
    """Steps of 1 ms that also have these rows, each made for a step."""
    return steps_of(N_STEPS, first, *more)


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


def in_frames(*calls: tuple[str, float, float]) -> Any:
    """Forward work behind the training, and a trained layer, each in these frames."""

    return lambda step: [*evaluation(step), *(frame(step, *one) for one in (("nn.Module: Linear_0", 5, 105), *calls))]


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
        number = 10 * step
        calls = [("nn.Module: Encoder_0", 95, ends), *([("nn.Module: Linear_0", 396, 495)] if is_again else [])]
        return [
            at(step, "aten::mm", 100, 390),
            at(step, "aten::linear", 400, 490, Sequence_number=number, Fwd_thread_id=0),
            at(step, "aten::linear", 500, 505, Sequence_number=number + 1, Fwd_thread_id=0),
            at(step, NODE + "AddmmBackward0", 510, 600, Sequence_number=number, Fwd_thread_id=1),
            at(step, NODE + "AddmmBackward0", 610, 620, Sequence_number=number + 1, Fwd_thread_id=1),
            at(step, ACCUMULATES, 655, 660),
            *(frame(step, *one) for one in [*calls, ("nn.Module: Encoder_0", 496, 506)]),
        ]

    one = finding_in(rows_with(first=layer), "work.unread_forward")
    assert (one.recoverable_ns > 0) == is_again


def test_a_model_that_never_trains_is_told_without_a_saving() -> None:
    other = of_main(("train.py(7): distil", 305, 800), ("nn.Module: Linear_1", 395, 705))
    one = found("work.frozen_forward", other)
    assert one.recoverable_ns == 0
    assert one.evidence[0].value == N_STEPS * 340 * US
    assert found("work.unread_forward", other) is None
    assert "never trains" not in triaged(rows_with(other)).verdict.headline


@pytest.mark.parametrize(("each_us", "is_asked"), [(30, True), (15, True), (5, False)])
def test_a_model_that_never_trains_is_asked_about_before_overhead_that_is_usual(each_us: int, is_asked: bool) -> None:
    other = of_main(("train.py(7): distil", 305, 800), ("nn.Module: Linear_1", 395, 705))
    beside = lambda step: [at(step, "aten::gelu", one, one + each_us) for one in range(750, 1000, 50)]  # noqa: E731
    verdict = triaged(rows_with(other, beside)).verdict
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
            starts = enumerate(between)
            rows += [at(step, name, begin + 15 + 20 * k, begin + 35 + 20 * k, [size]) for k, name in starts]
    return rows


def test_what_layers_make_alike_without_gradients_is_made_once() -> None:
    one = found("work.no_gradient", lambda step: layers(step, "aten::arange", "aten::sort", "aten::exp"))
    assert one.evidence[0].value == N_STEPS * 2 * 60 * US
    assert one.recoverable_ns == 1.25 * 2 * 60 * US  # a bound alone: some of it may be of the batch
    assert one.most_recoverable_ns is None
    assert "register_buffer" in one.fix


def test_without_a_backward_pass_all_is_forward_and_nothing_is_said() -> None:
    assert finding_in(steps_of(N_STEPS, evaluation), "work.unread_forward") is None


def piled(step: int, *, adds: bool = True) -> list[Row]:
    """A backward pass of its own layout: a gradient in use, then two that pile up behind long nodes."""
    number = 10 * step
    inner = [at(step, "aten::add_", 415, 418), at(step, "aten::add_", 625, 628)] if adds else []
    return [
        at(step, "aten::linear", 10, 100, Sequence_number=number, Fwd_thread_id=0),
        at(step, "aten::linear", 100, 190, Sequence_number=number + 1, Fwd_thread_id=0),
        at(step, NODE + "AddmmBackward0", 195, 205, Sequence_number=number + 1, Fwd_thread_id=1),
        at(step, ACCUMULATES, 205, 210),
        at(step, NODE + "AddmmBackward0", 210, 410, Sequence_number=number, Fwd_thread_id=1),
        at(step, "aten::mm", 220, 400),
        at(step, ACCUMULATES, 410, 420),
        at(step, NODE + "TBackward0", 420, 620),
        at(step, ACCUMULATES, 620, 630),
        *inner,
        ranged(step, "Optimizer.zero_grad#AdamW.zero_grad", 192, 194),
        ranged(step, "Optimizer.step#AdamW.step", 700, 800),
        at(step, "aten::_fused_adamw_", 710, 790),
    ]


@pytest.mark.parametrize("adds", [True, False])
def test_gradients_that_pile_up_are_nobodys(*, adds: bool) -> None:
    one = finding_in(rows_with(first=partial(piled, adds=adds)), "work.unused_gradients")
    assert (one and one.recoverable_ns) == (420 * US if adds else None)


@pytest.mark.parametrize("stores", [True, False])
def test_a_pass_of_autograd_grad_leaves_no_gradients(*, stores: bool) -> None:
    """A gradient penalty before loss.backward(): the node of its leaf is there, and nothing is stored."""

    def with_penalty(step: int) -> list[Row]:
        number = 10 * step + 5
        kept = [at(step, STORED, begin + 1, begin + 9) for begin in (410, 620)]
        return [
            at(step, "aten::linear", 2, 5, Sequence_number=number, Fwd_thread_id=0),
            at(step, NODE + "AddmmBackward0", 5, 7, Sequence_number=number, Fwd_thread_id=1),
            at(step, ACCUMULATES, 7, 9),
            *([at(step, STORED, 7.5, 8.5)] if stores else []),
            at(step, STORED, 206, 209),
            *kept,
            *piled(step),
        ]

    one = finding_in(rows_with(first=with_penalty), "work.unused_gradients")
    assert (one and one.recoverable_ns) == (None if stores else 420 * US)


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
        rows = [row for row in piled(step) if not row.name.startswith(("Optimizer", "aten::_fused"))]
        later = lambda args: {key: args[key] + 5 * (key == "Sequence number") for key in args}  # noqa: E731
        ns = 300 * US
        rows = [replace(row, start_ns=row.start_ns + ns, end_ns=row.end_ns + ns, args=later(row.args)) for row in rows]
        return [*rows, ranged(step, "Optimizer.step#AdamW.step", 950, 990), at(step, "aten::_fused_adamw_", 955, 985)]

    assert finding_in(rows_with(second, first=lambda step: training(step)[:4]), "work.unused_gradients") is None


@pytest.mark.parametrize("is_second", [True, False])
def test_a_pass_that_begins_anew_without_a_forward_one_between_adds_up_on_purpose(*, is_second: bool) -> None:
    """A pipeline's stage runs all micro-batches forward, then one pass for each: autograd goes back in time in each."""

    def first(step: int) -> list[Row]:
        number = 10 * step
        rows = [
            at(step, "aten::linear", 10 + 40 * one, 50 + 40 * one, Sequence_number=number + one, Fwd_thread_id=0)
            for one in range(4)
        ]
        for place, one in enumerate((1, 0, 3, 2) if is_second else (3, 2, 1, 0)):
            begin = 200 + 110 * place
            rows += [
                at(step, NODE + "AddmmBackward0", begin, begin + 90, Sequence_number=number + one, Fwd_thread_id=1),
                at(step, "aten::mm", begin + 10, begin + 80),
                at(step, ACCUMULATES, begin + 90, begin + 100),
                *([at(step, "aten::add_", begin + 92, begin + 98)] if place >= 2 else []),
            ]
        return [
            *rows,
            ranged(step, "Optimizer.zero_grad#AdamW.zero_grad", 192, 194),
            ranged(step, "Optimizer.step#AdamW.step", 700, 800),
            at(step, "aten::_fused_adamw_", 710, 790),
        ]

    one = finding_in(rows_with(first=first), "work.unused_gradients")
    assert (one is None) is is_second


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
    return [at(step, ACCUMULATES[len(NODE) :], 256 + k, 257 + k, [size]) for k, size in enumerate(([64, 64], [64]))]


def loop(step: int, *, n: int = 60, shapes: Any = ([64, 64], [64]), lasts_us: float = 5) -> list[Row]:
    """An average of the weights, one parameter after the other."""
    begins = [310 + (lasts_us + 3) * k for k in range(n)]
    return [at(step, "aten::lerp_", us, us + lasts_us, [shapes[k % len(shapes)]]) for k, us in enumerate(begins)]


def test_a_loop_over_parameters_is_named_with_its_own_time() -> None:
    one = found("host.parameter_loop", gradients, loop)
    took = 59 * 8 + 5
    assert one.evidence[0].value == N_STEPS * took * US
    assert one.recoverable_ns == round(took * US * 0.75)
    assert "torch._foreach" in one.fix


def model(step: int) -> list[Row]:
    """An evaluation on batches of a weight's shape."""
    names, sizes = ("aten::mm", "aten::relu"), ([64, 64], [64])
    return [at(step, names[k % 2], 310 + 8 * k, 315 + 8 * k, [sizes[k % 4 // 2]]) for k in range(60)]


def numbered(step: int, name: str, start_us: float, end_us: float, *, is_back: bool = False) -> Row:
    return at(step, name, start_us, end_us, Sequence_number=10 * step + 5, Fwd_thread_id=int(is_back))


HEALTHY = {
    "work.unread_forward": {
        "little": lambda step: [at(step, "aten::linear", 400, 440)],
        "no model": lambda step: [at(step, "aten::add_", 400, 700)],
        "read by a second backward pass": lambda step: [
            numbered(step, "aten::linear", 400, 600),
            numbered(step, NODE + "AddmmBackward0", 610, 800, is_back=True),
        ],
        "inside a node's forward": lambda step: [
            numbered(step, "CheckpointFunction", 400, 700),
            at(step, "aten::linear", 410, 690),
            numbered(step, NODE + "CheckpointFunctionBackward", 710, 900, is_back=True),
        ],
    },
    "work.no_gradient": {
        "random numbers": lambda step: layers(step, "aten::rand", "aten::sort", "aten::exp"),
        "other shapes in each step": lambda step: layers(
            step, "aten::sort", "aten::exp", "aten::mul", shapes=([step + 1],)
        ),
        "not in each step": lambda step: layers(step, "aten::sort", "aten::exp", "aten::mul") if step % 2 else [],
        "little": lambda step: layers(step, "aten::sort"),
        "text of a tensor": lambda step: layers(step, "aten::isfinite", "aten::masked_select", "aten::item"),
    },
    "host.parameter_loop": {
        "few": lambda step: loop(step, n=20),
        "one shape: samples": lambda step: loop(step, shapes=([64],)),
        "other shapes": lambda step: loop(step, shapes=([7], [8, 9])),
        "long operators": lambda step: loop(step, n=11, lasts_us=55),
        "an evaluation": model,
    },
}


@pytest.mark.parametrize(("finding_id", "beside"), twins(HEALTHY))
def test_other_work_beside_the_training_is_fine(finding_id: str, beside: Any) -> None:
    assert found(finding_id, gradients, beside) is None


def test_an_evaluation_of_small_operators_is_named_before_their_overhead() -> None:
    def small(step: int) -> list[Row]:
        return [at(step, "aten::mm", 310 + 7 * place, 313 + 7 * place) for place in range(95)]

    verdict, said, _ = triaged(rows_with(small))
    assert "host.launch_bound" in said
    assert verdict.findings[0].id == "work.unread_forward"
    assert verdict.bottleneck is Bottleneck.KERNEL
