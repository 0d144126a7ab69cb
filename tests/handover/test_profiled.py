"""ncu's profiles beside a trace: what of the step is profiled, what limits it, what its roofs leave."""

import re

import pytest

from profkit.crosscheck.kernel_evidence import profiled
from profkit.crosscheck.trace_profile import portrait_of
from profkit.ingest.ncu.reader import read_profiles
from profkit.kernels.assess import assess_all
from profkit.model.documents.handover import HandoverStatus
from profkit.pipeline import analyse
from profkit.render.words.crosscheck import kernel_rows
from profkit.units import format_ns
from tests.handover.jobs import BLOCK, Job, Launch, Profile, ncu_csv

KERNELS = Job(jitter_us=0)  # 635 us a step: 480 us of gemm, 60 of layer norm, 40 + 40 of adds in two shapes
GEMM = Profile("Kernel2<cutlass_80_tensorop>(Params)", 50, 90, us=120, grid=(128, 4, 1), block=(256, 1, 1))
NORM = Profile("vectorized_layer_norm_kernel<float, float>(int, float)", 10, 70, us=15, grid=(512, 1, 1))
ADD = Profile("vectorized_elementwise_kernel<4>(int)", 20, 20, us=10, waves=0.3)


def told(tmp_path, *profiles, job=KERNELS):
    source = str(ncu_csv(tmp_path / "kernels.csv", *profiles))
    report = assess_all(read_profiles(source).profiles, sources=[source])
    return profiled(portrait_of(analyse(job.trace())), report)


def value(line, metric):
    return next(item.value for item in line.evidence if item.metric == metric)


def test_kernel_bound_becomes_what_the_kernels_are_bound_by(tmp_path):
    line = told(tmp_path, GEMM, NORM, ADD)
    assert line.status is HandoverStatus.CONFIRMED
    assert line.kernel_ns == 620_000
    assert line.covered_ns == 480_000 + 60_000 + 40_000  # the adds of the other shape are not profiled
    assert dict(line.by_class) == {"memory-bound": 540_000, "launch-too-small": 40_000}
    share = 100 * 540_000 / line.step_ns
    assert f"memory-bound kernels {share:.1f} %" in line.sentence
    assert f"{100 * 580 / 620:.1f} % of the kernel time is profiled" in line.sentence


def test_the_roof_bounds_what_is_to_be_won(tmp_path):
    gemm, norm, add = told(tmp_path, GEMM, NORM, ADD).kernels
    assert (gemm.function, gemm.kernel_class, gemm.roof_percent) == ("Kernel2", "memory-bound", 90)
    assert gemm.recoverable_ns == pytest.approx(48_000, abs=1)
    assert norm.recoverable_ns == pytest.approx(18_000, abs=1)
    assert add.recoverable_ns == pytest.approx(32_000, abs=1)
    assert value(told(tmp_path, GEMM, NORM), "handover.kernel_recoverable_ns") == pytest.approx(66_000, abs=2)


def test_the_same_function_in_another_shape_is_another_kernel(tmp_path):
    other = Profile(GEMM.name, 50, 90, grid=(1, 1, 1), block=(256, 1, 1))
    line = told(tmp_path, other, NORM)
    assert line.unmatched == ("Kernel2",)
    assert line.covered_ns == 60_000


def test_too_little_profiled_confirms_nothing_and_names_the_next_profile(tmp_path):
    line = told(tmp_path, NORM)
    assert line.status is HandoverStatus.OPEN
    assert "50.0 % is needed" in line.sentence
    assert line.next_tool.command == "profkit ncu --kernel Kernel2 -- python train.py"


def test_enough_profiled_leads_on_to_what_to_change(tmp_path):
    other_add = Profile(ADD.name, 20, 20, us=10, grid=(96, 1, 1))
    line = told(tmp_path, GEMM, NORM, ADD, other_add)
    assert line.covered_ns == line.kernel_ns == 620_000
    assert line.next_tool.command == f"profkit kernels {tmp_path}/kernels.csv"


def test_several_profiles_of_one_kernel_are_one_by_the_median(tmp_path):
    slow, slower = (Profile(GEMM.name, 1, 2, us=us, grid=GEMM.grid, block=GEMM.block) for us in (900, 901))
    (gemm,) = told(tmp_path, slower, GEMM, slow).kernels
    assert (gemm.ncu_ns, gemm.kernel_class, gemm.n_profiles) == (900_000, "latency-bound", 3)


def test_profiles_of_other_kernels_are_refused_and_named(tmp_path):
    line = told(tmp_path, Profile("other_kernel(int)", 50, 90))
    assert line.status is HandoverStatus.REFUSED
    assert "other_kernel" in line.sentence
    assert (line.covered_ns, line.kernels, line.by_class) == (0, (), ())


def test_a_profile_without_throughputs_says_nothing_of_limits(tmp_path):
    line = told(tmp_path, Profile(GEMM.name, float("nan"), 50, grid=GEMM.grid, block=GEMM.block))
    assert line.status is HandoverStatus.OPEN
    assert "never with both throughputs" in line.sentence
    assert line.kernels[0].recoverable_ns is None


def test_ncu_cannot_speak_on_a_step_that_waits(tmp_path):
    tiny = tuple(Launch(one.name, 5, one.grid, one.block, 7) for one in BLOCK) * 10
    line = told(tmp_path, GEMM, NORM, job=Job(launches=tiny, host_us=20))
    assert line.status is HandoverStatus.OPEN
    assert "says nothing about overhead-bound" in line.sentence
    assert line.next_tool.name == "nsys"


def test_a_kernel_that_ncu_ran_in_another_state_is_doubted(tmp_path):
    cold = Profile(GEMM.name, 50, 90, us=300, grid=GEMM.grid, block=GEMM.block)
    line = told(tmp_path, cold)
    assert value(line, "handover.ncu_duration_ratio") == pytest.approx(2.5)
    doubt = next(item for item in line.evidence if item.metric == "handover.ncu_duration_ratio")
    assert "may differ in the job" in doubt.statement
    assert value(told(tmp_path, GEMM), "handover.ncu_duration_ratio") == pytest.approx(1.0)


def test_collectives_are_no_part_of_what_ncu_must_cover(tmp_path):
    only_comm = tuple(one for one in BLOCK if one.stream == 20)
    job = KERNELS.but(launches=BLOCK * 4 + only_comm * 3)
    assert told(tmp_path, GEMM, job=job).kernel_ns == 620_000


def test_profiles_taken_in_another_state_confirm_nothing(tmp_path):
    """Twice as long and more: another batch in the same grid (persistent kernels), or other clocks."""
    slow = Profile(GEMM.name, 50, 90, us=300, grid=GEMM.grid, block=GEMM.block)
    line = told(tmp_path, slow, NORM)
    assert line.status is HandoverStatus.OPEN
    assert "took less than half or more than twice as long under ncu" in line.sentence
    assert told(tmp_path, GEMM, NORM).status is HandoverStatus.CONFIRMED


def test_profiles_of_another_device_are_refused(tmp_path):
    properties = [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "computeMajor": 8, "computeMinor": 0}]
    job = KERNELS.but(metadata={"deviceProperties": properties}, device="NVIDIA A100-SXM4-80GB")
    line = told(tmp_path, GEMM, NORM, job=job)  # the page says CC 9.0
    assert line.status is HandoverStatus.REFUSED
    assert "taken on another device (compute capability 9.0, the trace's is 8.0)" in line.sentence
    assert line.covered_ns == 0
    properties[0] |= {"computeMajor": 9}
    assert told(tmp_path, GEMM, NORM, job=job).status is HandoverStatus.CONFIRMED


def shares_in(text):
    return [float(found) for found in re.findall(r"([\d.]+) % of the (?:step|window)", text)]


def test_kernels_side_by_side_are_never_more_than_the_step(tmp_path):
    """Three streams that compute at once: shares are parts of the time in which any kernel runs."""
    beside = tuple(Launch(one.name, one.us, one.grid, one.block, stream) for one in BLOCK[:3] for stream in (7, 8, 9))
    line = told(tmp_path, GEMM, NORM, job=KERNELS.but(launches=beside * 4))
    assert line.kernel_ns == 3 * 4 * 145_000 > line.step_ns >= line.busy_ns
    assert 0.9 * line.busy_ns < line.step_ns
    shares = [line.share(spent) for _, spent in line.by_class]
    assert sum(shares) == pytest.approx(line.covered_ns / line.kernel_ns * line.busy_ns / line.step_ns)
    assert f"1.74 ms of kernels overlap in {format_ns(line.busy_ns)} per step" in line.sentence
    statements = [item.statement for item in line.evidence]
    found = [share for text in (line.sentence, *statements) for share in shares_in(text)]
    assert len(found) == 4
    assert max(found) <= 100
    assert value(line, "handover.kernel_recoverable_ns") <= line.busy_ns
    assert all(float(row[4].removesuffix(" %")) <= 100 for row in kernel_rows(line))


def test_one_after_the_other_needs_no_word_on_shares(tmp_path):
    assert "kernels overlap" not in told(tmp_path, GEMM, NORM).sentence


def test_kernels_of_no_length_have_no_shares(tmp_path):
    """A file may give every kernel 0 ns."""
    nothing = tuple(Launch(one.name, 0, one.grid, one.block, one.stream) for one in BLOCK)
    line = told(tmp_path, GEMM, NORM, job=KERNELS.but(launches=nothing))
    assert line.status is HandoverStatus.REFUSED
    assert line.sentence == "ncu's profiles are not merged: the kernels of the trace last 0 ns per step"
    assert (line.kernel_ns, line.busy_ns, line.share(0)) == (0, 0, 0.0)


def test_a_kernel_above_its_roof_stands_at_it(tmp_path):
    """Passes differ, so that ncu prints some percentages above 100."""
    line = told(tmp_path, Profile(GEMM.name, 50, 104, us=120, grid=GEMM.grid, block=GEMM.block), NORM)
    assert (line.kernels[0].roof_percent, line.kernels[0].recoverable_ns) == (100.0, 0)
    assert "its busier roof at 100.0 % of peak" in line.evidence[0].statement
