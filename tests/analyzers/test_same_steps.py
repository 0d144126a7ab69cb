"""Work that is the same in each step: known by what the capture marked in steps that it recorded later."""

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.testing import Row, trace_of
from tests.analyzers.test_spared import constant
from tests.drawing import NODE, US, at, finding_in, frame, ranged, steps_of, triaged

COMPARED = "profkit: compared with the next step: "
SAME = "profkit: the same as in the step before: "
OTHER = "profkit: another than in the step before: "
N_STEPS = 8
CHAIN = (("aten::cat", 100, 180), ("aten::view", 181, 183), ("aten::coalesce", 185, 290), ("aten::index", 300, 340))


def graph(step: int) -> list[Row]:
    """In a step of 1 ms a chain of operators without a gradient, a layer behind it, and its backward pass."""
    number = {"Sequence_number": step}
    return [
        *(at(step, name, begin, end, [(9, 9)]) for name, begin, end in CHAIN),
        at(step, "aten::mm", 400, 600, [(9, 9), (9, 9)], Fwd_thread_id=0, **number),
        at(step, NODE + "MmBackward0", 600, 900, Fwd_thread_id=1, **number),
    ]


def marks(kinds: str, *, belied: int = -1) -> Any:
    """The marks of the chain's operators, by letters: same, other, none. In the first step all are compared."""

    def drawn(step: int) -> list[Row]:
        rows = []
        for number, (kind, (_, begin, end)) in enumerate(zip(kinds, CHAIN, strict=True)):
            name = (COMPARED if kind != "-" else "") if step == 0 else {"s": SAME, "o": OTHER}.get(kind, "")
            if name:
                rows.append(ranged(step, f"{name}{number}", begin - 0.5, end + 0.5))
            if step and number == belied:
                rows.append(ranged(step, f"{OTHER}{number}", end + 0.1, end + 0.2))
        return rows

    return drawn


def of_both(made: Any, *more: Any, n: int = 2, **metadata: Any) -> Any:
    again = trace_of(steps_of(n, made, *more), profkit_places_of="rank0", **metadata)
    return replace(trace_of(steps_of(N_STEPS, made)), again=again)


def found(kinds: str, **more: Any) -> Any:
    return finding_in(of_both(graph, marks(kinds, **more)), "work.same_each_step")


def test_a_chain_that_is_the_same_is_one_stretch() -> None:
    one = found("s-ss")
    assert one.recoverable_ns == 240 * US
    assert one.evidence[0].value == N_STEPS * 240 * US
    assert one.evidence[1].statement.startswith("1 stretch of such operators per step")
    assert one.title == "work makes the same in each step, most of it by aten::coalesce (2 steps were compared)"
    assert one.fix.startswith("make it once, before the loop, and hand it in")


def test_it_ends_where_something_is_another() -> None:
    assert found("s-so").recoverable_ns == 190 * US
    assert found("soss").recoverable_ns == (80 + 155) * US
    assert found("s-s-").recoverable_ns == 190 * US


def test_what_has_other_bytes_in_spite_of_all_is_another() -> None:
    assert found("s-ss", belied=2).recoverable_ns == 80 * US


@pytest.mark.parametrize("kinds", ["----", "o-oo", "---s"], ids=["not looked at", "others", "little"])
def test_what_is_not_known_to_be_the_same_is_not_named(kinds: str) -> None:
    assert found(kinds) is None


def test_single_small_operators_here_and_there_are_not_named() -> None:
    def numbers(step: int) -> list[Row]:
        return [at(step, "aten::div", begin, begin + 10, [()]) for begin in range(100, 380, 20)]

    def marked(step: int) -> list[Row]:
        name = SAME if step else COMPARED
        return [ranged(step, f"{name}{begin}", begin - 0.5, begin + 10.5) for begin in range(100, 380, 20)]

    apart = lambda step: [at(step, "aten::add", begin, begin + 5) for begin in range(112, 390, 20)]  # noqa: E731
    assert finding_in(of_both(numbers, marked), "work.same_each_step") is not None
    made = lambda step: [*numbers(step), *apart(step)]  # noqa: E731
    assert finding_in(of_both(made, marked), "work.same_each_step") is None


def test_of_one_step_nothing_is_known() -> None:
    assert finding_in(of_both(graph, marks("s-ss"), n=1), "work.same_each_step") is None


def test_in_the_optimizer_it_is_not_named() -> None:
    optimizer = lambda step: [ranged(step, "Optimizer.step#Own.step", 90, 350)]  # noqa: E731
    made = lambda step: [*graph(step), *optimizer(step)]  # noqa: E731
    assert finding_in(of_both(made, marks("s-ss")), "work.same_each_step") is None


def test_the_function_that_makes_it_is_named_and_leads() -> None:
    frames = lambda step: [frame(step, "train.py(30): propagation", 90, 350)]  # noqa: E731
    begun = lambda step: [] if step else [frame(0, "torch/profiler/p.py(1): start", -2, -1)]  # noqa: E731
    verdict, said, _ = triaged(of_both(graph, marks("s-ss"), frames, begun, profkit_user_files=["train.py"]))
    title = "propagation() makes the same in each step, most of it by aten::coalesce (2 steps were compared)"
    assert said["work.same_each_step"].title == title
    assert verdict.findings[0].id == "work.same_each_step"
    assert "propagation() makes the same in each step" in verdict.headline


def marked_constant(kind: str) -> Any:
    def drawn(step: int) -> list[Row]:
        times = enumerate(((29.5, 130.2), (130.5, 260.5)))
        return [ranged(step, f"{kind if step else COMPARED}{n}", begin, end) for n, (begin, end) in times]

    return drawn


def test_what_needs_no_gradient_and_changes_is_no_question() -> None:
    made = lambda step: constant(step, (32, 32))  # noqa: E731
    said = {kind: triaged(of_both(made, marked_constant(kind))).found for kind in (SAME, OTHER)}
    assert not {"work.no_gradient", "work.same_each_step"} & set(said[OTHER])
    assert "work.no_gradient" in triaged(of_both(made)).found
    assert said[SAME]["work.same_each_step"].recoverable_ns == pytest.approx(230 * US, rel=0.1)
    assert "work.no_gradient" not in said[SAME]
