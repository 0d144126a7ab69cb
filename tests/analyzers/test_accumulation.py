"""Gradients that are reduced after each micro-batch: counted, and told from all else that reduces several times."""

from functools import partial
from typing import Any

import pytest

from profkit.testing import Row, kernel, launch, operator, span
from tests.drawing import finding_in

BASE, US = 10**9, 1000
PASS = 5_000 * US
N_UPDATES = 5
NODE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
DDP = "DistributedDataParallel.forward"


def job(
    reduces: tuple[int, ...],
    adds: tuple[int, ...],
    *,
    on_gpu: bool = False,
    forward: str = DDP,
    node: str = NODE,
    request: str = "c10d::allreduce_",
    n_optimizers: int = 1,
) -> list[Row]:
    """Updates of as many passes as `reduces` has entries: requests of 1 ms each, and gradients that are added to."""
    rows: list[Row] = []
    length = len(reduces) * PASS
    for update in range(N_UPDATES):
        first = BASE + update * length
        rows.append(span(f"ProfilerStep#{update}", first, first + length))
        for number, (n_requests, n_adds) in enumerate(zip(reduces, adds, strict=True)):
            at = first + number * PASS
            rows.append(operator(forward, at, at + 100 * US))
            rows.append(operator("aten::mm", at + 100 * US, at + 900 * US))
            for k in range(max(n_requests, n_adds, 1)):
                begin = at + (1000 + 1200 * k) * US
                key = 1000 * update + 100 * number + k + 1
                rows.append(operator(node, begin, begin + 200 * US))
                if k < n_adds:
                    rows.append(operator("aten::add_", begin + 10 * US, begin + 20 * US))
                if k >= n_requests:
                    continue
                rows.append(operator(request, begin + 50 * US, begin + 150 * US))
                if on_gpu:
                    rows.append(launch(begin + 60 * US, begin + 70 * US, correlation=key))
                    start = begin + PASS + 150 * US  # the host is a pass ahead
                    rows.append(kernel(NCCL, start, start + 1000 * US, correlation=key, stream=20))
                else:
                    rows.append(span("gloo:all_reduce", begin + 150 * US, begin + 1150 * US, tid=99))
            if on_gpu:
                key = 1000 * update + 100 * number + 50
                rows.append(launch(at + 200 * US, at + 210 * US, correlation=key))
                rows.append(kernel("gemm", at + PASS + 220 * US, at + PASS + 900 * US, correlation=key))
            if number >= len(reduces) - n_optimizers:
                rows.append(span("Optimizer.step#SGD.step", at + 4600 * US, at + 4700 * US))
    return rows


found = partial(finding_in, finding_id="comm.accumulation")


@pytest.mark.parametrize(
    ("n", "more", "fix"),
    [
        (4, {}, "no_sync()"),
        (2, {}, "no_sync()"),
        (3, {"on_gpu": True}, "no_sync()"),
        (
            4,
            {
                "forward": "FSDP::root_pre_forward",
                "node": "FSDP::post_backward_reduce (b.0)",
                "request": "c10d::_reduce_scatter_base_",
            },
            "set_requires_gradient_sync",
        ),
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
