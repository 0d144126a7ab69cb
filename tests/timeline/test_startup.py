"""What of a recording is no step yet: uploads, warm-up, first steps that are held up."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.model.documents.report import Bottleneck
from profkit.testing import kernel, launch, trace_of
from profkit.timeline import Facts
from profkit.timeline.first_use import first_use
from tests.metamorphic import Job, triaged

MS = 1_000_000


def whole_script(*, warm_up: str = "", n_passes: int = 6, odd: bool = True) -> Job:
    """A model is copied to the device for 200 ms, then come passes of 40 kernels that keep the device busy.

    No two passes are alike, so that no period is found.
    """
    job = Job()

    def passes(n: int) -> None:
        for number in range(n):
            for k in range(40):
                job.launch(MS, name=f"gemm_{k * (number + 1 if odd else 1)}")
            job.synchronise()

    def upload() -> None:
        for _ in range(100):
            job.copy(2 * MS, is_pageable=True)

    upload()
    if warm_up:
        job.range(warm_up, lambda: (passes(1), job.work(100 * MS)))
    passes(n_passes)
    return job


def test_the_upload_of_the_model_is_no_part_of_the_window(tmp_path: Path) -> None:
    report = triaged(whole_script().rows, tmp_path)
    assert report.verdict.bottleneck is Bottleneck.KERNEL
    assert report.ranks[0].devices[0].budget.fraction("compute") > 0.97
    (said,) = [caveat for caveat in report.verdict.caveats if "left out" in caveat]
    assert said.startswith("copies before the first kernel and the idle time there, 20")


@pytest.mark.parametrize("name", ["warmup", "Warm-up Step 3", "init_model"])
def test_what_a_range_calls_warm_up_is_left_out(name: str, tmp_path: Path) -> None:
    report = triaged(whole_script(warm_up=name).rows, tmp_path)
    assert report.ranks[0].devices[0].budget.fraction("compute") > 0.97
    assert any(f"before the end of {name}" in caveat for caveat in report.verdict.caveats)


def test_a_range_that_holds_the_job_is_the_job(tmp_path: Path) -> None:
    """Nothing of weight comes behind it, whatever it is called."""
    job = Job()
    job.range("init_and_run", lambda: [job.launch(MS, name=f"gemm_{k * k}") for k in range(60)])
    job.work(5 * MS)
    job.launch(MS)
    report = triaged(job.rows, tmp_path)
    assert not any("left out" in caveat for caveat in report.verdict.caveats)


def test_a_first_step_that_is_held_up_is_no_step(tmp_path: Path) -> None:
    """Six passes of one sequence of kernels, the first of them 500 ms late at its second kernel."""
    job = Job()
    for number in range(7):
        job.copy(100_000)
        for k in range(20):
            job.launch(100_000, name=f"gemm_{k}")
            if number == 0 and k == 0:
                job.work(500 * MS)
        job.synchronise()
    report = triaged(job.rows, tmp_path)
    assert report.verdict.step_ns == pytest.approx(2.1 * MS, rel=0.05)
    assert report.ranks[0].steps.n == 5
    assert any("steps found by their period: 5" in caveat and "left out" in caveat for caveat in report.verdict.caveats)


def test_what_follows_the_job_is_no_step(tmp_path: Path) -> None:
    """Ten passes of one sequence of kernels, then an evaluation whose workers start for 500 ms, twice."""
    job = Job()
    for number in range(12):
        job.copy(100_000)
        for k in range(20):
            job.launch(100_000, name=f"gemm_{k}")
            if number >= 10 and k == 0:
                job.work(500 * MS)
        job.synchronise()
    report = triaged(job.rows, tmp_path)
    assert report.verdict.step_ns == pytest.approx(2.1 * MS, rel=0.05)
    assert any("left out" in caveat for caveat in report.verdict.caveats)


@pytest.mark.parametrize(("name", "is_first"), [("softmax", True), ("gemm", False)], ids=["a new kernel", "an old one"])
def test_a_first_launch_that_takes_long_loads_its_kernel(name: str, is_first: bool) -> None:
    """Forty launches of 5 us, one of 5 ms among them: of a kernel that ran before, it is something else."""
    rows, at = [], 10**9
    for n in range(40):
        takes = 5_000_000 if n == 20 else 5_000
        rows.append(launch(at, at + takes, correlation=n + 1))
        rows.append(kernel(name if n == 20 else "gemm", at + takes, at + takes + 10_000, correlation=n + 1))
        at += takes + 20_000
    facts = Facts.of(trace_of(rows))
    found = first_use(facts.trace, facts.op_of_call)
    assert found is not None
    assert found.loading.total_ns == (5_000_000 if is_first else 0)
