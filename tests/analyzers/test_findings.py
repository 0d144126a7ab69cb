"""Each finding has a trace that fires it and one that must not, an explanation, and evidence one can recompute."""

from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace

from profkit.cli.explain import as_text
from profkit.findings import KINDS
from profkit.model.trace import Trace
from profkit.testing import Row, kernel, launch, trace_of
from tests.drawing import BASE, US, in_steps, triaged

STEP_US = 1000


class Job:
    """Builds a GPU job row by row; times in us since the first step."""

    def __init__(self, n_steps: int = 8, step_us: int = STEP_US) -> None:
        self.rows = in_steps(n_steps, step_us * US, lambda *_: (), begin_ns=BASE)
        self.starts = [k * step_us for k in range(n_steps)]
        self._correlation = 0

    def work(
        self, name: str, start: float, end: float, *, issued: float | None = None, stream: int = 7, **args: object
    ) -> None:
        """Add a kernel, its launch call (5 us before, or at `issued`) and the operator around the call."""
        self._correlation += 1
        at = start - 5 if issued is None else issued
        self.rows.append(kernel(name, _ns(start), _ns(end), correlation=self._correlation, stream=stream, **args))
        self.rows.append(launch(_ns(at), _ns(at + 2), correlation=self._correlation))
        self.rows.append(Row(name="aten::op", cat="cpu_op", start_ns=_ns(at - 1), end_ns=_ns(at + 3)))

    def copy(self, name: str, start: float, end: float, n_bytes: int = 10**6) -> None:
        """Add a copy and its call."""
        self._correlation += 1
        args = {"device": 0, "stream": 7, "correlation": self._correlation, "bytes": n_bytes}
        self.rows.append(Row(name=name, cat="gpu_memcpy", start_ns=_ns(start), end_ns=_ns(end), args=args))
        self.rows.append(launch(_ns(start - 6), _ns(start - 4), correlation=self._correlation, name="cudaMemcpyAsync"))

    def host(self, name: str, start: float, end: float, cat: str = "cuda_runtime") -> None:
        """Add a host row."""
        self.rows.append(Row(name=name, cat=cat, start_ns=_ns(start), end_ns=_ns(end), args={"correlation": 10**6}))

    def trace(self) -> Trace:
        """Give the trace."""
        return trace_of(self.rows)


def _ns(time_us: float) -> int:
    return BASE + round(time_us * US)


def in_each_step(draw: Callable[[Job, int], None]) -> Callable[[], Job]:
    """A job in each of whose steps this is drawn."""

    def drawn() -> Job:
        job = Job()
        for start in job.starts:
            draw(job, start)
        return job

    return drawn


@in_each_step
def healthy(job: Job, start: int) -> None:
    """A device that is never idle for long: bf16 matrix kernels, all queued ahead."""
    for at in range(start, start + 1000, 100):
        job.work("ampere_bf16_s16816gemm_bf16_128x128", at + 1, at + 99, issued=max(at - 300, 1))


@in_each_step
def starved(job: Job, start: int) -> None:
    job.host("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start, start + 500, cat="user_annotation")
    job.work("gemm_bf16", start + 510, start + 990)


@in_each_step
def launch_bound(job: Job, start: int) -> None:
    for k in range(25):
        job.work("vectorized_elementwise_kernel", start + 40 * k + 20, start + 40 * k + 23)


@in_each_step
def synchronising(job: Job, start: int) -> None:
    job.work("gemm_bf16", start + 305, start + 900, issued=start + 300)
    job.host("cudaStreamSynchronize", start + 310, start + 905)


@in_each_step
def exposed_communication(job: Job, start: int) -> None:
    job.work("gemm_bf16", start + 10, start + 600, issued=start + 2)
    job.work("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", start + 601, start + 990, issued=start + 5, stream=20)


@in_each_step
def exposed_copies(job: Job, start: int) -> None:
    job.copy("Memcpy HtoD (Pageable -> Device)", start + 20, start + 400)
    job.work("gemm_bf16", start + 401, start + 990, issued=start + 30)


@in_each_step
def offloading(job: Job, start: int) -> None:
    job.work("gemm_bf16", start + 10, start + 600, issued=start + 2)
    job.copy("Memcpy DtoH (Device -> Pageable)", start + 601, start + 990)


@in_each_step
def under_memory_pressure(job: Job, start: int) -> None:
    job.work("gemm_bf16", start + 10, start + 500, issued=start + 2)
    job.host("cudaFree", start + 450, start + 700)
    job.host("cudaMalloc", start + 705, start + 800)
    job.work("gemm_bf16", start + 810, start + 995)


@in_each_step
def unfused(job: Job, start: int) -> None:
    for k in range(9):
        job.work("vectorized_elementwise_kernel<mul>", start + 100 * k + 1, start + 100 * k + 99, issued=start + 1)
    job.work("gemm_bf16", start + 901, start + 999, issued=start + 1)


@in_each_step
def fallen_back(job: Job, start: int) -> None:
    job.work("ampere_bf16_s16816gemm_bf16_128x128", start + 1, start + 500, issued=max(start - 50, 1))
    job.work("cutlass_80_simt_sgemm_256x128_8x4_tn_align1", start + 501, start + 999, issued=max(start - 40, 1))


@in_each_step
def without_tf32(job: Job, start: int) -> None:
    job.work("ampere_sgemm_128x128_tn", start + 1, start + 700, issued=max(start - 50, 1))
    job.work("vectorized_elementwise_kernel<mul>", start + 701, start + 999, issued=max(start - 40, 1))


@in_each_step
def converting(job: Job, start: int) -> None:
    job.work("void cudnn::ops::nchwToNhwcKernel<float>(P)", start + 1, start + 150, issued=max(start - 50, 1))
    job.work("sm80_xmma_fprop_implicit_gemm_bf16bf16", start + 151, start + 999, issued=max(start - 40, 1))


def lossy() -> Job:
    job = healthy()
    for k in range(60):
        job.host("cudaLaunchKernel", 100 * k + 50, 100 * k + 52)
    return job


def stalled() -> Job:
    job = Job(n_steps=1, step_us=8000)
    for k in range(40):
        job.work("gemm_bf16", 7000 + 20 * k, 7015 + 20 * k)
    return job


PAIRS: dict[str, tuple[Callable[[], Job], Callable[[], Job], str]] = {
    "capture.quality": (lossy, healthy, "inconclusive"),
    "input.starved": (starved, healthy, "data-bound"),
    "host.launch_bound": (launch_bound, healthy, "overhead-bound"),
    "host.stall": (stalled, launch_bound, "inconclusive"),
    "host.sync": (synchronising, healthy, "sync-bound"),
    "comm.exposed": (exposed_communication, healthy, "comm-bound"),
    "h2d.exposed": (exposed_copies, healthy, "copy-bound"),
    "d2h.exposed": (offloading, healthy, "copy-bound"),
    "memory.pressure": (under_memory_pressure, healthy, "memory-pressure"),
    "kernel.unfused": (unfused, healthy, "kernel-bound"),
    "precision.fallback": (fallen_back, healthy, "kernel-bound"),
    "precision.no_tf32": (without_tf32, fallen_back, "kernel-bound"),
    "kernel.layout": (converting, healthy, "kernel-bound"),
}


@pytest.mark.parametrize("finding_id", PAIRS)
def test_a_finding_fires_on_its_trace_and_not_on_the_healthy_one_and_the_verdict_names_it(finding_id: str) -> None:
    sick, well, bottleneck = PAIRS[finding_id]
    verdict, found, _ = triaged(sick().rows)
    assert finding_id in found
    assert finding_id not in triaged(well().rows).found
    assert found[finding_id].evidence
    assert 0 <= found[finding_id].fraction <= 1
    assert verdict.bottleneck == bottleneck
    assert len(verdict.findings) <= 3
    assert verdict.next_tool.command


def test_a_healthy_job_is_healthy() -> None:
    of = triaged(healthy().rows)
    assert of.verdict.is_healthy
    assert of.verdict.recoverable_ns == 0
    assert of.verdict.findings == ()
    assert of.found == {}


def test_what_can_be_recovered_is_the_interval_itself() -> None:
    of = triaged(starved().rows)
    assert of.found["input.starved"].recoverable_ns == 500 * US
    assert of.found["input.starved"].fraction == 0.5
    assert of.verdict.speedup_ceiling == pytest.approx(2.0)
    assert of.verdict.step_ns == STEP_US * US


def test_a_medium_cause_beside_a_busy_device_is_a_finding_not_the_bottleneck() -> None:
    job = Job()
    for start in job.starts:
        job.host("enumerate(DataLoader)#x.__next__", start, start + 180, cat="user_annotation")
        job.work("gemm_bf16_s16816", start + 190, start + 995)
    verdict = triaged(job.rows).verdict
    assert verdict.bottleneck == "kernel-bound"
    assert not verdict.is_healthy
    assert verdict.findings[0].id == "input.starved"


def test_failing_checks_cap_the_confidence() -> None:
    job = Job(n_steps=1, step_us=8000)
    job.host("enumerate(DataLoader)#x.__next__", 0, 4000, cat="user_annotation")
    for k in range(30):
        job.work("gemm_bf16", 4010 + 100 * k, 4100 + 100 * k, issued=4005)
    verdict, found, _ = triaged(job.rows)
    assert verdict.bottleneck == "data-bound"
    assert verdict.confidence <= 0.6
    assert all(one.confidence <= 0.6 for one in found.values() if one.id != "capture.quality")


def test_stream_capture_is_no_loss() -> None:
    job = healthy()
    job.host("cudaStreamBeginCapture", 40, 41)
    for k in range(60):
        job.host("cudaLaunchKernel", 42 + k / 10, 42.05 + k / 10)
    job.host("cudaStreamEndCapture", 60, 61)
    assert "capture.quality" not in triaged(job.rows).found


def test_the_ceiling_is_computed_from_the_share_of_the_window() -> None:
    n_judged = 0
    for sick, _, _ in PAIRS.values():
        verdict, _, rank = triaged(sick().rows)
        if verdict.speedup_ceiling is None or not verdict.recoverable_ns:
            continue
        window = rank.window_ns[1] - rank.window_ns[0]
        lost = verdict.recoverable_ns * rank.steps.n
        assert verdict.speedup_ceiling == pytest.approx(window / (window - lost))
        assert np.isfinite(verdict.speedup_ceiling)
        n_judged += 1
    assert n_judged > len(PAIRS) / 2


@pytest.mark.parametrize("finding_id", [name for name in PAIRS if "window" in KINDS[name].thresholds])
def test_a_threshold_has_one_place(finding_id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changed there, it changes what is found, and what `profkit explain` says of it."""
    kind = KINDS[finding_id]
    rows = PAIRS[finding_id][0]().rows
    assert finding_id in triaged(rows).found
    assert "101 %" not in as_text(kind)
    monkeypatch.setitem(kind.thresholds, "window", replace(kind.thresholds["window"], value=1.01))
    assert finding_id not in triaged(rows).found
    assert "101 %" in as_text(kind)
