"""Work of which most is thrown away: experts of all tokens, no cache, whole sorts, one-hot products; and twins."""

from typing import Any

import numpy as np
import pytest

from profkit.testing import Row
from profkit.timeline.code.phases import COPY_SLICES, backward_of
from profkit.verdict.on_cpu import BEYOND
from tests.drawing import NODE, STEP, US, at, facts_of, finding_in, ranged, steps_of, triaged, twins

N_STEPS = 3


def trained(step: int) -> list[Row]:
    """A product that trains, from 900 us on."""
    return [
        at(step, "aten::linear", 900, 910, [(4, 8), (8, 8)], Sequence_number=100 * step, Fwd_thread_id=0),
        at(step, NODE + "AddmmBackward0", 920, 930, Sequence_number=100 * step, Fwd_thread_id=1),
        ranged(step, "Optimizer.step#AdamW.step", 940, 950),
    ]


def steps(*made: Any) -> list[Row]:
    """Steps with these rows, and a product that trains behind them."""
    return steps_of(N_STEPS, *made, trained)


def found(finding_id: str, *made: Any) -> Any:
    """The finding of that id; None where silent."""
    return finding_in(steps(*made), finding_id)


def experts(step: int, *, rows: Any = lambda _: 64, kept: int = 2, gated: bool = True) -> list[Row]:
    """A router that picks two of eight, and eight experts of 40 us with a gate each, and their backward pass."""
    out = [at(step, "aten::topk", 5, 10, [(64, 8), (), (), (), ()], ["", kept, -1, "True", "True"])]
    for one in range(8):
        begin, number = 20 + 50 * one, 100 * step + 1 + one
        numbered = {"Sequence_number": number, "Fwd_thread_id": 0}
        out.append(at(step, "aten::linear", begin, begin + 40, [(rows(one), 16), (16, 16), (16,)], **numbered))
        if gated:
            out.append(at(step, "aten::mul", begin + 40, begin + 45, [(rows(one), 1), (rows(one), 16)]))
        node = NODE + "AddmmBackward0"
        out.append(at(step, node, 931 + one, 932 + one, Sequence_number=number, Fwd_thread_id=1))
    return out


def test_experts_that_all_take_all_tokens_are_named_with_what_the_router_leaves_out() -> None:
    one = found("work.dense_experts", experts)
    assert one.title == "each of 8 experts computes all tokens, and 2 are picked for a token"
    whole = N_STEPS * (50 * 7 + 40 + 8) * US
    assert one.evidence[0].value == whole
    assert one.recoverable_ns == whole * 6 / 8 / N_STEPS


def test_names_of_choices_and_sorts_alone_say_nothing() -> None:
    unknown = lambda step: [at(step, f"aten::{name}", 10, 400) for name in ("topk", "sort", "one_hot")]  # noqa: E731
    _, said, rank = triaged(steps(unknown))
    assert "patterns" not in {one.analyzer for one in rank.skipped}
    assert not set(said) & {"work.dense_experts", "work.full_sort", "work.one_hot"}


def written(
    step: int, *, n: int = 10, name: str = "aten::copy_", node: str = "torch::autograd::CopySlices"
) -> list[Row]:
    """Writes into slices of 4 us, and their backward nodes of 20 us, which run the node of the write inside."""
    out = []
    for one in range(n):
        number, back = 1000 * (step + 1) + 3 * one, 600 + 25 * one
        out += [
            at(step, name, 10 + 5 * one, 14 + 5 * one, [(8, 4), (8, 4)], Sequence_number=number, Fwd_thread_id=0),
            at(step, NODE + node, back, back + 20, Sequence_number=number + 1, Fwd_thread_id=1),
            at(step, node, back + 1, back + 19, [(10, 8, 4)], Sequence_number=number + 1, Fwd_thread_id=1),
            at(step, "torch::autograd::CopyBackwards", back + 8, back + 12, Sequence_number=number, Fwd_thread_id=1),
        ]
    return out


@pytest.mark.parametrize("node", ["torch::autograd::CopySlices", "CopySlices"])
def test_writes_into_slices_that_each_copy_a_whole_gradient_are_named(node: str) -> None:
    one = found("work.slice_writes", lambda step: written(step, node=node))
    assert one.title == "10 writes into slices of a tensor each copy its whole gradient"
    assert one.evidence[0].value == N_STEPS * 10 * 20 * US
    assert one.recoverable_ns == pytest.approx(10 * 20 * US * 0.9, rel=1e-3)
    assert "torch.stack" in one.fix


def test_the_node_of_a_write_comes_back_to_the_operator_that_wrote() -> None:
    trace = facts_of(steps(written)).trace
    backward = backward_of(trace)
    is_write = trace.named(trace.ops.name, COPY_SLICES)[backward.rows]
    names = {trace.name(code) for code in trace.ops.name[backward.forward[is_write]].tolist()}
    assert names == {"aten::copy_"}
    assert np.unique(backward.forward[is_write]).size == N_STEPS * 10


def generated(step: int, *, by: int = 4, read: bool = False) -> list[Row]:
    """Twelve calls of a layer on a sequence that grows; with `read`, a backward node for each."""
    out = []
    for call in range(12):
        begin, back, number = 50 * call, 931 + 0.5 * call, {"Sequence_number": 100 * step + 1 + call}
        length = 4 * (4 + (call * by) // 4)
        numbered = {**number, "Fwd_thread_id": 0} if read else {}
        out += [
            at(step, "aten::addmm", begin, begin + 40, [(16,), (length, 16), (16, 16)], **numbered),
            at(step, "aten::tanh", begin + 40, begin + 48, [(length, 16)]),
        ]
        out += [at(step, NODE + "AddmmBackward0", back, back + 0.4, Fwd_thread_id=1, **number)] if read else []
    return out


def test_a_sequence_that_is_computed_again_for_each_token_has_no_cache() -> None:
    one = found("work.no_cache", generated)
    assert "use_cache=True" in one.fix
    assert one.evidence[0].value == N_STEPS * (11 * 50 + 40) * US
    spared = sum((40 + 8 * (call < 11)) * (1 - 1 / (4 + call)) for call in range(12)) * US
    assert one.recoverable_ns == pytest.approx(1.25 * spared - 0.25 * max(2 * spared - STEP, 0), rel=0.01)  # a bound
    assert found("work.unread_forward", generated) is None, "said once"


def ordered(step: int, *kept: tuple[int, int], axis: int = -1, sort_axis: int = -1) -> list[Row]:
    """A sort of rows of 320 for 300 us, and slices of it."""
    out = [at(step, "aten::argsort", 10, 310, [(8, 320), (), ()], ["", sort_axis, "False"])]
    for place, (begin, end) in enumerate(kept):
        shown = [(8, 320), (), (), (), ()], ["", axis, begin, end, 1]
        out.append(at(step, "aten::slice", 311 + 2 * place, 312 + 2 * place, *shown))
    return out


def test_a_whole_sort_of_which_little_is_kept_is_named_less_what_topk_takes() -> None:
    one = found("work.full_sort", lambda step: ordered(step, (0, 10)))
    assert one.title == "rows of 320 values are sorted whole, and 10 of each are kept"
    assert "topk" in one.fix
    assert one.recoverable_ns == pytest.approx((1 - 0.1 - 1.5 * 10 / 320) * 300 * US, abs=2)
    assert one.most_recoverable_ns == pytest.approx((1 + BEYOND) * 300 * US, rel=1e-3), (
        "all of it, and what a cause takes"
    )
    assert found("work.full_sort", lambda step: ordered(step, (-10, 2**63 - 1))) is not None, "the greatest"


def one_hot(step: int, n_classes: int = 500) -> list[Row]:
    """A one-hot tensor, converted, and a product over as many columns."""
    return [
        at(step, "aten::one_hot", 10, 60, [(4, 32), ()], ["", 500]),
        at(step, "aten::to", 61, 90, [(4, 32, 500)]),
        at(step, "aten::linear", 100, 300, [(4, 32, n_classes), (16, n_classes)]),
    ]


def test_a_product_with_one_hot_vectors_is_a_lookup() -> None:
    one = found("work.one_hot", one_hot)
    assert one.recoverable_ns == 290 * US
    assert "F.embedding" in one.fix


def constant(step: int, dims: tuple[int, ...]) -> list[Row]:
    """Between two layers on a batch of eight, work on such a tensor that no gradient goes through."""
    begin, rows = 100 * step, []
    for layer in range(2):
        number, start, sizes = {"Sequence_number": begin + 1 + layer}, 10 + 300 * layer, [(8, 32, 16), (16, 16)]
        rows += [
            at(step, "aten::linear", start, start + 10, sizes, Fwd_thread_id=0, **number),
            at(step, NODE + "AddmmBackward0", 931 + layer, 932 + layer, Fwd_thread_id=1, **number),
        ]
    return [*rows, at(step, "aten::exp", 30, 130, [dims]), at(step, "aten::cumsum", 131, 260, [dims])]


def test_what_does_not_take_the_batch_is_made_once() -> None:
    assert found("work.no_gradient", lambda step: constant(step, (32, 32))) is not None
    gathered = lambda step: at(step, "aten::index", 22, 29, [(1200, 32)])  # noqa: E731
    assert found("work.no_gradient", lambda step: [*constant(step, (32, 32)), gathered(step)]) is not None


HEALTHY = {
    "work.slice_writes": {
        "few": lambda step: written(step, n=4),
        "without a gradient": lambda step: [row for row in written(step) if "Copy" not in row.name],
        "in-place operators on views": lambda step: written(step, name="aten::mul_"),
        "writes into whole tensors": lambda step: written(step, node="CopyBackwards"),
    },
    "work.dense_experts": {
        "each its own tokens": lambda step: experts(step, rows=lambda one: 10 + one),
        "all are kept": lambda step: experts(step, kept=8),
        "layers one behind the other": lambda step: experts(step, gated=False),
    },
    "work.no_cache": {
        "one token at a time": lambda step: generated(step, by=0),
        "lengths that train": lambda step: generated(step, read=True),
    },
    "work.full_sort": {
        "all": ordered,
        "most": lambda step: ordered(step, (0, 200)),
        "both parts": lambda step: ordered(step, (0, 10), (10, 2**63 - 1)),
        "another axis": lambda step: ordered(step, (0, 2), axis=0),
    },
    "work.one_hot": {"of something else": lambda step: one_hot(step, 499)},
    "work.no_gradient": {
        "rows of the batch": lambda step: constant(step, (8, 32, 3)),
        "the batch's rows of a table": lambda step: [
            *constant(step, (8, 32)),
            at(step, "aten::index", 22, 29, [(1200, 32)]),
        ],
    },
}


@pytest.mark.parametrize(("finding_id", "made"), twins(HEALTHY))
def test_work_that_is_used_is_fine(finding_id: str, made: Any) -> None:
    assert found(finding_id, made) is None
