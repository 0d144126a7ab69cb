"""Steps at the pace of the device: jobs whose host runs ahead or keeps pace, and captures that begin in the middle."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.model.documents.report import Bottleneck, Report
from profkit.testing import Row, row_lists, span, trace_of
from profkit.timeline.pace import paced
from tests.metamorphic import Job, triaged

MS = 1_000_000
N_KERNELS = 20
ON_DEVICE = frozenset({"kernel", "gpu_memcpy"})


def trained(*, host_ms: float, device_ms: float, n_warm: int = 0, warm_ms: float = 1.0, n_steps: int = 6) -> Job:
    """A job whose steps take the host and the device that long; warm-up steps have launches every `warm_ms` / 20."""
    job = Job()

    def body(step_ms: float) -> None:
        each_ns = int(device_ms * MS / N_KERNELS) - 1_000
        job.ops(N_KERNELS, each_ns, dispatch_ns=int(step_ms * MS / N_KERNELS) - 4_000)

    job.steps(n_warm, lambda: body(warm_ms))
    for number in range(n_warm, n_warm + n_steps):
        job.step(number, lambda: body(host_ms))
    return job


def captured(job: Job, first: int) -> list[Row]:
    """What a profiler has that listens from the marker of a step on: of earlier launches the device rows alone."""
    begun = next(row.start_ns for row in job.rows if row.name == f"ProfilerStep#{first}")
    return [row for row in job.rows if (row.end_ns > begun if row.cat in ON_DEVICE else row.start_ns >= begun)]


def failed(report: Report) -> set[str]:
    return {check.id for check in report.ranks[0].checks if not check.ok}


def test_the_host_runs_ahead_and_the_steps_are_the_devices(tmp_path: Path) -> None:
    report = triaged(trained(host_ms=2, device_ms=20).rows, tmp_path)
    rank, verdict = report.ranks[0], report.verdict
    assert rank.steps.source == "device"
    assert rank.steps.n == 6
    assert verdict.step_ns == pytest.approx(20 * MS, rel=0.001)
    assert rank.devices[0].budget.fraction("compute") > 0.98
    assert "steps.outrun" not in failed(report)
    assert any("the GPU takes 20.0 ms for a step" in caveat for caveat in verdict.caveats)
    assert sum(rank.devices[0].budget.parts.values()) == rank.window_ns[1] - rank.window_ns[0]


def test_work_from_before_the_capture_is_no_work_of_its_steps(tmp_path: Path) -> None:
    """The device's step is 20 ms, whether or not the capture finds it 100 ms behind."""
    job = trained(host_ms=15, device_ms=20, n_warm=6, warm_ms=2)
    report = triaged(captured(job, 6), tmp_path)
    assert report.verdict.step_ns == pytest.approx(20 * MS, rel=0.001)
    assert failed(report) == set()
    assert report.verdict.confidence > 0.6


def test_a_device_that_lags_evenly_keeps_the_marked_steps(tmp_path: Path) -> None:
    job = trained(host_ms=20, device_ms=20, n_warm=4, warm_ms=2)
    report = triaged(captured(job, 4), tmp_path)
    assert report.ranks[0].steps.source == "ProfilerStep"
    assert report.verdict.step_ns == pytest.approx(20 * MS, rel=0.001)
    assert failed(report) == set()


def test_steps_that_ran_off_a_backlog_do_not_dilute_the_idle_time(tmp_path: Path) -> None:
    """The host takes 20 ms for the 10 ms of the device; the capture begins 36 ms behind, a step makes up for 10."""
    steady = triaged(trained(host_ms=20, device_ms=10, n_steps=8).rows, tmp_path)
    job = trained(host_ms=20, device_ms=10, n_warm=4, warm_ms=1, n_steps=8)
    report = triaged(captured(job, 4), tmp_path)
    idle = [
        one.ranks[0].devices[0].budget.idle_ns / one.ranks[0].devices[0].budget.window_ns for one in (steady, report)
    ]
    assert idle[0] == pytest.approx(0.5, abs=0.01)
    assert idle[1] == pytest.approx(idle[0], abs=0.03)
    assert report.verdict.bottleneck is steady.verdict.bottleneck is Bottleneck.OVERHEAD
    assert any("are left out: the GPU worked on operations" in caveat for caveat in report.verdict.caveats)
    assert report.ranks[0].steps.n == 4


def test_steps_that_all_ran_off_a_backlog_are_kept_and_the_check_says_it(tmp_path: Path) -> None:
    job = trained(host_ms=20, device_ms=10, n_warm=30, warm_ms=1, n_steps=4)
    report = triaged(captured(job, 30), tmp_path)
    assert report.ranks[0].steps.n == 4
    assert failed(report) == {"steps.outrun"}


def test_a_step_chosen_by_hand_is_the_devices_step_of_that_number(tmp_path: Path) -> None:
    report = triaged(trained(host_ms=2, device_ms=20).rows, tmp_path, step_range=(2, 5))
    assert report.ranks[0].steps.n == 3
    assert report.verdict.step_ns == pytest.approx(20 * MS, rel=0.001)


def test_rows_that_lost_their_launch_are_still_a_fault(tmp_path: Path) -> None:
    """Launches in the middle that nobody recorded have numbers among the others."""
    job = trained(host_ms=20, device_ms=18)
    calls = [row for row in job.rows if row.name == "cudaLaunchKernel"]
    lost = {id(row) for row in calls[40:50]}
    report = triaged([row for row in job.rows if id(row) not in lost], tmp_path)
    assert "device.unlinked" in failed(report)


def test_a_copy_stream_that_keeps_pace_with_the_host_does_not_cut_the_steps(tmp_path: Path) -> None:
    job = Job()

    def body() -> None:
        job.op("aten::copy_", lambda: job.copy(100_000, stream=20))
        job.ops(N_KERNELS, 1 * MS, dispatch_ns=80_000)

    job.steps(5, body)
    report = triaged(job.rows, tmp_path)
    assert report.verdict.step_ns == pytest.approx(20 * MS, rel=0.01)


@given(row_lists(), st.lists(st.integers(1, 80), min_size=1, max_size=6))
def test_whatever_the_rows_are_the_steps_lie_in_the_window_one_after_the_other(
    rows: list[Row], lengths: list[int]
) -> None:
    at, marked = 10**9, [row for row in rows if not row.name.startswith("ProfilerStep")]
    for number, length in enumerate(lengths):
        marked.append(span(f"ProfilerStep#{number}", at, at + length))
        at += length
    chosen = paced(trace_of(marked)).trace
    low, high = chosen.window_ns
    inside = [step for step in chosen.steps if step.start_ns >= low and step.end_ns <= high]
    assert inside
    assert low < high
    assert all(step.start_ns < step.end_ns for step in inside)
    assert all(one.end_ns <= other.start_ns for one, other in pairwise(inside))


def test_a_host_that_is_behind_does_not_run_ahead_because_its_last_kernel_ends_late(tmp_path: Path) -> None:
    """The CPU makes each batch for 10 ms, then launches 7 ms of work: the device idles for a third of each step."""
    job = Job()
    making = lambda: job.op("aten::randn", lambda: None, dispatch_ns=10 * MS)  # noqa: E731
    job.steps(4, lambda: (making(), job.launch(7 * MS), job.work(MS // 2)))
    report = triaged(job.rows, tmp_path)
    assert report.verdict.step_ns == pytest.approx(10.5 * MS, rel=0.01)
    assert report.ranks[0].steps.n == 3
    assert report.ranks[0].devices[0].budget.fraction("compute") == pytest.approx(7 / 10.5, rel=0.01)
    assert not any("runs ahead" in caveat for caveat in report.verdict.caveats)
