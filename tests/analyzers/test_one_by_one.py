"""Tensors that a script reduces one after another: named where the messages are what takes the time."""

from typing import Any

import pytest
from msgspec.structs import replace

from profkit.testing import Row, operator, span
from tests.drawing import ACCUMULATES, BASE, NCCL, US, finding_in, in_steps, launched
from tests.drawing import NODE as EVALUATES

N_STEPS, STEP = 5, 10_000 * US
DDP, NODE = "DistributedDataParallel.forward", EVALUATES + "AddmmBackward0"


def job(
    *lengths_us: int,
    on_gpu: bool = False,
    request: str = "c10d::allreduce_",
    other: str = "",
    node: str = "",
    apart_us: int = 50,
    has_forward: bool = False,
) -> Any:
    """What is said of steps with a backward pass and these collectives after it; None for nothing.

    `has_forward`: before each runs a forward operator of the next backward pass.
    """

    def drawn(at: int, step: int) -> list[Row]:
        rows = [operator(other, at, at + 10 * US)] if other else []
        rows.append(operator("aten::mm", at + 100 * US, at + 900 * US))
        rows.append(operator(NODE, at + 1000 * US, at + 1900 * US))
        begin = at + 2000 * US
        for number, length in enumerate(lengths_us, 1000 * step + 1):
            if has_forward:
                back = at + 9000 * US + 10 * (number % 1000) * US
                rows.append(operator("aten::mm", begin - 40 * US, begin, Sequence_number=number, Fwd_thread_id=0))
                rows.append(operator(NODE, back, back + 5 * US, Sequence_number=number, Fwd_thread_id=1))
            rows += [operator(node, begin - US, begin + 15 * US)] if node else []
            rows.append(operator(request, begin, begin + 10 * US))
            edges = begin + 10 * US, begin + (10 + length) * US
            if on_gpu:
                rows += launched(NCCL, begin + 2 * US, *edges, number, stream=20)
            else:
                rows.append(span("gloo:all_reduce", *edges, tid=99))
            begin += (length + apart_us) * US
        if on_gpu:
            rows += launched("gemm", at + 200 * US, at + 220 * US, at + 900 * US, 1000 * step + 500)
        return rows

    return finding_in(in_steps(N_STEPS, STEP, drawn, begin_ns=BASE), "comm.one_by_one")


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_collective_for_each_tensor(on_gpu: bool) -> None:
    one = job(*[100] * 20, on_gpu=on_gpu)
    assert one.title == "20 collectives one after another, one for each tensor"
    assert one.fraction == pytest.approx(19 * 150 / 10_000)
    assert "DistributedDataParallel" in one.fix


def test_a_third_of_latency_is_told_with_its_own_saving() -> None:
    """On busy cores messages that wait for one are longer than what each needs."""
    one = job(*[100] * 4, *[300] * 16)
    assert one.fraction == pytest.approx(19 * 150 / 10_000)


def test_those_that_run_beside_each_other_cost_no_more_than_the_time_of_all() -> None:
    one = job(*[100] * 60, apart_us=-80)
    assert one.fraction == pytest.approx((59 * 20 + 100) / 10_000)


@pytest.mark.parametrize(
    ("lengths", "more"),
    [
        ([100] * 7, {}),
        ([100, 100, *[900] * 7], {}),
        ([100] * 20, {"request": "c10d::allgather_"}),
        ([100] * 20, {"request": "c10d::send", "has_forward": True}),
        ([100] * 20, {"node": ACCUMULATES}),
        ([100] * 20, {"node": ACCUMULATES, "other": DDP}),
    ],
    ids=["few", "large ones", "of another kind", "of micro-batches", "in backward", "DDP"],
)
def test_what_is_not_one_by_one(lengths: list[int], more: dict[str, Any]) -> None:
    assert job(*lengths, **more) is None


def asked_for(request: str, at: int, length_us: int) -> list[Row]:
    """A collective of the script's, and a bucket that DDP reduces behind it."""
    return [
        operator(request, at + 100 * US, at + 110 * US),
        span("gloo:other", at + 110 * US, at + (100 + length_us) * US, tid=99),
        operator(ACCUMULATES, at + 6000 * US, at + 6100 * US),
        operator("c10d::allreduce_", at + 6010 * US, at + 6020 * US),
        span("gloo:all_reduce", at + 6030 * US, at + 6300 * US, tid=99),
    ]


def beside_ddp(length_us: int, request: str = "c10d::allgather_", *, in_pass: bool = False) -> Any:
    """What is said of a collective of the script's, or of DDP's forward pass, beside a reduced bucket in each step."""

    def drawn(at: int, _: int) -> list[Row]:
        forward = span(DDP, at + 10 * US if in_pass else at + 5000 * US, at + 5900 * US)
        return [forward, *asked_for(request, at, length_us), operator("aten::mm", at + 5100 * US, at + 5800 * US)]

    return finding_in(in_steps(N_STEPS, STEP, drawn, begin_ns=BASE), "comm.asked")


@pytest.mark.parametrize(
    ("request_", "kind", "fix"),
    [
        ("c10d::allgather_", "all-gather", "gather only what is needed"),
        ("c10d::_allgather_base_", "all-gather", "gather only what is needed"),
        ("c10d::gather_", "gather", "gather only what is needed"),
        ("c10d::broadcast_", "broadcast", "let each rank read or draw its own part"),
        ("c10d::scatter_", "scatter", "let each rank read or draw its own part"),
        ("c10d::allreduce_", "all-reduce", "add up metrics and losses"),
        ("c10d::reduce_", "reduce", "add up metrics and losses"),
    ],
)
def test_what_the_script_asks_for_beside_ddp(request_: str, kind: str, fix: str) -> None:
    one = beside_ddp(1000, request_)
    assert one.fraction == pytest.approx(0.1)
    assert one.mostly == kind
    assert f"mostly {kind}, beside" in one.title
    assert one.fix.startswith(fix)


def gathered(
    *behind: Row, is_read: bool = False, request: str = "c10d::allgather_", in_function: bool = False, ddp: bool = True
) -> Any:
    """What is said of a gather of 1 ms with these operators behind it; `is_read`: a backward node reads the first."""

    def drawn(at: int, step: int) -> list[Row]:
        rows = [span(DDP, at + 5000 * US, at + 5900 * US)] if ddp else []
        rows += [operator("ShardedSoftmax", at + 50 * US, at + 4000 * US)] if in_function else []
        rows += asked_for(request, at, 1000)
        rows += [
            replace(one, start_ns=at + one.start_ns, end_ns=at + one.end_ns, args={"Sequence number": 2 * step + place})
            for place, one in enumerate(behind, 0 if is_read else 100)
        ]
        if is_read:
            rows.append(operator(NODE, at + 5910 * US, at + 5940 * US, Sequence_number=2 * step, Fwd_thread_id=1))
        rows.append(operator("aten::mm", at + 5100 * US, at + 5800 * US, Sequence_number=1000 + step))
        rows.append(operator(NODE, at + 5950 * US, at + 5990 * US, Sequence_number=1000 + step, Fwd_thread_id=1))
        return rows

    rows = in_steps(N_STEPS, STEP, drawn, begin_ns=BASE)
    return finding_in(rows, "comm.asked", distributedInfo={"backend": "gloo", "rank": 0, "world_size": 2})


def test_what_works_on_what_was_gathered_goes_with_it() -> None:
    """The rows of all side by side, and half of the work on them: of two ranks the other's."""
    alone = gathered()
    one = gathered(operator("aten::cat", 1200 * US, 1600 * US), operator("aten::argmax", 1700 * US, 2300 * US))
    assert one.fraction == alone.fraction == pytest.approx(0.1)
    assert one.recoverable_ns - alone.recoverable_ns == pytest.approx((400 + 300) * US)
    assert one.most_recoverable_ns >= alone.recoverable_ns + 1000 * US, "all of that work, and what any cause takes"
    assert "take another 1.00 ms per step" in one.evidence[1].statement


def test_a_gather_in_a_job_without_ddp_is_the_scripts_too() -> None:
    """A softmax over classes that ranks share, in an autograd function: all logits gathered, computed on twice."""
    behind = operator("aten::cat", 1200 * US, 1600 * US), operator("aten::_log_softmax", 1700 * US, 2300 * US)
    one = gathered(*behind, in_function=True, ddp=False)
    assert one.title == "the script itself asks for 1 collective a step, mostly all-gather"
    assert one.recoverable_ns == gathered(*behind).recoverable_ns
    for weights in ("c10d::_allgather_base_", "c10d::allreduce_"):
        assert gathered(*behind, request=weights, ddp=False) is None, "FSDP's, or gradients"


def test_what_trains_is_no_work_on_what_was_gathered() -> None:
    one = gathered(
        operator("aten::mm", 1200 * US, 1600 * US), operator("aten::add", 1700 * US, 2300 * US), is_read=True
    )
    assert one.recoverable_ns == gathered().recoverable_ns


def test_little_and_what_ddp_sends_itself_is_not_the_scripts() -> None:
    assert beside_ddp(300) is None
    assert beside_ddp(2000, "c10d::barrier") is None, "what it takes is waiting"
    assert beside_ddp(1000, "c10d::broadcast_", in_pass=True) is None
