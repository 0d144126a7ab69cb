"""Recordings that lost a part of their records, and device times that are off by a constant."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from profkit.model.documents.report import Report
from profkit.testing import Row
from tests.metamorphic import Job, triaged

MS = 1_000_000
N_STEPS = 10
N_KERNELS = 20


def trained() -> Job:
    """Steps of 20 kernels of 1 ms, each launched 100 us after the one before; each step waits for its last kernel."""
    job = Job()

    def body() -> None:
        for k in range(N_KERNELS):
            job.launch(MS, name=f"gemm_{k}")
            job.work(100_000)
        job.synchronise()

    job.steps(N_STEPS, body)
    return job


def is_device(row: Row) -> bool:
    return row.cat in {"kernel", "gpu_memcpy", "gpu_memset"}


def said(report: Report, word: str) -> list[str]:
    return [caveat for caveat in report.verdict.caveats if word in caveat]


def failed(report: Report) -> set[str]:
    return {check.id for check in report.ranks[0].checks if not check.ok}


def without(rows: list[Row], chosen: range) -> list[Row]:
    """The rows without these device rows, by their order."""
    device = [row for row in rows if is_device(row)]
    lost = {id(device[place]) for place in chosen}
    return [row for row in rows if id(row) not in lost]


def test_steps_whose_kernels_were_lost_are_left_out_and_the_others_judged(tmp_path: Path) -> None:
    sound = triaged(trained().rows, tmp_path)
    report = triaged(without(trained().rows, range(6 * N_KERNELS, 8 * N_KERNELS)), tmp_path)
    assert (report.ranks[0].steps.n, failed(report)) == (6, set())
    assert report.verdict.bottleneck is sound.verdict.bottleneck
    assert report.verdict.step_ns == pytest.approx(sound.verdict.step_ns, rel=0.01)
    assert said(report, "lost") == ["records are lost in 2 of 10 steps: only 6 without loss are used"]
    assert not said(sound, "lost")


def test_kernels_that_are_lost_in_every_step_leave_no_verdict(tmp_path: Path) -> None:
    """Each step lacks its first kernel: there is nothing sound to cut out."""
    rows = [row for row in trained().rows if not (is_device(row) and row.name == "gemm_0")]
    report = triaged(rows, tmp_path)
    assert "launches.lost" in failed(report)
    assert report.verdict.bottleneck.value == "inconclusive"
    assert report.ranks[0].steps.n == N_STEPS


def test_a_host_thread_that_vanishes_half_way_leaves_the_steps_before(tmp_path: Path) -> None:
    """The calls of the backward pass, three in four, are no longer recorded from the sixth step on."""
    rows, n = [], 0
    for row in trained().rows:
        n += row.name == "cudaLaunchKernel"
        is_backward = row.name == "cudaLaunchKernel" and n > 6 * N_KERNELS and n % 4
        if not is_backward:
            rows.append(row)
    report = triaged(rows, tmp_path)
    assert report.ranks[0].steps.n == 6
    assert "device.unlinked" not in failed(report)


@pytest.mark.parametrize("off_ns", [300 * MS, -150 * MS])
def test_device_times_that_are_off_by_a_constant_are_put_back(tmp_path: Path, off_ns: int) -> None:
    sound = triaged(trained().rows, tmp_path)
    rows = [
        replace(row, start_ns=row.start_ns + off_ns, end_ns=row.end_ns + off_ns) if is_device(row) else row
        for row in trained().rows
    ]
    report = triaged(rows, tmp_path)
    assert failed(report) == set()
    assert report.verdict.bottleneck is sound.verdict.bottleneck
    budgets = [one.ranks[0].devices[0].budget for one in (sound, report)]
    assert budgets[1].compute == budgets[0].compute
    assert budgets[1].idle_ns == pytest.approx(budgets[0].idle_ns, abs=N_STEPS * 20_000)
    assert len(said(report, "are shifted")) == 1


def test_a_device_that_lags_is_no_clock_that_is_off(tmp_path: Path) -> None:
    """A queue of 300 ms before the first step: without waits for the device nothing says that the clocks part."""
    job = Job()
    for k in range(300):
        job.launch(MS, name=f"warm_{k}")
    for number in range(N_STEPS):
        job.step(number, lambda: [job.launch(MS, name=f"gemm_{k}") for k in range(N_KERNELS)])
    assert not said(triaged(job.rows, tmp_path), "are shifted")


def far_ahead(n_kept: int, *, lost: range = range(0)) -> list[Row]:
    """300 kernels of 1 ms, launched far ahead; the profiler stops at the end of one, and lost some before."""
    job = Job()
    for k in range(300):
        job.launch(MS, name=f"gemm_{k % 7}")
        job.work(30_000)
    return without(without(job.rows, range(n_kept, 300)), lost)


def test_what_a_stopped_profiler_no_longer_hears_of_is_not_lost(tmp_path: Path) -> None:
    """The host was far ahead: what it had launched last had not begun. What is recorded is whole."""
    report = triaged(far_ahead(100), tmp_path)
    assert "launches.lost" not in failed(report)
    assert report.verdict.bottleneck.value == "kernel-bound"
    assert len(said(report, "had not begun when the recording ended")) == 1


@pytest.mark.parametrize(
    ("n_kept", "lost"),
    [(100, range(40, 60)), (300, range(60, 299)), (9, range(0)), (0, range(0))],
    ids=["before", "all but the last", "few", "all"],
)
def test_kernels_lost_among_others_or_nearly_all_are_lost(tmp_path: Path, n_kept: int, lost: range) -> None:
    report = triaged(far_ahead(n_kept, lost=lost), tmp_path)
    assert report.verdict.bottleneck.value == "inconclusive"


@pytest.mark.parametrize(("each_ms", "is_enough"), [(40, True), (1, False)])
def test_few_rows_that_keep_a_device_at_work_are_enough(tmp_path: Path, each_ms: int, is_enough: bool) -> None:
    job = Job()
    for _ in range(5):
        job.launch(each_ms * MS, name="nvkernel_matmult_offload")
        job.work(10_000)
    job.synchronise()
    report = triaged(job.rows, tmp_path)
    assert ("content.tiny" not in failed(report)) is is_enough
    assert report.verdict.bottleneck.value == ("kernel-bound" if is_enough else "inconclusive")
