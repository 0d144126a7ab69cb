"""What must not change when a trace is told differently, and what must when a known cause is put into it."""

import gzip
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from profkit.api import triage
from profkit.errors import UnsupportedTraceError
from profkit.model.documents.report import Bottleneck, Report
from profkit.render.json.triage import report_to_dict
from profkit.testing import Row
from tests.metamorphic import ALL_REDUCE, Job, triaged

MM_NS = 200_000
N_MM = 20


def _train(job: Job) -> None:
    """Run steps of twenty products, each ended by a read of the loss."""
    job.steps(8, lambda: _one_step(job))


def _one_step(job: Job, mm_ns: int = MM_NS, n: int = N_MM, *, then_ns: int = 0) -> None:
    job.ops(n, mm_ns)
    job.synchronise()
    job.work(then_ns)


def _stalling(folder: Path, *stalls_ms: int) -> Report:
    """The report of a job whose steps end in such stalls of the host."""
    job = Job()
    for number, stall_ms in enumerate(stalls_ms):
        job.step(number, lambda then_ns=stall_ms * 1_000_000: _one_step(job, then_ns=then_ns))
    return triaged(job.rows, folder)


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


EDGED = "host.sync"
"""What waits cost is read from a replay: a host that runs ahead does not gain in the window's first step."""


def test_allocator_calls_cost_no_more_than_the_idle_time_they_make(tmp_path: Path) -> None:
    job = Job()

    def allocate() -> None:  # 1 ms in the driver, of which the product before it hides 0.2 ms less what the host took
        job.synchronise(call="Malloc", cost_ns=1_000_000)

    def body() -> None:
        for _ in range(10):
            job.op("aten::empty", allocate)
            job.ops(1, MM_NS)

    job.steps(6, body)
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
        job.ops(20, 20_000, dispatch_ns=20_000, rest_ns=150_000)
        name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
        waits.append(Row(name=name, cat="user_annotation", start_ns=start, end_ns=job.now_ns - 1_000, tid=2222))

    job.steps(6, body)
    report = triaged([*job.rows, *waits], tmp_path)
    assert report.verdict.bottleneck is not Bottleneck.DATA
    assert "input.starved" not in _finding_ids(report)
    assert report.ranks[0].devices[0].budget.idle_data == 0


@pytest.mark.parametrize("n_steps", [6, 10, 40])
def test_one_stall_in_one_step_is_not_said_of_each_step(n_steps: int, tmp_path: Path) -> None:
    report = _stalling(tmp_path, *(100 if number == 3 else 0 for number in range(n_steps)))
    assert "host.launch_bound" not in _finding_ids(report)
    if n_steps < 40:  # the stall is 71 % and 54 % of the window
        assert report.verdict.bottleneck is Bottleneck.INCONCLUSIVE
        assert "host.stall" in _finding_ids(report)


@pytest.mark.parametrize("n_steps", [2, 3, 5])
def test_one_stall_in_every_step_is_no_start_up_however_few_the_steps_are(n_steps: int, tmp_path: Path) -> None:
    report = _stalling(tmp_path, *[20] * n_steps)
    assert "host.stall" not in _finding_ids(report)
    assert report.verdict.bottleneck in {Bottleneck.OVERHEAD, Bottleneck.SYNC}
    assert report.verdict.recoverable_ns == pytest.approx(20_000_000, rel=0.2)


def test_a_stall_of_a_fifth_of_every_step_is_said_though_all_is_launched_ahead(tmp_path: Path) -> None:
    job = Job()
    job.steps(4, lambda: (job.ops(40, 1_000_000), job.work(50_000_000)))
    report = triaged(job.rows, tmp_path)
    assert "host.launch_bound" in _finding_ids(report)
    assert any("is one gap in each of 4 steps" in item.statement for one in report.findings for item in one.evidence)


@pytest.mark.parametrize(
    "stalls_ms",
    [(24, 11, 10, 10, 9), [20 if number % 4 == 1 else 0 for number in range(12)]],
    ids=["one step was held up", "every fourth step"],
)
def test_what_the_host_does_again_and_again_is_no_single_event_and_no_start_up(stalls_ms, tmp_path: Path) -> None:
    report = _stalling(tmp_path, *stalls_ms)
    assert "host.stall" not in _finding_ids(report)
    assert report.verdict.bottleneck in {Bottleneck.OVERHEAD, Bottleneck.SYNC}


def test_a_start_up_beside_small_stalls_stays_one(tmp_path: Path) -> None:
    assert "host.stall" in _finding_ids(_stalling(tmp_path, 20, 5, 5))


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


def test_idle_time_in_which_the_profiler_itself_worked_is_not_the_jobs(tmp_path: Path) -> None:
    job, flushes = Job(), []

    def body() -> None:
        _one_step(job)
        start = job.now_ns
        job.work(3_000_000)
        flushes.append(Row(name="Buffer Flush", cat="overhead", start_ns=start, end_ns=job.now_ns, pid=-1, tid=0))

    job.steps(8, body)
    report = triaged([*job.rows, *flushes], tmp_path)
    assert "profiler.overhead" in _failed(report)
    assert report.verdict.bottleneck is Bottleneck.INCONCLUSIVE
    assert report.verdict.recoverable_ns == 0


def test_markers_that_the_device_does_not_keep_up_with_are_no_step_times(tmp_path: Path) -> None:
    job = Job()
    job.steps(5, lambda: job.ops(20, 1_000_000, dispatch_ns=80_000))  # 1.6 ms of the host, 20 ms of the device
    job.synchronise()
    report = triaged(job.rows, tmp_path)
    # the first product starts 5 us after its launch, then 100 take 1 ms each and 1 us between
    assert report.verdict.step_ns == 20_019_800
    assert report.ranks[0].steps.source == "device"
    assert any("the GPU takes 20.0 ms for a step" in caveat for caveat in report.verdict.caveats)


def test_two_processes_that_train_on_two_devices_are_refused(tmp_path: Path) -> None:
    one, two = Job(), Job(pid=2000, device=1)
    _train(one)
    _train(two)
    with pytest.raises(UnsupportedTraceError, match=r"2 processes \(1000, 2000\) that launch work on 2 devices"):
        triaged([*one.rows, *two.rows], tmp_path)


def test_two_processes_that_share_numbers_of_launches_are_not_mixed_up(tmp_path: Path) -> None:
    one, two = Job(), Job(pid=2000, device=1)
    one.ops(19, 20_000)  # too few for a process that trains
    two.steps(8, lambda: two.ops(N_MM, 20_000, rest_ns=150_000))
    alone = triaged(two.rows, tmp_path).ranks[0].devices[0].budget
    both = triaged([*one.rows, *two.rows], tmp_path)
    second = next(device for device in both.ranks[0].devices if device.device == 1).budget
    assert alone.idle_dependency < 0.01 * alone.window_ns
    assert second.idle_dependency < 0.01 * second.window_ns
    assert "device.unlinked" in _failed(both)
    assert any("processes" in warning for warning in both.ranks[0].warnings)


def test_fusing_does_not_reach_over_the_end_of_a_step(tmp_path: Path) -> None:
    job, name = Job(), "void at::native::vectorized_elementwise_kernel<4>"
    job.steps(10, lambda: (job.ops(4, MM_NS, op="aten::add", name=name), job.synchronise()))
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
        {f.id: f.recoverable_ns for f in report.findings if f.id not in {"capture.quality", EDGED}}
        for report in (told, found)
    ]
    assert per_step[0] == {"input.starved": 2_000_000, "h2d.exposed": 1_000_000}
    # the window begins with the first copy, after the first wait; by the seven steps found alone it would be 14 % more
    assert per_step[1] == pytest.approx({"input.starved": 7 * 2_000_000 / 8, "h2d.exposed": 1_000_000}, rel=0.05)


def test_start_up_beside_steps_found_by_their_period_is_left_out(tmp_path: Path) -> None:
    late, steady = Job(), Job()
    late.launch(10_000, name="fill_kernel")
    late.work(400_000_000)
    for job in (late, steady):
        _with_copies(job, 8, is_marked=False)
    report, rest = triaged(late.rows, tmp_path), triaged(steady.rows, tmp_path)
    alone = triaged(late.rows, tmp_path, step_range=(0, 7))
    assert report.verdict.bottleneck is alone.verdict.bottleneck is rest.verdict.bottleneck is Bottleneck.DATA
    assert report.verdict.recoverable_ns == alone.verdict.recoverable_ns == pytest.approx(2_000_000, rel=0.01)
    (said,) = [caveat for caveat in report.verdict.caveats if "left out" in caveat]
    assert said.startswith("the window is the 7 steps found by their period: 4")


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
    assert [f.recoverable_ns for f in whole.findings if f.id != EDGED] == [
        f.recoverable_ns for f in cut.findings if f.id not in {"capture.quality", EDGED}
    ]
    assert cut.ranks[0].devices[0].budget.compute * 4 == whole.ranks[0].devices[0].budget.compute


def _one_device_after_the_other(n_kernels: int) -> list[Row]:
    """Steps in which device 1 waits for so many kernels on device 0."""
    first, second = Job(), Job(device=1, first=1_000_000)

    def body() -> None:
        first.ops(n_kernels, 300_000)
        second.follow(first)
        second.ops(10, 200_000)
        second.synchronise()
        first.now_ns = second.now_ns

    first.steps(8, body)
    return [*first.rows, *second.rows]


def test_a_device_that_waits_for_another_does_not_set_the_latency(tmp_path: Path) -> None:
    device = triaged(_one_device_after_the_other(10), tmp_path).ranks[0].devices[1]
    assert device.budget.idle_launch < 0.1 * device.budget.window_ns


def test_a_window_of_copies_from_the_device_is_called_that(tmp_path: Path) -> None:
    job = Job()
    job.steps(6, lambda: (_one_step(job), job.copy(9_000_000, to="Host"), job.synchronise()))
    report = triaged(job.rows, tmp_path)
    assert report.verdict.bottleneck is Bottleneck.COPY
    assert report.verdict.headline == "copies from the device are not hidden: 69.1 % of the window"  # as in the bar
    assert report.verdict.findings[0].recoverable_ns == pytest.approx(9_000_000, rel=0.001)


def test_hip_calls_are_an_amd_devices(tmp_path: Path) -> None:
    job = Job(calls="hip")
    _train(job)
    assert triaged(job.rows, tmp_path).verdict.next_tool.name == "rocprof-compute"


IDLE_NS = 2_000_000


def _with_loader(job: Job) -> None:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
    job.range(name, lambda: job.work(IDLE_NS))
    _one_step(job)


def _with_host_work(job: Job) -> None:
    """Do it where nothing had held the host back: the device has run dry by itself."""
    job.ops(N_MM, MM_NS)
    job.work(job.left_ns + IDLE_NS)


def _with_all_reduce(job: Job) -> None:
    job.ops(N_MM, MM_NS)
    job.op("c10d::allreduce_", lambda: job.launch(IDLE_NS, name=ALL_REDUCE, stream=20, after=(7,)))
    job.synchronise(stream=20)


def _with_pageable_copy(job: Job) -> None:
    job.copy(IDLE_NS, is_pageable=True)
    _one_step(job)


@pytest.mark.parametrize(
    ("put_in", "part", "bottleneck"),
    [
        (_with_loader, "idle_data", Bottleneck.DATA),
        (_with_host_work, "idle_host", Bottleneck.OVERHEAD),
        (partial(_one_step, then_ns=IDLE_NS), "idle_sync", Bottleneck.SYNC),
        (_with_all_reduce, "comm_exposed", Bottleneck.COMM),
        (_with_pageable_copy, "copy_exposed", Bottleneck.COPY),
    ],
)
def test_a_cause_put_in_is_found_with_its_size(
    put_in: Callable[[Job], None], part: str, bottleneck: Bottleneck, tmp_path: Path
) -> None:
    plain, job = Job(), Job()
    _train(plain)
    job.steps(8, lambda: put_in(job))
    before, after = (triaged(each.rows, tmp_path) for each in (plain, job))
    was, now = (report.ranks[0].devices[0].budget for report in (before, after))
    assert before.verdict.bottleneck is Bottleneck.KERNEL
    assert after.verdict.bottleneck is bottleneck
    assert now.compute == was.compute
    # around each launch and synchronisation the host takes some microseconds, which its own part may gain or lose
    assert now.parts[part] - was.parts[part] == pytest.approx(8 * IDLE_NS, rel=0.01)
    assert after.verdict.recoverable_ns == pytest.approx(IDLE_NS, rel=0.02)
    assert after.verdict.speedup_ceiling == pytest.approx(
        now.window_ns / (now.window_ns - 8 * after.verdict.recoverable_ns)
    )
    assert after.verdict.speedup_ceiling == pytest.approx(now.window_ns / was.window_ns, rel=0.01)


def _shown(report: Report) -> dict[str, Any]:
    """Give the document without where it came from and when."""
    document = report_to_dict(report)
    document["verdict"]["source"] = document["ranks"][0]["source"] = ""
    return document


def _answer(report: Report) -> tuple[object, ...]:
    """Give what is said of a step, without the places and counts of the evidence."""
    verdict = report.verdict
    found = [(f.id, f.title, f.severity, f.confidence, f.fraction, f.recoverable_ns) for f in report.findings]
    head = (verdict.bottleneck, verdict.headline, verdict.confidence, verdict.recoverable_ns, verdict.speedup_ceiling)
    return (*head, verdict.fixes, verdict.caveats, verdict.ruled_out, verdict.next_tool, found)


def _mixed_job() -> Job:
    job = Job()
    _with_copies(job, 4)
    for number in range(4, 8):
        job.step(number, lambda: _with_all_reduce(job))
    return job


def test_the_order_of_events_says_nothing(tmp_path: Path) -> None:
    rows = _mixed_job().rows
    told = _shown(triaged(rows, tmp_path))
    for seed in range(3):
        shuffled = random.Random(seed).sample(rows, len(rows))  # noqa: S311
        assert _shown(triaged(shuffled, tmp_path)) == told


@pytest.mark.parametrize("layout", ["minified", "indented", "events_last", "list"])
def test_the_layout_of_the_file_says_nothing(layout: str, tmp_path: Path) -> None:
    rows = _mixed_job().rows
    assert _shown(triaged(rows, tmp_path, layout=layout)) == _shown(triaged(rows, tmp_path))


def test_the_clock_says_nothing(tmp_path: Path) -> None:
    rows = _mixed_job().rows
    later_ns = 1_700_000_000 * 10**9 + 321
    shifted = [replace(row, start_ns=row.start_ns + later_ns, end_ns=row.end_ns + later_ns) for row in rows]
    told, later = triaged(rows, tmp_path), triaged(shifted, tmp_path)
    assert _answer(later) == _answer(told)
    assert later.ranks[0].devices == told.ranks[0].devices
    assert later.ranks[0].window_ns[0] - told.ranks[0].window_ns[0] == later_ns


def _counted(row: Row, by: int, *keys: str) -> Row:
    return replace(row, args={**row.args, **{key: row.args[key] + by for key in keys if key in row.args}})


def _renamed(row: Row) -> Row:
    """The row on threads, streams and in a process of other names."""
    pid = row.pid if row.cat in {"kernel", "gpu_memcpy"} else 31
    return replace(_counted(row, 100, "stream"), pid=pid, tid=f"thread {row.tid}")


@pytest.mark.parametrize("other", [_renamed, 2**31 - 100, 2**31, 2**40])
def test_names_of_threads_and_how_large_the_profilers_numbers_are_say_nothing(other: Any, tmp_path: Path) -> None:
    rows = _mixed_job().rows
    numbers = ("correlation", "External id", "stream")
    changed = [_counted(row, other, *numbers) if isinstance(other, int) else other(row) for row in rows]
    told, again = triaged(rows, tmp_path), triaged(changed, tmp_path)
    assert _answer(again) == _answer(told)
    assert again.ranks[0].devices[0].budget == told.ranks[0].devices[0].budget


def test_twice_the_steps_are_twice_the_budget(tmp_path: Path) -> None:
    once, twice = Job(), Job()
    _with_copies(once, 8)
    _with_copies(twice, 16)
    first, second = triaged(once.rows, tmp_path), triaged(twice.rows, tmp_path)
    parts = first.ranks[0].devices[0].budget.parts
    assert second.ranks[0].devices[0].budget.parts == {name: 2 * part for name, part in parts.items()}
    one, other = ([f for f in report.findings if f.id != EDGED] for report in (first, second))
    assert [(f.id, f.fraction, f.recoverable_ns, f.severity) for f in one] == [
        (f.id, f.fraction, f.recoverable_ns, f.severity) for f in other
    ]
    assert first.verdict.bottleneck is second.verdict.bottleneck


def test_without_runtime_calls_no_cause_is_named_for_idle_time(tmp_path: Path) -> None:
    job = Job()
    job.steps(8, lambda: _one_step(job, then_ns=IDLE_NS))
    bare = triaged([row for row in job.rows if row.cat != "cuda_runtime"], tmp_path)
    budget = bare.ranks[0].devices[0].budget
    assert budget.idle_unknown == budget.idle_ns
    assert bare.verdict.bottleneck is Bottleneck.INCONCLUSIVE
    assert bare.verdict.speedup_ceiling is None


@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    [
        "hta-tests/amd_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
        "cpu_captures/zerocode_ddp__rank0.pt.trace.json.gz",
        "param-et-replay/dlrm_kineto/worker0_step_12.1694128201545.pt.trace.json.gz",
        "tokenomics-llama-tp2/8f176e-llama_trace_4layers0_dim_1024.json.gz",
    ],
)
def test_a_real_trace_may_be_shuffled_and_lose_its_arrows(name: str, shared_traces: Path, tmp_path: Path) -> None:
    top = msgspec.json.decode(gzip.decompress((shared_traces / name).read_bytes()), type=dict[str, msgspec.Raw])
    events = msgspec.json.decode(top["traceEvents"], type=list[msgspec.Raw])
    path = tmp_path / "trace.json"

    def told(rows: list[msgspec.Raw]) -> dict[str, Any]:
        path.write_bytes(msgspec.json.encode({**top, "traceEvents": rows}))
        return _shown(triage([str(path)]))

    whole = told(events)
    assert told(random.Random(7).sample(events, len(events))) == whole  # noqa: S311
    arrows = [b'"ac2g"', b'"async"', b'"async_gpu"']
    without = told([event for event in events if not any(arrow in bytes(event) for arrow in arrows)])
    assert without["ranks"][0]["n_events"] <= whole["ranks"][0]["n_events"]
    without["ranks"][0]["n_events"] = whole["ranks"][0]["n_events"]
    assert without == whole


def test_gaps_inside_a_graph_are_no_waiting_for_the_host(tmp_path: Path) -> None:
    job = Job()
    job.steps(10, lambda: (job.op("CompiledFunction", lambda: job.replay(1_000, 2_000, 1_200)), job.synchronise()))
    report = triaged(job.rows, tmp_path)
    assert report.ranks[0].devices[0].budget.compute == 10 * 1_000 * 2_000
    assert "host.launch_bound" not in _finding_ids(report)
    assert report.verdict.bottleneck is Bottleneck.KERNEL
    assert not report.verdict.is_healthy
    gaps = 10 * 999 * 1_200 / report.ranks[0].devices[0].budget.window_ns
    assert any(f"{100 * gaps:.1f} % of the window" in caveat for caveat in report.verdict.caveats)


def test_another_device_that_works_meanwhile_is_said(tmp_path: Path) -> None:
    report = triaged(_one_device_after_the_other(20), tmp_path)
    assert any(caveat.startswith("the verdict is on device 0, busiest of 2") for caveat in report.verdict.caveats)


def _slow_host_under_an_all_reduce(job: Job) -> None:
    """Reduce for 4 ms while the host takes as long to launch small kernels, and would without the reduction."""
    job.launch(4_000_000, name=ALL_REDUCE, stream=20)
    job.ops(N_MM, 20_000, rest_ns=200_000)
    job.synchronise(stream=20)
    job.synchronise()


def test_communication_under_which_the_host_launches_nothing_holds_nothing_up(tmp_path: Path) -> None:
    with_it, without_it = Job(), Job()
    for each in (with_it, without_it):
        each.steps(8, lambda job=each: _slow_host_under_an_all_reduce(job))
    bare = [row for row in without_it.rows if row.name != ALL_REDUCE]
    report = triaged(with_it.rows, tmp_path)
    window_ns = report.ranks[0].devices[0].budget.window_ns
    gained = window_ns - triaged(bare, tmp_path).ranks[0].devices[0].budget.window_ns
    assert gained == 0  # the host ends as late without the reduction
    assert report.ranks[0].devices[0].budget.comm_exposed > 0.8 * window_ns
    finding = next(finding for finding in report.findings if finding.id == "comm.exposed")
    to_win = next(e.value for e in finding.evidence if e.metric == "comm.recoverable_interval_ns")
    assert to_win < 0.03 * window_ns / 8  # the lag of its launches
    assert any("the host had not launched" in caveat for caveat in report.verdict.caveats)


def test_who_compiles_already_is_not_told_to_compile(tmp_path: Path) -> None:
    job, name = Job(), "triton_poi_fused_add_mul_3"
    job.steps(8, lambda: (job.ops(N_MM, MM_NS, op="CompiledFunction", name=name), job.synchronise()))
    report = triaged(job.rows, tmp_path)
    finding = next(finding for finding in report.findings if finding.id == "kernel.unfused")
    assert "torch.compile" not in finding.fix


@pytest.mark.parametrize(("ahead_ns", "is_known"), [(0, True), (150_000, False)])
def test_with_clocks_apart_idle_time_has_no_cause(ahead_ns: int, is_known: bool, tmp_path: Path) -> None:
    job = Job()
    job.steps(8, lambda: (job.work(400_000), job.ops(9, 100_000, rest_ns=400_000), job.ops(1, 100_000)))
    rows = [
        replace(row, start_ns=row.start_ns - ahead_ns, end_ns=row.end_ns - ahead_ns) if row.cat == "kernel" else row
        for row in job.rows
    ]
    report = triaged(rows, tmp_path)
    budget = report.ranks[0].devices[0].budget
    assert (budget.idle_launch + budget.idle_host > 0) == is_known
    assert (report.verdict.bottleneck is Bottleneck.OVERHEAD) == is_known
    assert ("causality" in _failed(report)) != is_known
    statements = [item.statement for finding in report.findings for item in finding.evidence]
    assert any("were launched while the GPU was idle" in text for text in statements) == is_known
