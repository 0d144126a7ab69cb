"""DDP's gradient buckets on one rank: too small, one too large, and what is neither."""

from functools import partial
from typing import Any

import pytest

from profkit.testing import Row, operator, span
from tests.drawing import ACCUMULATES, BASE, NCCL, NODE, US, finding_in, in_steps, launched

STEP, N_STEPS = 10_000 * US, 6
DDP = "DistributedDataParallel.forward"
MB = 250_000
"""Elements of four bytes in a megabyte."""
Bucket = tuple[int, int, int]
"""When its all-reduce begins in a step and how long it takes, us; its elements."""


def job(
    *buckets: Bucket,
    n_tensors: int = 5,
    node: str = ACCUMULATES,
    forward: str = DDP,
    compute_until: int = 5000,
    is_told: bool = True,
) -> list[Row]:
    """Steps of 10 ms: compute from 100 us on, an all-reduce for each bucket, asked for where gradients are ready."""

    def drawn(at: int, step: int) -> list[Row]:
        first = 1000 * (step + 1)
        rows = [operator(forward, at + 50 * US, at + 90 * US)]
        rows += launched("gemm", at + 60 * US, at + 100 * US, at + compute_until * US, first)
        for number, (start, length, n) in enumerate(buckets, first + 1):
            asked, begin = at + (start - 40) * US, at + start * US
            rows += [operator(node, asked - 5 * k * US, asked - (5 * k - 4) * US) for k in range(1, n_tensors)]
            rows.append(operator(node, asked, asked + 30 * US))
            rows.append(operator("c10d::allreduce_", asked + 5 * US, asked + 25 * US))
            told = {"Collective name": "allreduce", "dtype": "Float", "Group size": 8}
            told = told | {"In msg nelems": n, "Out msg nelems": n} if is_told else {}
            rows += launched(NCCL, asked + 10 * US, begin, begin + length * US, number, stream=20, **told)
        return rows

    return in_steps(N_STEPS, STEP, drawn, begin_ns=BASE)


found = partial(finding_in, finding_id="comm.buckets")
LARGE: Bucket = (500, 1000, 40 * MB)
"""40 GB/s is what the links give."""
SMALL: list[Bucket] = [(5000 + 200 * i, 100, MB // 10) for i in range(12)]
"""0.1 MB in 100 us, 1 GB/s, where no compute hides them."""


def test_many_small_buckets_are_limited_by_latency() -> None:
    one = found(job(LARGE, *SMALL))
    assert one.title == "DDP reduces gradients in many small buckets"
    assert one.recoverable_ns == pytest.approx(12 * 97.5 * US, rel=1e-3)  # at 40 GB/s each takes 2.5 us
    assert one.evidence[0].statement.startswith(
        "12 buckets per step, 100 kB each (median), reach 1.00 GB/s; large ones (40.0 MB) 40.0 GB/s"
    )
    assert "bucket_cap_mb=25" in one.fix


@pytest.mark.parametrize(
    "buckets",
    [
        [LARGE, *SMALL[:7]],
        [LARGE, *((start, 4, n) for start, _, n in SMALL)],
        SMALL,
        [LARGE, *((1600 + 200 * i, 100, MB // 10) for i in range(12))],
        [LARGE, *SMALL[:4], (7000, 2000, MB // 10), (9100, 800, MB // 10)],
        [(500, 1000, 40 * MB), (1600, 1000, 40 * MB), (4600, 450, 18 * MB)],
    ],
    ids=["few", "fast enough", "all alike", "under compute", "two wait", "as DDP makes them"],
)
def test_buckets_that_fit(buckets: list[Bucket]) -> None:
    assert found(job(*buckets)) is None


def test_one_bucket_after_the_backward_pass() -> None:
    one = found(job((5000, 3000, 200 * MB), n_tensors=40))
    assert one.title == "DDP reduces most gradients in one bucket, after the backward pass"
    assert one.recoverable_ns == pytest.approx(3000 * US * (1 - 25 * 2**20 / 200e6), rel=1e-3)
    assert "the last bucket of a step holds 200 MB, 100.0 % of its gradients" in one.evidence[0].statement
    assert one.fix.startswith("bucket_cap_mb=25:")


def test_a_bucket_below_the_default_size_is_split_as_well() -> None:
    one = found(job((5000, 1000, 16 * MB), n_tensors=40))
    assert one.fix.startswith("bucket_cap_mb=4:")
    assert one.recoverable_ns == pytest.approx(750 * US, rel=1e-3)


@pytest.mark.parametrize(
    ("bucket", "more"),
    [
        ((2000, 2900, 100 * MB), {}),
        ((5000, 3000, 100 * MB), {"n_tensors": 2}),
        ((5000, 3000, MB // 2), {}),
        ((5000, 300, 100 * MB), {}),
        ((5000, 3000, 100 * MB), {"node": NODE + "ReduceBackward0"}),
        ((5000, 3000, 100 * MB), {"forward": "FullyShardedDataParallel.forward"}),
        ((5000, 3000, 100 * MB), {"is_told": False}),
    ],
    ids=["hidden", "one tensor", "waits", "short", "not of a gradient", "not DDP", "no sizes"],
)
def test_last_buckets_of_which_nothing_is_said(bucket: Bucket, more: dict[str, Any]) -> None:
    assert found(job(bucket, **{"n_tensors": 40, **more})) is None


def cpu_job(*buckets: Bucket, typed: str = "float", n_ranges: int = 1, shape: Any = None) -> list[Row]:
    """The same with gloo, whose ranges are on a thread of their own; shapes are recorded."""

    def drawn(at: int, _: int) -> list[Row]:
        rows = [operator(DDP, at + 50 * US, at + 90 * US), operator("aten::mm", at + 100 * US, at + 400 * US)]
        for start, length, n in buckets:
            asked, begin = at + (start - 40) * US, at + start * US
            gradient = {"Input_Dims": [[n]], "Input_type": [typed]}
            given = {"Input_Dims": [[shape or [n]], []], "Input_type": ["TensorList", ""]}
            rows += [
                operator(ACCUMULATES, asked, asked + 30 * US),
                operator("torch::autograd::AccumulateGrad", asked + US, asked + 3 * US, **gradient),
                operator("c10d::allreduce_", asked + 5 * US, asked + 25 * US, **given),
                *[span("gloo:all_reduce", begin, begin + length * US, tid=99)] * n_ranges,
            ]
        return rows

    return in_steps(N_STEPS, STEP, drawn, begin_ns=BASE)


def test_with_gloo_sizes_are_those_of_recorded_shapes() -> None:
    one = found(cpu_job(LARGE, *SMALL))
    assert "12 buckets per step, 100 kB each" in one.evidence[0].statement
    halved = found(cpu_job(LARGE, *SMALL, typed="c10::BFloat16"))
    assert "12 buckets per step, 50.0 kB each" in halved.evidence[0].statement


@pytest.mark.parametrize("more", [{"typed": ""}, {"n_ranges": 2}, {"shape": ["x", [2]]}, {"shape": [-5]}])
def test_with_gloo_what_is_not_known_is_not_said(more: dict[str, Any]) -> None:
    assert found(cpu_job(LARGE, *SMALL, **more)) is None
