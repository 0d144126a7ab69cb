"""nsys exports without kernels: jobs on the CPU, lost device rows; and first passes, which say nothing of steps."""

from pathlib import Path

import pytest

from profkit import triage
from profkit.cli import group
from profkit.errors import UnsupportedTraceError
from profkit.ingest.nsys.nvtx import CUT_STEP
from tests.ingest.nsys_files import RANK0, RANK1, Export, global_tid, training

US = 1000


def on_cpu(*, n_steps: int = 8, operators: bool = True, wait_us: int = 0, pid: int = RANK0) -> Export:
    """Steps of 10 ms: 3 ms without operators, of which `wait_us` in poll, then ten operators of 580 us."""
    export = Export()
    add_cpu(export, n_steps=n_steps, operators=operators, wait_us=wait_us, pid=pid)
    return export


def add_cpu(export: Export, *, n_steps: int = 8, operators: bool = True, wait_us: int = 0, pid: int = RANK0) -> None:
    for step in range(n_steps):
        begin = 10_000_000 + step * 10_000_000
        export.range(begin, begin + 10_000_000, f"ProfilerStep#{step}", pid=pid)
        if wait_us:
            wait(export, begin + 100 * US, begin + (100 + wait_us) * US, pid=pid)
        for number in range(10 if operators else 0):
            start = begin + 3_100_000 + number * 600 * US
            export.range(start, start + 580 * US, f"aten::mm, seq = {number}, op_id = {step * 8 + number}", pid=pid)


def wait(export: Export, start: int, end: int, *, pid: int = RANK0) -> None:
    export.add("OSRT_API", start=start, end=end, globalTid=global_tid(pid), nameId=export.string("poll"))


def told(export: Export, tmp_path: Path):
    return triage([str(export.write(tmp_path / "x.sqlite"))])


# ------------------------------------------------------------------------------------------------------------ on a CPU


def test_a_job_on_the_cpu_has_its_report(tmp_path: Path) -> None:
    report = told(on_cpu(), tmp_path)
    (rank,) = report.ranks
    (device,) = rank.devices
    assert (device.kind, device.budget.compute, device.budget.window_ns) == ("cpu", 8 * 5_800_000, 80_000_000)
    assert report.verdict.bottleneck.value == "overhead-bound"
    assert "Python between operators" in report.verdict.headline


def test_what_lies_between_operators_is_no_python_where_the_thread_waits(tmp_path: Path) -> None:
    report = told(on_cpu(wait_us=2600), tmp_path)
    (finding,) = [finding for finding in report.findings if finding.id == "host.launch_bound"]
    said = " ".join(evidence.statement for evidence in finding.evidence)
    assert "Python" not in finding.title + said + finding.fix
    assert "61.9 % in poll" in said  # 2.6 of 4.2 ms
    assert report.verdict.next_tool.line.text.startswith("profkit nsys --whole --also waits,python --")


def test_without_operators_nothing_is_called_python(tmp_path: Path) -> None:
    report = told(on_cpu(operators=False, wait_us=2600), tmp_path)
    assert report.verdict.bottleneck.value == "inconclusive"
    assert {finding.id for finding in report.findings} == {"capture.quality"}
    assert report.verdict.next_tool.line.text.startswith("profkit capture ")
    assert "operators" in report.verdict.next_tool.purpose
    budget = report.ranks[0].devices[0].budget
    assert (budget.idle_host, budget.idle_unknown) == (0, budget.window_ns)
    (finding,) = report.findings
    said = " ".join(evidence.statement for evidence in finding.evidence)
    assert "it spends 26.0 % in poll: calls of the operating system" in said


def phases(share: float) -> Export:
    """Steps of 10 ms without operators: a fetch of that share, half of it asleep, then the forward."""
    export = Export()
    for step in range(8):
        begin = 10_000_000 + step * 10_000_000
        fetched = begin + round(share * 10_000_000)
        export.range(begin, begin + 10_000_000, f"ProfilerStep#{step}", kind=60)
        export.range(begin, fetched, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", kind=60)
        wait(export, begin, begin + (fetched - begin) // 2)
        export.range(fetched, begin + 10_000_000, "forward", kind=60)
    return export


def test_a_fetch_that_has_most_of_the_step_needs_no_operators(tmp_path: Path) -> None:
    """Waiting for input is the largest part whatever the rest is."""
    report = told(phases(0.7), tmp_path)
    assert report.verdict.bottleneck.value == "data-bound"
    assert report.verdict.confidence <= 0.7
    assert report.verdict.recoverable_ns == 7_000_000
    assert not [line for line in report.verdict.ruled_out if "operators" in line or "dispatch" in line]
    said = " ".join(evidence.statement for finding in report.verdict.findings for evidence in finding.evidence)
    assert "of these waits, poll takes 50.0 %: calls of the operating system" in said
    assert "num_workers=0" in said
    assert any("no operators were recorded" in caveat for caveat in report.verdict.caveats)
    assert not any("dispatch is estimated" in caveat for caveat in report.verdict.caveats)


def test_a_fetch_that_has_less_than_half_of_it_does(tmp_path: Path) -> None:
    report = told(phases(0.4), tmp_path)
    assert report.verdict.bottleneck.value == "inconclusive"
    said = " ".join(evidence.statement for finding in report.verdict.findings for evidence in finding.evidence)
    assert "the training thread spends 60.0 % in forward" in said


def test_samples_say_what_runs_where_operators_do_not(tmp_path: Path) -> None:
    export = phases(0.2)
    for place in range(40):
        export.sample(15_000_000 + place * 100_000, ("gemm_kernel", "/lib/libtorch_cpu.so"))
    (finding,) = [one for one in told(export, tmp_path).findings if one.id == "capture.quality"]
    said = " ".join(evidence.statement for evidence in finding.evidence)
    found = "beside waits for input, 40 CPU samples find the training thread 100.0 % in gemm_kernel (libtorch_cpu.so)"
    assert found in said


def test_a_step_that_was_cut_is_no_step(tmp_path: Path) -> None:
    export = on_cpu()
    export.range(90_000_000, 400_000_000, "ProfilerStep#8")
    export.range(399_000_000, 401_000_000, CUT_STEP)
    (rank,) = told(export, tmp_path).ranks
    assert (rank.steps.n, rank.steps.mean_ns) == (8, 10_000_000)
    assert rank.window_ns == (10_000_000, 90_000_000)


def test_processes_with_steps_are_told_and_helpers_with_ranges_are_not(tmp_path: Path) -> None:
    export = on_cpu()
    export.range(10_000_000, 11_000_000, "load", pid=RANK1)
    assert len(told(export, tmp_path).ranks) == 1
    other = on_cpu()
    add_cpu(other, pid=RANK1)
    report = triage([str(other.write(tmp_path / "two.sqlite"))])
    assert [rank.rank for rank in report.ranks] == [0, 1]
    assert any("by process id" in warning for rank in report.ranks for warning in rank.warnings)


def test_without_ranges_the_refusal_says_how_to_have_them(tmp_path: Path) -> None:
    export = Export()
    wait(export, 1, 2)
    with pytest.raises(UnsupportedTraceError) as caught:
        told(export, tmp_path)
    assert "no NVTX ranges (1 OS calls)" in caught.value.message
    assert "profkit nsys --whole --also waits -- COMMAND marks the steps" in caught.value.hint


# ----------------------------------------------------------------------------------------------------------- lost rows


@pytest.mark.parametrize(
    ("version", "trace"),
    [("2025.6.1.190-256136014165v0", "cuda-sw"), ("2025.5.2.1-1v0", "cuda"), ("2022.4.2.1-df9881f", "cuda")],
)
def test_copies_without_kernels_and_launches_are_no_job_on_the_cpu(tmp_path: Path, version: str, trace: str) -> None:
    """`cuda-sw` is a word of newer versions alone."""
    export = on_cpu()
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value=version)
    for place in range(3):
        at = 11_000_000 + place * 10_000
        export.work("MEMCPY", at, at + 5_000, correlation=place, copyKind=1, bytes=64)
    with pytest.raises(UnsupportedTraceError) as caught:
        triage([str(export.write(tmp_path / "x.sqlite"))])
    assert "holds no kernels, but 3 copies, 88 NVTX events: no kernel was recorded" in caught.value.message
    assert "(lost, or launched by another process)" in caught.value.message
    assert f" --trace {trace},nvtx,osrt -- COMMAND" in caught.value.hint


def test_launches_without_device_rows_are_lost_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export = training()
    export.add("META_DATA_EXPORT", name="EXPORT_PRODUCT_VERSION", value="2026.1.1.204-1v0")
    path = export.write(tmp_path / "x.sqlite", without=["CUPTI_ACTIVITY_KIND_KERNEL"])
    report = triage([str(path)])
    assert report.verdict.bottleneck.value == "inconclusive"
    assert "100.0 % of 29 kernel launches have no kernel in the trace: no device rows at all" in report.verdict.headline
    assert "--trace cuda-sw,nvtx" in report.verdict.next_tool.line.text
    assert "device" in report.verdict.next_tool.purpose
    assert {finding.id for finding in report.findings} == {"capture.quality"}
    group.main(["info", str(path)], standalone_mode=False)
    assert "lost, or was never recorded" in capsys.readouterr().out


def test_the_environment_of_a_device_without_launches_is_still_refused(tmp_path: Path) -> None:
    export = Export()
    export.call(1000, 2000, "cudaGetDeviceCount_v3020")
    with pytest.raises(UnsupportedTraceError, match="holds no kernels, and no NVTX ranges"):
        told(export, tmp_path)


# ---------------------------------------------------------------------------------------------------------- first pass


def one_pass(*, warm: bool, n_steps: int = 1) -> Export:
    """Passes of 50 kernels of 20 us, 200 us apart; of a first one each gap holds 150 us of what cuDNN does once."""
    export = Export()
    for step in range(n_steps):
        begin = 10_000_000 + step * 12_000_000
        if n_steps > 1:
            export.range(begin, begin + 12_000_000, f"step {step}")
        for number in range(50):
            start = begin + number * 200 * US
            if not warm:
                for place, name in enumerate(("cudaMalloc_v3020", "cudaHostAlloc_v3020", "cudaEventSynchronize_v3020")):
                    at = start + (25 + place * 50) * US
                    export.call(at, at + 50 * US, name)
            export.kernel(start, start + 20 * US)
    return export


def test_one_first_pass_says_nothing_of_steady_steps(tmp_path: Path) -> None:
    report = told(one_pass(warm=False), tmp_path)
    assert report.verdict.bottleneck.value == "inconclusive"
    assert report.verdict.headline.startswith("start-up: ")


def test_a_pass_that_is_warm_has_a_verdict(tmp_path: Path) -> None:
    assert told(one_pass(warm=True), tmp_path).verdict.bottleneck.value != "inconclusive"


def test_what_recurs_in_three_steps_is_no_first_pass(tmp_path: Path) -> None:
    report = told(one_pass(warm=False, n_steps=4), tmp_path)
    assert report.verdict.bottleneck.value != "inconclusive"
