"""Work that smaller tensors would do: layers on gathered rows, all pairs at once, a queue made anew; and twins."""

from typing import Any

import pytest

from profkit.testing import Row
from profkit.verdict.on_cpu import BEYOND
from tests.analyzers.test_spared import N_STEPS, found
from tests.drawing import NODE, US, at, twins


def on_gathered(
    step: int, *, rows: int = 64, taken: int = 640, gather: str = "aten::index_select", between: str = ""
) -> list[Row]:
    """A gather, a layer of 200 us on what it made, and its backward node of 20 us."""
    number = 100 * step + 1
    dims = {
        "aten::index_select": ([(rows, 16), (), (640,)], ["", 0]),
        "aten::index": ([(rows, 16), ((640,),)], []),
        "aten::gather": ([(rows, 16), (), (640, 16), ()], ["", 0]),
        "aten::repeat": ([(rows, 16), ()], ["", f"[{640 // rows}, 1]"]),
    }[gather]
    return [
        at(step, gather, 5, 10, *dims),
        *([at(step, between, 12, 18, [(taken, 16)])] if between else []),
        at(step, "aten::linear", 20, 220, [(taken, 16), (8, 16)], Sequence_number=number, Fwd_thread_id=0),
        at(step, NODE + "MmBackward0", 931, 939, Sequence_number=number, Fwd_thread_id=1),
    ]


@pytest.mark.parametrize("gather", [f"aten::{one}" for one in ("index_select", "index", "gather", "repeat")])
def test_a_layer_on_copies_of_rows_is_named_with_both_numbers(gather: str) -> None:
    one = found("work.more_rows", lambda step: on_gathered(step, gather=gather))
    assert one.title == "a layer computes 640 rows where 64 would do"
    assert one.evidence[0].value == N_STEPS * 208 * US
    assert one.recoverable_ns == pytest.approx(208 * US * 0.9, rel=1e-3)


def test_what_works_on_each_row_alone_may_stand_between() -> None:
    assert found("work.more_rows", lambda step: on_gathered(step, between="aten::relu")) is not None


def upsampled(step: int, *, channels: int = 4, kernel: int = 1) -> list[Row]:
    """An upsampling to four times the pixels and a convolution of 200 us."""
    return [
        at(step, "aten::upsample_bilinear2d", 5, 10, [(2, 16, 8, 8), (), (), (), ()]),
        at(step, "aten::conv2d", 20, 220, [(2, 16, 16, 16), (channels, 16, kernel, kernel), (channels,)]),
    ]


def averaged(step: int, *, axis: str = "[1]", again: bool = False) -> list[Row]:
    """A layer of 200 us on 16 sequences of 10, and the mean of its output."""
    return [
        at(step, "aten::linear", 20, 220, [(16, 10, 8), (24, 8), (24,)]),
        at(step, "aten::mean", 221, 225, [(16, 10, 24), (), (), ()], ["", axis, "False"]),
        *([at(step, "aten::mul", 230, 235, [(160, 24), ()])] if again else []),
    ]


def test_a_layer_changes_places_with_an_upsampling_and_a_mean() -> None:
    assert found("work.more_rows", upsampled).title == "a layer computes 512 rows where 128 would do"
    assert found("work.more_rows", averaged).title == "a layer computes 160 rows where 16 would do"


def pairs(
    step: int, *, other: Any = (1, 40, 24), power: str = "aten::pow", axis: str = "[-1]", more: Any = ()
) -> list[Row]:
    """Differences of all pairs for 100 us, their power for 100 us and its sum for 50 us."""
    shape = (30, 40, 24)
    return [
        at(step, "aten::sub", 10, 110, [(30, 1, 24), other, ()]),
        at(step, power, 110, 210, [shape, ()], ["", 2]),
        at(step, "aten::sum", 210, 260, [shape, (), (), ()], ["", axis, "False"]),
        *([at(step, "aten::mul", 270, 280, [more, (30, 40, 1)])] if more else []),
    ]


def test_distances_of_all_pairs_are_a_product() -> None:
    one = found("work.pairs", pairs)
    assert one.title == "1,200 pairs of vectors are spread out to 24 values each"
    assert one.recoverable_ns == pytest.approx(250 * US * 0.98, rel=1e-3)
    absolute = found("work.pairs", lambda step: pairs(step, power="aten::abs"))
    assert absolute.recoverable_ns == pytest.approx(250 * US * 0.75, rel=1e-3)
    assert absolute.most_recoverable_ns == pytest.approx(250 * US * (1 + BEYOND), rel=1e-3), "what stays is an estimate"


def test_products_of_all_pairs_are_a_product() -> None:
    made = lambda step: [  # noqa: E731
        at(step, "aten::mul", 10, 110, [(30, 1, 24), (40, 24)]),
        at(step, "aten::sum", 110, 210, [(30, 40, 24), (), (), ()], ["", "[2]", "False"]),
    ]
    assert found("work.pairs", made) is not None


def queue(step: int, *, old: int = 4096, kept: int = 4096, read: bool = False) -> list[Row]:
    """A cat of 32 rows and a queue for 300 us, and the slice behind it."""
    numbered = {"Sequence_number": 100 * step + 1, "Fwd_thread_id": 0} if read else {}
    out = [
        at(step, "aten::cat", 10, 310, [((32, 16), (old, 16)), ()], ["", 0], **numbered),
        at(step, "aten::slice", 312, 314, [(old + 32, 16), (), (), (), ()], ["", 0, 0, kept, 1]),
    ]
    node = at(step, NODE + "CatBackward0", 931, 933, Sequence_number=100 * step + 1, Fwd_thread_id=1)
    return [*out, node] if read else out


def test_a_queue_that_is_made_anew_is_named() -> None:
    one = found("work.rebuilt", queue)
    assert one.title == "a tensor of 4,096 rows is copied to add 32"
    assert one.recoverable_ns == pytest.approx(300 * US * (1 - 32 / 4096), rel=1e-3)


def rolled(step: int) -> list[Row]:
    """A queue that is rolled by 32 rows for 300 us, and the rows that are written there."""
    return [
        at(step, "aten::roll", 10, 310, [(4096, 16), (), ()], ["", "[32]", "[0]"]),
        at(step, "aten::slice", 312, 314, [(4096, 16), (), (), (), ()], ["", 0, 0, 32, 1]),
        at(step, "aten::copy_", 315, 318, [(32, 16), (32, 16), ()]),
    ]


def test_a_roll_that_makes_room_is_one_too() -> None:
    assert found("work.rebuilt", rolled).title == "a tensor of 4,096 rows is copied to add 32"


def masked(step: int, *, mask: Any = (8, 1, 1, 64), kept: int = 16, between: bool = False) -> list[Row]:
    """A layer of 300 us and attention with a mask on 64 rows of 8 sequences, then a gather of some of each."""
    number = 100 * step + 1
    heads = (8, 2, 64, 8)
    dropped = at(step, "aten::gather", 420, 425, [(8, 64, 16), (), (8, kept, 16), ()], ["", 1])
    out = [
        at(step, "aten::linear", 10, 310, [(8, 64, 16), (16, 16)], Sequence_number=number, Fwd_thread_id=0),
        at(step, "aten::scaled_dot_product_attention", 310, 410, [heads, heads, heads, mask]),
        at(step, "aten::gather", 411, 415, [(8, 64, 16), (), (8, 16, 16), ()], ["", 1]) if between else dropped,
        at(step, NODE + "AddmmBackward0", 931, 939, Sequence_number=number, Fwd_thread_id=1),
    ]
    return [*out, dropped] if between else out


def test_rows_that_a_mask_hides_and_that_are_dropped_are_asked_for() -> None:
    one = found("work.masked_rows", masked)
    assert one.title.endswith("attention hides some by a mask, and behind it 25 % of them are used")
    assert one.evidence[0].value == N_STEPS * 408 * US
    assert one.recoverable_ns == 0, "a question promises nothing"
    assert found("work.masked_rows", lambda step: masked(step, between=True)).title.endswith("25 % of them are used")


def multiplied(
    step: int, *, inner: int = 8, between: str = "aten::mul", factor: Any = (), again: bool = False
) -> list[Row]:
    """Two products of 100 us: all pairs of 128 rows, times as many."""
    pairs_of = (4, 128, 128)
    return [
        at(step, "aten::bmm", 10, 110, [(4, 128, inner), (4, inner, 128)]),
        at(step, between, 111, 115, [pairs_of, factor]),
        at(step, "aten::bmm", 120, 220, [pairs_of, (4, 128, inner)]),
        *([at(step, "aten::sum", 230, 235, [pairs_of])] if again else []),
    ]


def low_rank(step: int) -> list[Row]:
    """A layer whose weight is multiplied out of two thin ones."""
    return [
        at(step, "aten::matmul", 10, 110, [(256, 8), (8, 256)]),
        at(step, "aten::linear", 120, 220, [(2, 16, 256), (256, 256)]),
    ]


def twice(step: int) -> list[Row]:
    """Two layers of such products."""
    pairs_of = (4, 128, 128)
    return [
        row
        for begin in (0, 400)
        for row in (
            at(step, "aten::bmm", begin, begin + 100, [(4, 128, 8), (4, 8, 128)]),
            at(step, "aten::bmm", begin + 120, begin + 220, [pairs_of, (4, 128, 8)]),
        )
    ]


def test_three_matrices_in_the_longer_order() -> None:
    one = found("work.long_order", multiplied)
    assert one.recoverable_ns == pytest.approx(200 * US * (1 - 8 / 128), rel=1e-3)
    assert found("work.long_order", twice).evidence[0].value == N_STEPS * 400 * US
    assert found("work.long_order", low_rank).recoverable_ns == pytest.approx(
        200 * US * (1 - 2 * 32 * 256 * 8 / (256 * 8 * 256 + 32 * 256 * 256)), rel=1e-3
    )


def fetched(
    step: int,
    *,
    shape: Any = (16_000, 1000),
    strides: Any = (1, 16_000),
    taken: Any = (256, 1000),
    turned: bool = False,
    read: bool = False,
) -> list[Row]:
    """Rows that an index takes in 300 us, and a layer on them."""
    number = {"Sequence_number": 100 * step + 1}
    of_forward = {**number, "Fwd_thread_id": 0} if read else {}
    return [
        *([at(step, "aten::transpose", 5, 8)] if turned else []),
        at(step, "aten::index", 10, 310, [shape, ()], ["", ""], Input_Strides=[[*strides], []], **of_forward),
        at(step, "aten::relu", 320, 330, [taken]),
        *([at(step, NODE + "IndexBackward0", 931, 939, Fwd_thread_id=1, **number)] if read else []),
    ]


def test_rows_of_a_matrix_that_lies_by_columns_are_named() -> None:
    one = found("work.by_columns", fetched)
    assert one.title == "rows are gathered from a matrix of 16,000 x 1,000 that lies by columns"
    assert one.evidence[0].value == N_STEPS * 300 * US
    assert one.recoverable_ns == pytest.approx(300 * US * 0.9, rel=1e-3)


HEALTHY = {
    "work.more_rows": {
        "few are copies": (on_gathered, {"rows": 600}),
        "a layer on something else": (on_gathered, {"taken": 320}),
        "dropout": (on_gathered, {"between": "aten::dropout"}),
        "each row with something of its own": (on_gathered, {"between": "aten::add"}),
        "more channels": (upsampled, {"channels": 32}),
        "neighbours": (upsampled, {"kernel": 3}),
        "a mean of each row": (averaged, {"axis": "[-1]"}),
        "a mean of all": (averaged, {"axis": ""}),
        "the rows are read as well": (averaged, {"again": True}),
    },
    "work.pairs": {
        "rows with rows": (pairs, {"other": (30, 1, 24)}),
        "a sum over others": (pairs, {"axis": "[1]"}),
        "no distance": (pairs, {"power": "aten::exp"}),
        "the differences are used again": (pairs, {"more": (30, 40, 24)}),
    },
    "work.rebuilt": {
        "parts of like size": (queue, {"old": 64, "kept": 64}),
        "it grows": (queue, {"kept": 4128}),
        "a part of the model": (queue, {"read": True}),
    },
    "work.masked_rows": {
        "a causal mask": (masked, {"mask": (8, 1, 64, 64)}),
        "no mask": (masked, {"mask": ()}),
        "one row is pooled": (masked, {"kept": 1}),
        "a head on masked words": (masked, {"kept": 8}),
        "most are used": (masked, {"kept": 56}),
    },
    "work.long_order": {
        "the shorter order": (multiplied, {"inner": 256}),
        "a softmax between": (multiplied, {"between": "aten::softmax"}),
        "a mask between": (multiplied, {"factor": (4, 128, 128)}),
        "the pairs are read": (multiplied, {"again": True}),
    },
    "work.by_columns": {
        "by rows": (fetched, {"strides": (1000, 1)}),
        "small": (fetched, {"shape": (160, 1000), "strides": (1, 160), "taken": (16, 1000)}),
        "columns are taken": (fetched, {"taken": (16_000, 64)}),
        "turned right before": (fetched, {"turned": True}),
        "of the model": (fetched, {"read": True}),
    },
}


@pytest.mark.parametrize(("finding_id", "drawn"), twins(HEALTHY))
def test_work_that_no_smaller_tensors_would_do_is_fine(finding_id: str, drawn: Any) -> None:
    made, how = drawn
    assert found(finding_id, lambda step: made(step, **how)) is None
