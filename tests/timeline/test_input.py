"""Waits for input that no range marks: by their place before a batch's copy, and by what the thread does meanwhile."""

from pathlib import Path

import pytest

from profkit.api import triage
from profkit.ingest.read import read_traces
from profkit.model.documents.report import Bottleneck, Report
from profkit.timeline import Facts
from tests.drawing import Triaged
from tests.drawing import triaged as triaged_rows
from tests.ingest.nsys_files import RANK0, Export, global_pid, global_tid
from tests.metamorphic import Job

MS = 1_000_000
N_STEPS = 8


def recorded(
    *,
    wait_ms: int = 30,
    n_bytes: int = 600_000,
    waits: str = "",
    first: str = "HtoD",
    syncs: bool = False,
    kernel: str = "at::native::op_{}",
) -> Export:
    """Steps of `wait_ms` without a call, a copy, then kernels for 10 ms; `waits` says what shows the waiting."""
    export = Export()
    tid = global_tid(RANK0)
    if waits == "SCHED_EVENTS":
        export.add(waits, start=5 * MS, cpu=1, isSchedIn=1, globalTid=tid)
    for number in range(N_STEPS):
        begin = 10 * MS + number * (wait_ms + 12) * MS
        ready = begin + wait_ms * MS
        if waits == "OSRT_API":
            row = {"globalTid": tid, "nameId": export.string("poll")}
            export.add("OSRT_API", start=begin + 10_000, end=ready - 10_000, **row)
        if waits == "SCHED_EVENTS":
            export.add(waits, start=begin + 10_000, cpu=1, isSchedIn=0, globalTid=tid)
            export.add(waits, start=ready - 10_000, cpu=1, isSchedIn=1, globalTid=tid)
        correlation = 10_000 + number
        export.call(ready, ready + 5_000, "cudaMemcpyAsync_v3020", correlation=correlation)
        copied = {"HtoD": 1, "DtoH": 2}
        row = {"deviceId": 0, "streamId": 7, "correlationId": correlation, "globalPid": global_pid(RANK0)}
        kinds = {"copyKind": 1, "srcKind": 1, "dstKind": 2}
        export.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY", start=ready + 10_000, end=ready + 100_000, bytes=n_bytes, **row, **kinds
        )
        for k in range(10):
            export.kernel(ready + MS + k * MS, ready + 2 * MS + k * MS, kernel.format(k))
        if first == "DtoH":  # the last call of a step copies results to the host
            correlation += 10_000
            export.call(ready + 11 * MS, ready + 11 * MS + 5_000, "cudaMemcpyAsync_v3020", correlation=correlation)
            row = {**row, "correlationId": correlation, "copyKind": copied["DtoH"], "srcKind": 2, "dstKind": 1}
            at = ready + 11 * MS + 10_000
            export.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=at, end=at + 50_000, bytes=n_bytes, **row)
        if syncs:
            export.call(ready + 10 * MS, ready + 11 * MS + 10_000, "cudaStreamSynchronize_v3020")
    return export


def triaged(export: Export, folder: Path) -> Report:
    return triage([str(export.write(folder / "x.sqlite"))])


@pytest.mark.parametrize(
    ("waits", "confidence", "said"),
    [
        ("OSRT_API", 0.75, "of these waits, poll takes 93.7 %: calls of the operating system"),
        ("SCHED_EVENTS", 0.75, "for 93.7 % of these waits the thread has no core"),
        ("", 0.55, "told by its place"),
    ],
    ids=["calls of the system", "the scheduler", "its place alone"],
)
def test_a_host_that_calls_nothing_before_each_batch_waits_for_input(
    waits: str, confidence: float, said: str, tmp_path: Path
) -> None:
    report = triaged(recorded(waits=waits), tmp_path)
    assert report.verdict.bottleneck is Bottleneck.DATA
    assert report.verdict.recoverable_ns == pytest.approx(30 * MS, rel=0.1)
    (one,) = [finding for finding in report.findings if finding.id == "input.starved"]
    assert one.confidence == pytest.approx(confidence, abs=0.01)
    assert any(said in item.statement for item in one.evidence)
    assert "num_workers" in one.fix


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"n_bytes": 8}, "a scalar is no batch"),
        ({"kernel": "solve_{}"}, "a program without PyTorch has no DataLoader"),
        ({"first": "DtoH"}, "the host works on what it copied: an optimizer that was moved to the CPU"),
    ],
    ids=["a scalar", "another program", "behind a copy to the host"],
)
def test_other_stretches_without_a_call_are_the_hosts_own(given: dict[str, object], why: str, tmp_path: Path) -> None:
    report = triaged(recorded(**given), tmp_path)  # type: ignore[arg-type]
    assert report.verdict.bottleneck is Bottleneck.OVERHEAD, why


def test_a_thread_that_sleeps_in_poll_is_told_so_whatever_comes_next(tmp_path: Path) -> None:
    """The next operation copies a scalar: the copy is not what the device waits for."""
    report = triaged(recorded(waits="OSRT_API", n_bytes=8), tmp_path)
    (one,) = [finding for finding in report.findings if finding.id == "host.launch_bound"]
    assert one.title == "the GPU waits while the training thread waits in the operating system"
    assert "in poll" in one.evidence[1].statement
    assert "pinned" not in one.fix
    assert "nvtx.range('data_loader')" in one.fix


def test_waits_for_the_device_before_a_wait_for_input_gain_next_to_nothing(tmp_path: Path) -> None:
    """The batch comes when it comes: a host that is earlier waits for it longer."""
    path = recorded(waits="OSRT_API", syncs=True).write(tmp_path / "x.sqlite")
    (trace,) = read_traces(str(path))
    main = Facts.of(trace).main_device
    assert main is not None
    assert main.gains.sync_ns <= N_STEPS * MS // 10
    assert main.gains.data_ns > 200 * MS
    path = recorded(syncs=True).write(tmp_path / "y.sqlite")  # nothing says that the host sleeps: it may be at work
    (trace,) = read_traces(str(path))
    main = Facts.of(trace).main_device
    assert main is not None
    assert main.gains.sync_ns > N_STEPS * MS // 2


def making(
    *,
    made_ns: int = 3 * MS,
    copied_ns: int = MS // 2,
    is_first: bool = True,
    is_back: bool = False,
    is_marked: bool = True,
) -> Triaged:
    """Steps that make a tensor by an operator on the CPU, copy it to the GPU and compute on it for 2 ms."""
    job = Job()

    def step() -> None:
        if not is_first:
            job.ops(1, MS // 10)
        job.op("aten::randn", lambda: job.op("aten::normal_", lambda: None, dispatch_ns=made_ns))
        job.op("aten::to", lambda: job.copy(copied_ns, is_pageable=True))
        job.ops(1, 2 * MS)
        if is_back:
            job.op("aten::to", lambda: job.copy(MS // 2, to="Host", is_pageable=True))

    job.steps(N_STEPS, step) if is_marked else [step() for _ in range(N_STEPS)]
    return triaged_rows(job.rows)


def test_operators_on_the_cpu_that_make_the_batch_of_each_step_are_its_input() -> None:
    of = making()
    assert of.verdict.bottleneck is Bottleneck.DATA
    assert of.verdict.findings[0].id == "input.starved"
    assert "host.cpu_operators" not in of.found, "the same time is said once"
    one = of.found["input.starved"]
    assert one.title == "the step makes its input by operators on the CPU"
    assert one.fix.startswith("create the tensors of aten::randn on the GPU")
    assert MS <= one.recoverable_ns <= 3 * MS, "the kernel of the step before hides a part"
    assert "workers" in one.fix
    assert "py-spy" not in of.verdict.next_tool.name


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"is_first": False}, "noise that is made within the step is no batch"),
        ({"copied_ns": 400}, "4,000 bytes are no batch"),
        ({"is_back": True}, "the host works on what it copied: an optimizer that was moved to the CPU"),
        ({"is_marked": False}, "nothing shows where a step begins"),
    ],
)
def test_other_operators_on_the_cpu_are_the_hosts_own(given: dict[str, bool], why: str) -> None:
    of = making(**given)  # type: ignore[arg-type]
    assert "input.starved" not in of.found, why
    assert of.verdict.bottleneck is not Bottleneck.DATA


def test_short_operators_before_the_copy_of_a_batch_are_no_wait_for_it() -> None:
    assert "input.starved" not in making(made_ns=MS // 2).found
