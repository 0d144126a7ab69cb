"""Two tools on one job: what is confirmed, overturned, answered, left open or refused, and on which numbers."""

import pytest

from profkit.crosscheck.compared_timelines import timeline
from profkit.crosscheck.trace_profile import portrait_of
from profkit.ingest.read import read_traces
from profkit.model.documents.handover import HandoverStatus
from profkit.model.documents.report import Bottleneck
from profkit.pipeline import analyse
from profkit.testing import trace_of
from tests.handover.jobs import ADD, BLOCK, GEMM, NORM, Job, Launch, exported, os_wait

KERNELS = Job()
TINY = tuple(Launch(one.name, 5, one.grid, one.block, 7) for one in BLOCK) * 10
OVERHEAD = Job(launches=TINY, host_us=20)
"""50 kernels of 5 us, a launch every 24 us."""


def portrait(trace):
    return portrait_of(analyse(trace))


def beside(first, second, tmp_path, **more):
    return timeline(portrait(first.trace()), portrait(second.nsys(tmp_path / "second.sqlite", **more)))


def said(line, metric):
    return next((item for item in (*line.evidence, *line.explained) if item.metric == metric), None)


def test_the_same_job_is_confirmed_whatever_each_tool_costs(tmp_path):
    line = beside(KERNELS, KERNELS.but(stretch=1.03, host_us=3), tmp_path)
    assert line.status is HandoverStatus.CONFIRMED
    assert (line.first.time_fraction, line.second.launch_fraction) == (1.0, 1.0)
    assert (line.n_pairs, line.paired_by, line.first.n_launches) == (6, "number", 120)
    assert said(line, "handover.kernel_ratio").value == pytest.approx(1.03)
    gemm = next(row for row in line.functions if row.function == "Kernel2")
    assert (gemm.family, gemm.first_count, gemm.second_count, gemm.n_matched) == ("matmul", 4.0, 4.0, 24)
    assert (gemm.first_ns, gemm.second_ns) == (480_000, 494_400)
    assert gemm.ratio == pytest.approx(1.03)
    assert next(row.family for row in line.functions if row.function.startswith("nccl")) == "comm"
    assert all(part.agrees for part in line.parts)


def test_shares_are_of_whole_steps_and_their_parts_add_up(tmp_path):
    line = beside(OVERHEAD, OVERHEAD.but(host_us=12), tmp_path)
    assert sum(part.first for part in line.parts) == pytest.approx(1)
    assert sum(part.second for part in line.parts) == pytest.approx(1)
    compute = next(part for part in line.parts if part.part == "compute")
    # four of five kernels compute, 5 us each, ten times a step
    assert compute.first == pytest.approx(40 * 5_000 / line.first.step_ns, rel=1e-3)
    assert compute.second == pytest.approx(40 * 5_000 / line.second.step_ns, rel=1e-3)
    assert compute.agrees is False


def test_the_same_bottleneck_with_less_overhead_is_confirmed_and_says_how_much_less(tmp_path):
    line = beside(OVERHEAD, OVERHEAD.but(host_us=12), tmp_path)
    assert line.status is HandoverStatus.CONFIRMED
    assert said(line, "handover.step_ratio").value == pytest.approx(line.second.step_ns / line.first.step_ns)
    assert line.second.step_ns < line.first.step_ns
    assert "so the confidence stays" not in line.sentence
    ours, theirs = (portrait(job.trace()).verdict for job in (OVERHEAD, OVERHEAD.but(host_us=12)))
    ceiling = said(line, "handover.second_recoverable_ns")
    assert ceiling.value == pytest.approx(theirs.recoverable_ns, rel=0.01)
    assert ceiling.value < ours.recoverable_ns


def test_a_tool_that_disturbs_more_makes_nothing_surer(tmp_path):
    line = beside(OVERHEAD, OVERHEAD.but(host_us=40), tmp_path)
    assert line.status is HandoverStatus.CONFIRMED
    assert line.confidence_after == line.confidence_before
    assert "so the confidence stays" in line.sentence


def test_confidence_rises_to_that_of_the_better_capture(tmp_path):
    few = OVERHEAD.but(n_steps=2)  # fewer than three steps: at most 0.6
    line = beside(few, OVERHEAD, tmp_path)
    assert line.status is HandoverStatus.CONFIRMED
    assert line.confidence_before == 0.6
    assert line.confidence_after == portrait(OVERHEAD.trace()).verdict.confidence > 0.6
    assert line.confidence_why.startswith("0.60 -> 0.85")


def test_gaps_that_vanish_with_less_overhead_overturn_the_verdict(tmp_path):
    line = beside(OVERHEAD, OVERHEAD.but(host_us=1, call_us=1), tmp_path)
    assert line.status is HandoverStatus.OVERTURNED
    assert line.sentence.startswith("nsys overturns overhead-bound")
    assert said(line, "handover.cause_difference").value < -0.5
    assert said(line, "handover.launch_call_ns").value == 1000
    assert line.other_rank.format == "nsys"


def test_the_other_way_round_nothing_is_overturned(tmp_path):
    """The second tool's steps are longer: its gaps may be its own."""
    line = beside(OVERHEAD.but(host_us=1, call_us=1), OVERHEAD, tmp_path)
    assert line.status is HandoverStatus.OPEN
    assert "disturbs the job more" in line.sentence
    assert line.confidence_after == 0.45
    assert line.next_tool.command.startswith("profkit capture --unprofiled-steps 10")


def test_one_step_a_side_contradicts_and_settles_nothing(tmp_path):
    line = beside(OVERHEAD.but(n_steps=1), OVERHEAD.but(n_steps=1, host_us=1, call_us=1), tmp_path)
    assert line.status is HandoverStatus.OPEN
    assert all(part.allowed is None for part in line.parts)
    assert "one step on a side" in line.sentence


def test_a_part_that_steps_scatter_in_is_allowed_to_differ(tmp_path):
    calm = Job(wait_us=400, wait="data_loading", jitter_us=0)
    rough = calm.but(wait_us=320, jitter_us=150)
    line = beside(calm, rough, tmp_path)
    data = next(part for part in line.parts if part.part == "idle_data")
    assert data.allowed > 0.05
    assert data.agrees
    assert data.difference > 0.02


def test_the_kernels_of_other_streams_in_another_order_are_the_same(tmp_path):
    moved = BLOCK[4:] + BLOCK[:4]  # the collective is launched before the block, not after it
    line = beside(KERNELS, KERNELS.but(launches=moved * 4), tmp_path)
    assert (line.first.time_fraction, line.second.time_fraction) == (1.0, 1.0)


def test_a_kernel_that_one_side_does_not_have_is_named(tmp_path):
    without = tuple(one for one in BLOCK if one.name != NORM)
    line = beside(KERNELS, KERNELS.but(launches=without * 4), tmp_path)
    assert line.status is HandoverStatus.CONFIRMED
    alone = said(line, "handover.only_first_fraction")
    assert "vectorized_layer_norm_kernel" in alone.statement
    assert alone.value == pytest.approx(15 / 175)
    assert said(line, "handover.only_second_fraction") is None
    assert line.first.time_fraction == pytest.approx(160 / 175)
    assert line.second.time_fraction == 1.0


def test_another_workload_is_refused_with_the_number(tmp_path):
    other = (Launch("void other::kernel<2>(int)", 100, (3, 1, 1)), BLOCK[1], Launch("more", 50))
    line = beside(KERNELS, KERNELS.but(launches=other * 4), tmp_path)
    assert line.status is HandoverStatus.REFUSED
    assert "not the same workload" in line.sentence
    assert "both need 60.0 %" in line.sentence
    assert (line.parts, line.functions, line.explained) == ((), (), ())
    assert line.first.time_fraction == pytest.approx(10 / 175)
    assert line.confidence_after == line.confidence_before


def test_another_batch_size_is_refused_and_said(tmp_path):
    doubled = tuple(Launch(one.name, one.us, (2 * one.grid[0], 1, 1), one.block, one.stream) for one in BLOCK)
    line = beside(KERNELS, KERNELS.but(launches=doubled * 4), tmp_path)
    assert line.status is HandoverStatus.REFUSED
    assert "100.0 % by function alone: another batch size" in line.sentence


def test_another_device_is_refused(tmp_path):
    line = beside(KERNELS, KERNELS.but(device="NVIDIA A100"), tmp_path)
    assert line.status is HandoverStatus.REFUSED
    assert "NVIDIA H100 and NVIDIA A100" in line.sentence


def test_a_trace_without_steps_is_refused(tmp_path):
    export = exported(KERNELS.but(launches=(Launch(GEMM, 100), Launch(ADD, 7, (2, 1, 1)))).trace())
    export.rows["NVTX_EVENTS"] = []
    (second,) = read_traces(str(export.write(tmp_path / "bare.sqlite")))
    line = timeline(portrait(KERNELS.trace()), portrait(second))
    assert line.status is HandoverStatus.REFUSED
    assert "nsys' trace has no steps" in line.sentence


def test_graphs_recorded_as_wholes_are_why_nothing_matches(tmp_path):
    export = exported(KERNELS.trace())
    kernels = export.rows.pop("CUPTI_ACTIVITY_KIND_KERNEL")
    for row in kernels[::20]:
        times = {"start": row["start"], "end": row["end"] + 500_000}
        ids = {name: row[name] for name in ("deviceId", "contextId", "streamId", "correlationId", "globalPid")}
        export.add("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **times, **ids, graphId=4, graphExecId=4)
    (second,) = read_traces(str(export.write(tmp_path / "graphs.sqlite")))
    line = timeline(portrait(KERNELS.trace()), portrait(second))
    assert line.status is HandoverStatus.REFUSED
    assert "nsys recorded CUDA graphs without their kernels" in line.sentence


def test_what_the_host_waited_for_is_told(tmp_path):
    job = KERNELS.but(wait_us=300, wait="checkpoint", jitter_us=0)
    trace = job.trace()
    export = exported(trace)
    for step in trace.steps:
        start = step.start_ns - trace.window_ns[0] + 10**9
        os_wait(export, start, start + 250_000, "fsync")
        os_wait(export, start + 250_000, start + 290_000, "poll")
    (second,) = read_traces(str(export.write(tmp_path / "x.sqlite")))
    line = timeline(portrait(trace), portrait(second))
    wait = said(line, "handover.os_wait_ns")
    assert wait.value == pytest.approx(290_000, abs=3_000)
    assert "fsync 2" in wait.statement
    ranged = said(line, "handover.idle_in_range_ns")
    assert ranged.statement.startswith("GPU idle time inside ranges, per step: checkpoint")
    assert ranged.value == pytest.approx(300_000, abs=3_000)


def test_what_the_first_could_not_tell_the_second_answers(tmp_path):
    """Kernels without their launches: the first is inconclusive, the second has them."""
    rows = [row for row in OVERHEAD.rows() if row.cat not in {"cuda_runtime", "cpu_op"}]
    first = portrait(trace_of(rows))
    assert first.verdict.bottleneck is Bottleneck.INCONCLUSIVE
    line = timeline(first, portrait(OVERHEAD.nsys(tmp_path / "x.sqlite")))
    assert line.status is HandoverStatus.ANSWERED
    assert "overhead-bound" in line.sentence
    assert said(line, "handover.unresolved_fraction").value < 0.02


def test_a_cause_that_no_profiler_makes_is_not_overturned_by_another_run(tmp_path):
    """A loader that was slow in one run (a cold page cache) is no work of the profiler: the runs differ."""
    slow = KERNELS.but(wait_us=900, wait="data_loading", jitter_us=0)
    line = beside(slow, slow.but(wait_us=0), tmp_path)
    assert portrait(slow.trace()).verdict.bottleneck is Bottleneck.DATA
    assert line.status is HandoverStatus.OPEN
    assert "a profiler cannot cause waiting for data: the runs differ" in line.sentence
    assert line.confidence_after == 0.45
    assert line.next_tool.name == "torch.profiler"


@pytest.mark.parametrize("stretch", [3.0, 0.3])
def test_the_same_kernels_of_quite_another_length_are_of_another_workload(tmp_path, stretch):
    """Persistent kernels keep their grid whatever the batch; no profiler makes a kernel twice as long."""
    line = beside(KERNELS, KERNELS.but(stretch=stretch), tmp_path)
    assert line.status is HandoverStatus.REFUSED
    assert f"the same kernels take {stretch:.2f}x as long under nsys" in line.sentence
    assert line.confidence_after == line.confidence_before


def test_a_job_with_fewer_layers_overturns_nothing(tmp_path):
    smaller = OVERHEAD.but(launches=TINY[:35], host_us=1, call_us=1)
    line = beside(OVERHEAD, smaller, tmp_path)
    assert line.status is HandoverStatus.OPEN
    assert "the runs differ: 50 launches per step by torch.profiler, 35 by nsys" in line.sentence
    assert line.confidence_after == 0.45
    bare = [row for row in OVERHEAD.rows() if row.cat not in {"cuda_runtime", "cpu_op"}]
    answer = timeline(portrait(trace_of(bare)), portrait(smaller.nsys(tmp_path / "answer.sqlite")))
    assert answer.status is HandoverStatus.OPEN
    assert answer.first_bottleneck == "inconclusive"
    assert "the runs differ" in answer.sentence


def test_a_job_with_fewer_layers_makes_nothing_surer(tmp_path):
    short = OVERHEAD.but(n_steps=1)
    whole = beside(short, OVERHEAD.but(host_us=15), tmp_path)
    assert whole.confidence_after > whole.confidence_before
    line = timeline(
        portrait(short.trace()), portrait(OVERHEAD.but(host_us=15, launches=TINY[:35]).nsys(tmp_path / "b.sqlite"))
    )
    assert line.status is HandoverStatus.CONFIRMED
    assert "the runs differ" in line.sentence
    assert line.confidence_after == line.confidence_before


def test_another_rank_overturns_nothing(tmp_path):
    ours = portrait(OVERHEAD.but(metadata={"distributedInfo": {"rank": 1, "world_size": 4}}).trace())
    theirs = portrait(OVERHEAD.but(host_us=1, call_us=1).nsys(tmp_path / "rank3.sqlite"))
    line = timeline(ours, theirs)
    assert line.status is HandoverStatus.OPEN
    assert "rank 1 by torch.profiler, rank 3 by nsys" in line.sentence
    same = portrait(OVERHEAD.but(host_us=1, call_us=1).nsys(tmp_path / "rank1.sqlite"))
    assert timeline(ours, same).status is HandoverStatus.OVERTURNED
