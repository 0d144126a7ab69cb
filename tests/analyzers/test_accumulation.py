"""Gradients that are reduced after each micro-batch: counted, and told from all else that reduces several times."""

from functools import partial
from typing import Any

import pytest

from profkit.testing import Row, operator, span
from tests.drawing import ACCUMULATES, BASE, NCCL, US, finding_in, in_steps, launched

PASS = 5_000 * US
N_UPDATES = 5
DDP = "DistributedDataParallel.forward"


def job(
    reduces: tuple[int, ...],
    adds: tuple[int, ...],
    *,
    on_gpu: bool = False,
    forward: str = DDP,
    node: str = ACCUMULATES,
    request: str = "c10d::allreduce_",
    n_optimizers: int = 1,
) -> list[Row]:
    """Updates of as many passes as `reduces` has entries: requests of 1 ms each, and gradients that are added to."""

    def drawn(first: int, update: int) -> list[Row]:
        rows: list[Row] = []
        for number, (n_requests, n_adds) in enumerate(zip(reduces, adds, strict=True)):
            at, key = first + number * PASS, 1000 * update + 100 * number
            rows.append(operator(forward, at, at + 100 * US))
            rows.append(operator("aten::mm", at + 100 * US, at + 900 * US))
            for k in range(max(n_requests, n_adds, 1)):
                begin = at + (1000 + 1200 * k) * US
                rows.append(operator(node, begin, begin + 200 * US))
                rows += [operator("aten::add_", begin + 10 * US, begin + 20 * US)] * (k < n_adds)
                rows += [operator(request, begin + 50 * US, begin + 150 * US)] * (k < n_requests)
                start = begin + 150 * US
                if k < n_requests and on_gpu:  # the host is a pass ahead
                    rows += launched(
                        NCCL, begin + 60 * US, start + PASS, start + PASS + 1000 * US, key + k + 1, stream=20
                    )
                elif k < n_requests:
                    rows.append(span("gloo:all_reduce", start, start + 1000 * US, tid=99))
            if on_gpu:
                rows += launched("gemm", at + 200 * US, at + PASS + 220 * US, at + PASS + 900 * US, key + 50)
            if number >= len(reduces) - n_optimizers:
                rows.append(span("Optimizer.step#SGD.step", at + 4600 * US, at + 4700 * US))
        return rows

    return in_steps(N_UPDATES, len(reduces) * PASS, drawn, begin_ns=BASE)


found = partial(finding_in, finding_id="comm.accumulation")
FSDP = {
    "forward": "FSDP::root_pre_forward",
    "node": "FSDP::post_backward_reduce (b.0)",
    "request": "c10d::_reduce_scatter_base_",
}


@pytest.mark.parametrize(
    ("n", "more", "fix"),
    [
        (4, {}, "no_sync()"),
        (2, {}, "no_sync()"),
        (3, {"on_gpu": True}, "no_sync()"),
        (4, FSDP, "set_requires_gradient_sync"),
    ],
)
def test_each_micro_batch_reduces(n: int, more: dict[str, Any], fix: str) -> None:
    one = found(job((2,) * n, (0,) + (2,) * (n - 1), **more))
    assert one.title == f"gradients are reduced {n} times for each update: after each of {n} micro-batches"
    assert fix in one.fix
    # of 5 ms a pass two collectives have 2 ms or, on a CPU, with what asks for them and waits, up to 2.4 ms
    assert 2.0 <= one.fraction * n * 5 / (n - 1) <= 2.5


@pytest.mark.parametrize(
    ("reduces", "adds", "more"),
    [
        ((2,), (0,), {}),
        ((0, 0, 0, 2), (0, 2, 2, 2), {}),
        ((2, 2), (0, 0), {}),
        ((2, 2), (2, 2), {}),
        ((2, 1), (0, 2), {}),
        ((2, 2), (0, 2), {"n_optimizers": 2}),
        ((2, 2), (0, 2), {"forward": "forward"}),
        ((2, 2), (0, 2), {"node": "autograd::engine::evaluate_function: ReduceBackward0"}),
    ],
    ids=["a pass", "no_sync", "two models", "zeros", "other buckets", "two optimizers", "not DDP", "not of gradients"],
)
def test_what_is_no_accumulation(reduces: tuple[int, ...], adds: tuple[int, ...], more: dict[str, Any]) -> None:
    assert found(job(reduces, adds, **more)) is None
