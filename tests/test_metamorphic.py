"""What must not change when a trace is told differently, and what must when a known cause is put into it."""

from __future__ import annotations

from pathlib import Path

import pytest

from profkit.model.report import Bottleneck, Report
from profkit.testing import Row
from tests.metamorphic import Job, triaged

MM_NS = 200_000
N_MM = 20


def _train(job: Job, *, n_steps: int = 8, before_sync_ns: int = 0, mm_ns: int = MM_NS) -> None:
    """Run steps of twenty products, each ended by a read of the loss."""
    for number in range(n_steps):
        job.step(number, lambda: _one_step(job, mm_ns))


def _one_step(job: Job, mm_ns: int = MM_NS, n: int = N_MM) -> None:
    for _ in range(n):
        job.op("aten::mm", lambda: job.launch(mm_ns))
    job.synchronise()


def _slowly(job: Job) -> None:
    """Run a step of twenty small products with Python between them."""
    for _ in range(N_MM):
        job.op("aten::mm", lambda: job.launch(20_000))
        job.work(150_000)


def _finding_ids(report: Report) -> set[str]:
    return {finding.id for finding in report.findings}


def _failed(report: Report) -> dict[str, str]:
    return {check.id: check.message for check in report.ranks[0].checks if not check.ok}


def test_the_plain_job_is_bound_by_its_kernels(tmp_path: Path) -> None:
    job = Job()
    _train(job)
    report = triaged(job.rows, tmp_path)
    assert report.verdict.bottleneck is Bottleneck.KERNEL
    assert report.verdict.is_healthy
    assert report.ranks[0].devices[0].budget.compute == 8 * N_MM * MM_NS
    assert _failed(report) == {}


def test_allocator_calls_cost_no_more_than_the_idle_time_they_make(tmp_path: Path) -> None:
    job = Job()

    def allocate() -> None:  # 1 ms in the driver, of which the product before it hides 0.2 ms less what the host took
        job.synchronise(call="Malloc", cost_ns=1_000_000)

    def body() -> None:
        for _ in range(10):
            job.op("aten::empty", allocate)
            job.op("aten::mm", lambda: job.launch(MM_NS))

    for number in range(6):
        job.step(number, body)
    report = triaged(job.rows, tmp_path)
    budget = report.ranks[0].devices[0].budget
    ceiling = report.verdict.speedup_ceiling
    assert report.verdict.bottleneck is Bottleneck.MEMORY
    assert ceiling is not None
    assert ceiling <= budget.window_ns / budget.compute
    assert report.verdict.recoverable_ns * 6 <= budget.window_ns - budget.compute


def test_a_loader_on_a_thread_that_launches_nothing_does_not_show_that_the_step_waits(tmp_path: Path) -> None:
    job, waits = Job(), []

    def body() -> None:
        start = job.now_ns
        for _ in range(20):
            job.op("aten::mm", lambda: job.launch(20_000), dispatch_ns=20_000)
            job.work(150_000)
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        waits.append(Row(name=name, cat="user_annotation", start_ns=start, end_ns=job.now_ns - 1_000, tid=2222))

    for number in range(6):
        job.step(number, body)
    report = triaged([*job.rows, *waits], tmp_path)
    assert report.verdict.bottleneck is not Bottleneck.DATA
    assert "input.starved" not in _finding_ids(report)
    assert report.ranks[0].devices[0].budget.idle_data == 0


@pytest.mark.parametrize("n_steps", [6, 10, 40])
def test_one_stall_in_one_step_is_not_said_of_each_step(n_steps: int, tmp_path: Path) -> None:
    job = Job()

    def checkpoint() -> None:
        _one_step(job)
        job.work(100_000_000)

    for number in range(n_steps):
        job.step(number, checkpoint if number == 3 else lambda: _one_step(job))
    report = triaged(job.rows, tmp_path)
    assert "host.launch_bound" not in _finding_ids(report)
    assert "of each step" not in report.verdict.headline
    if n_steps < 40:  # the stall is 71 % and 54 % of the window
        assert report.verdict.bottleneck is Bottleneck.INCONCLUSIVE
        assert "host.stall" in _finding_ids(report)


def test_what_the_host_does_every_fourth_step_is_no_start_up(tmp_path: Path) -> None:
    job = Job()

    def log() -> None:
        _one_step(job)
        job.work(20_000_000)

    for number in range(12):
        job.step(number, log if number % 4 == 1 else lambda: _one_step(job))
    report = triaged(job.rows, tmp_path)
    assert "host.stall" not in _finding_ids(report)
    assert report.verdict.bottleneck in {Bottleneck.OVERHEAD, Bottleneck.SYNC}


def test_one_wait_for_data_is_not_said_of_each_step(tmp_path: Path) -> None:
    job = Job()

    def fetch() -> None:
        job.range("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", lambda: job.work(100_000_000))
        _one_step(job)

    for number in range(10):
        job.step(number, fetch if number == 4 else lambda: _one_step(job))
    report = triaged(job.rows, tmp_path)
    assert report.verdict.bottleneck is Bottleneck.DATA
    assert "once, not every step" in report.verdict.headline
    assert "of each step" not in report.verdict.headline


def test_idle_time_in_which_the_profiler_itself_worked_is_not_the_jobs(tmp_path: Path) -> None:
    job, flushes = Job(), []

    def body() -> None:
        _one_step(job)
        start = job.now_ns
        job.work(3_000_000)
        flushes.append(Row(name="Buffer Flush", cat="overhead", start_ns=start, end_ns=job.now_ns, pid=-1, tid=0))

    for number in range(8):
        job.step(number, body)
    report = triaged([*job.rows, *flushes], tmp_path)
    assert "profiler.overhead" in _failed(report)
    assert report.verdict.bottleneck is Bottleneck.INCONCLUSIVE
    assert report.verdict.recoverable_ns == 0


def test_markers_that_the_device_does_not_keep_up_with_are_no_step_times(tmp_path: Path) -> None:
    job = Job()

    def body() -> None:  # 1.6 ms of the host, 20 ms of the device
        for _ in range(20):
            job.op("aten::mm", lambda: job.launch(1_000_000), dispatch_ns=80_000)

    for number in range(5):
        job.step(number, body)
    job.synchronise()
    report = triaged(job.rows, tmp_path)
    assert report.verdict.step_ns == 1_680_000
    assert "steps.outrun" in _failed(report)
    # the first product starts 45 us after its step, then 100 take 1 ms each and 1 us between
    assert "20.0 ms for the work of a step" in _failed(report)["steps.outrun"]
    assert report.verdict.confidence <= 0.6


def test_two_processes_that_share_numbers_of_launches_are_not_mixed_up(tmp_path: Path) -> None:
    one, two = Job(), Job(pid=2000, device=1)
    _train(one)
    for number in range(8):
        two.step(number, lambda: _slowly(two))
    alone = triaged(two.rows, tmp_path).ranks[0].devices[0].budget
    both = triaged([*one.rows, *two.rows], tmp_path)
    second = next(device for device in both.ranks[0].devices if device.device == 1).budget
    assert alone.idle_dependency < 0.01 * alone.window_ns
    assert second.idle_dependency < 0.01 * second.window_ns
    assert "device.unlinked" in _failed(both)
    assert any("processes" in warning for warning in both.ranks[0].warnings)


def test_fusing_does_not_reach_over_the_end_of_a_step(tmp_path: Path) -> None:
    job = Job()

    def body() -> None:
        for _ in range(4):
            job.op("aten::add", lambda: job.launch(MM_NS, name="void at::native::vectorized_elementwise_kernel<4>"))
        job.synchronise()

    for number in range(10):
        job.step(number, body)
    report = triaged(job.rows, tmp_path)
    finding = next(finding for finding in report.findings if finding.id == "kernel.unfused")
    assert finding.recoverable_ns == 3 * MM_NS  # of four, one is left


def _with_copies(job: Job, n_steps: int, *, is_marked: bool = True) -> None:
    """Run steps that begin with 2 ms of the loader and a copy of 1 ms, which nothing hides."""
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

    def body() -> None:
        job.range(name, lambda: job.work(2_000_000))
        job.copy(1_000_000, is_pageable=True)
        _one_step(job)

    for number in range(n_steps):
        job.step(number, body) if is_marked else body()


def test_steps_found_by_their_period_say_the_same_per_step_as_marked_ones(tmp_path: Path) -> None:
    marked, bare = Job(), Job()
    _with_copies(marked, 8)
    _with_copies(bare, 8, is_marked=False)
    told, found = (triaged(job.rows, tmp_path) for job in (marked, bare))
    assert (told.ranks[0].steps.source, found.ranks[0].steps.source) == ("ProfilerStep", "period")
    assert found.ranks[0].steps.n == 7  # the last has no next one to end it
    per_step = [
        {finding.id: finding.recoverable_ns for finding in report.findings if finding.id != "capture.quality"}
        for report in (told, found)
    ]
    assert per_step[0] == {"input.starved": 2_000_000, "h2d.exposed": 1_000_000}
    assert per_step[1] == {"input.starved": 7 * 2_000_000 // 8, "h2d.exposed": 1_000_000}  # no copy ends the first wait


def test_a_period_without_the_optimizer_is_a_part_of_a_step(tmp_path: Path) -> None:
    job = Job()
    for _ in range(8):
        for _ in range(20):  # accumulation
            job.copy(50_000)
            _one_step(job, 20_000, 2)
        job.launch(50_000, name="multi_tensor_apply_kernel<adam>")
    steps = triaged(job.rows, tmp_path).ranks[0].steps
    assert steps.n in {0, 7}  # none, or the eight with the optimizer


def test_a_cut_window_has_the_steps_that_it_holds(tmp_path: Path) -> None:
    job = Job()
    _with_copies(job, 8)
    whole, cut = triaged(job.rows, tmp_path), triaged(job.rows, tmp_path, step_range=(3, 5))
    assert "steps.few" in _failed(cut)
    assert whole.verdict.bottleneck is cut.verdict.bottleneck
    assert [f.recoverable_ns for f in whole.findings] == [
        f.recoverable_ns for f in cut.findings if f.id != "capture.quality"
    ]
    assert cut.ranks[0].devices[0].budget.compute * 4 == whole.ranks[0].devices[0].budget.compute


def test_a_device_that_waits_for_another_does_not_set_the_latency(tmp_path: Path) -> None:
    first, second = Job(), Job(device=1, first=1_000_000)
    for number in range(8):

        def body() -> None:
            for _ in range(10):
                first.op("aten::mm", lambda: first.launch(300_000))
            second.follow(first)
            for _ in range(10):
                second.op("aten::mm", lambda: second.launch(200_000))
            second.synchronise()
            first.now_ns = second.now_ns

        first.step(number, body)
    device = triaged([*first.rows, *second.rows], tmp_path).ranks[0].devices[1]
    assert device.budget.idle_launch < 0.1 * device.budget.window_ns


def test_a_window_of_copies_from_the_device_is_called_that(tmp_path: Path) -> None:
    job = Job()

    def body() -> None:
        _one_step(job)
        job.copy(9_000_000, to="Host")
        job.synchronise()

    for number in range(6):
        job.step(number, body)
    report = triaged(job.rows, tmp_path)
    assert report.verdict.bottleneck is Bottleneck.INCONCLUSIVE
    assert "69.0 % of the window is exposed copies" in report.verdict.headline


def test_hip_calls_are_an_amd_devices(tmp_path: Path) -> None:
    job = Job(calls="hip")
    _train(job)
    assert triaged(job.rows, tmp_path).verdict.next_tool.name == "rocprof-compute"
