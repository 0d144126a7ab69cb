"""The rows of a side: what each is, and what a sum of rows means per step."""

import numpy as np

from profkit.compare.captures.contention import pooled
from profkit.compare.captures.measured import measured
from profkit.compare.captures.work_rows import _usual_operator
from tests.compare.drawn import K, N, job


def test_a_sum_of_rows_is_the_mean_of_runs_of_ranks_per_step() -> None:
    runs = (
        (measured(job([K(at=10, us=100)], n_steps=5)),),
        (measured(job([K(at=10, us=200)], n_steps=4)), measured(job([K(at=10, us=300)], n_steps=3))),
    )
    pool = pooled(runs, lambda trace: trace.compute)
    (total,) = pool.total_ns(pool.alone).values()
    assert round(total) == (100 + (200 + 300) / 2) / 2 * 1000


def test_rows_under_communication_and_alone() -> None:
    kernels = [K(at=0, us=100), K(at=200, us=100), N(at=220, us=80), K(at=400, us=100), N(at=405, us=45)]
    pool = pooled(((measured(job(kernels)),),), lambda trace: trace.compute)
    assert np.round(pool.other_share.reshape(5, 3)[0], 3).tolist() == [0, 0.8, 0.45]
    assert pool.under.reshape(5, 3).tolist() == [[False, True, False]] * 5
    assert pool.alone.reshape(5, 3).tolist() == [[True, False, False]] * 5


def test_a_kernel_whose_launch_is_cut_off_gets_its_usual_operator() -> None:
    name = np.array([0, 0, 0, 0, 1, 1, 2], np.int32)
    operator = np.array([9, 7, 7, -1, -1, 3, -1])
    assert _usual_operator(name, operator).tolist() == [9, 7, 7, 7, 3, 3, -1]
