"""Verdicts, occupancy, waves, roofs and stalls from metrics; every sentence carries the metric it stands on."""

import json
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace

from profkit.cli import group
from profkit.ingest.ncu.reader import read_profiles
from profkit.kernels.assess import assess, assess_all
from profkit.kernels.speed import MEMORY_THROUGHPUT, SM_THROUGHPUT, ncu_title
from profkit.kernels.stalls import LATENCY
from profkit.model.kernel import KernelClass, KernelProfile, Rule
from profkit.render.json import kernels as kernels_json
from profkit.render.markdown import kernels as kernels_markdown
from profkit.render.schema import schema
from profkit.render.terminal import kernels
from tests.conftest import SHARED_TRACES

SHARED = SHARED_TRACES.parent
WAVES = "launch__waves_per_multiprocessor"


def profile(*, rules=(), name="void k<float>(float *)", **metrics):
    named = {"sm": SM_THROUGHPUT, "memory": MEMORY_THROUGHPUT, "waves": WAVES}
    return KernelProfile(
        source="s", number=0, name=name, function="k", grid=(8, 1, 1), block=(64, 1, 1), rules=rules,
        metrics={named.get(key, key): value for key, value in metrics.items()},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sm", "memory", "waves", "title", "kernel_class"),
    [
        (81, 10, 5, "High Throughput", KernelClass.COMPUTE),
        (10, 80.1, 0.5, "High Throughput", KernelClass.MEMORY),
        (80, 80, 5, "Balanced Throughput", KernelClass.BALANCED),
        (59.9, 59.9, 5, "Latency Issue", KernelClass.LATENCY),
        (59.9, 59.9, 0.99, "Small Grid", KernelClass.SMALL),
        (59.9, 59.9, 1, "Latency Issue", KernelClass.LATENCY),
        (60, 50.1, 5, "Balanced Throughput", KernelClass.BALANCED),
        (60, 50, 5, "High Compute Throughput", KernelClass.COMPUTE),
        (1.3, 61.84, 6.4, "High Memory Throughput", KernelClass.MEMORY),
    ],
)
def test_the_rule_of_nvidia_at_its_edges(sm, memory, waves, title, kernel_class):
    speed = assess(profile(sm=sm, memory=memory, waves=waves)).speed
    assert (speed.title, speed.kernel_class) == (title, kernel_class)


def test_ncus_own_verdict_is_read_from_its_own_rule():
    said = "The kernel exhibits low compute throughput: this kernel grid is too small to fill the available resources"
    other = Rule(id="LaunchConfiguration", kind="OPT", message=said)
    assert ncu_title(profile(rules=(other,))) == ""
    for rule_id in ("SOLBottleneck", "GPU Speed Of Light Throughput"):
        assert ncu_title(profile(rules=(other, replace(other, id=rule_id)))) != ""


def test_no_data_is_no_verdict():
    for metrics in ({}, {"sm": 50.0}, {"memory": 50.0}):
        one = assess(profile(**metrics))
        assert (one.speed.kernel_class, one.advice) == (KernelClass.NO_DATA, ())


def test_waves_are_computed_where_they_were_not_collected():
    limits = {"launch__occupancy_limit_warps": 4.0, "device__attribute_multiprocessor_count": 10.0}
    one = assess(profile(sm=5.0, memory=5.0, launch__grid_size=20.0, **limits))
    assert (one.speed.waves, one.speed.title) == (0.5, "Small Grid")


def test_limiters_are_the_least_limits_and_only_below_full_occupancy():
    limits = {
        "launch__occupancy_limit_registers": 1.0,
        "launch__occupancy_limit_shared_mem": 1.0,
        "launch__occupancy_limit_warps": 5.0,
        "launch__occupancy_limit_barriers": 0.0,
        "sm__maximum_warps_per_active_cycle_pct": 18.75,
    }
    held = assess(profile(**limits)).occupancy
    assert (held.limiters, held.blocks_per_sm) == (("registers", "shared memory"), 1)
    assert assess(profile(**{**limits, "sm__maximum_warps_per_active_cycle_pct": 100.0})).occupancy.limiters == ()


def test_the_tail_is_what_the_last_wave_leaves_empty():
    one = assess(profile(sm=30.0, memory=40.0, waves=1.25))
    assert one.waves.tail_fraction == pytest.approx(1 - 1.25 / 2)
    assert assess(profile(sm=30.0, memory=40.0, waves=3.0)).waves.tail_fraction == 0
    assert any(item.because.metric == WAVES for item in one.advice)


def fp32(**more):
    counted = "smsp__sass_thread_inst_executed_op_f{}_pred_on.sum.per_cycle_elapsed"
    return profile(
        sm=50.0,
        memory=70.0,
        **{
            counted.format("add"): 100.0,
            counted.format("mul"): 100.0,
            "derived__smsp__sass_thread_inst_executed_op_ffma_pred_on_x2": 800.0,
            "smsp__cycles_elapsed.avg.per_second": 1e9,
            "derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2": 10_000.0,
            "sm__cycles_elapsed.avg.per_second": 1e9,
            "dram__bytes.sum.per_second": 1e12,
            "dram__bytes.sum.peak_sustained": 2000.0,
            "dram__cycles_elapsed.avg.per_second": 1e9,
            **more,
        },
    )


def test_the_roofline_position_from_counted_instructions():
    roof = assess(fp32()).roofline
    assert (roof.precision, roof.flop_per_s, roof.peak_flop_per_s) == ("fp32", 1e12, 1e13)
    assert (roof.intensity, roof.ridge, roof.roof_fraction) == (1.0, 5.0, 0.5)
    said = [item.statement for item in assess(fp32(**{"dram__bytes.sum.per_second": 4.76e9})).evidence]
    assert any(", 210 FLOP per byte (right of the ridge" in one for one in said)


def test_the_roofline_in_the_words_of_a_rule():
    said = (
        "The ratio of peak float (fp32) to double (fp64) performance on this device is 2:1. The kernel achieved close"
        " to 31% of this device's fp32 peak performance and 0% of its fp64 peak performance. See the guide."
    )
    told = assess(profile(rules=(Rule(id="SOLFPRoofline", kind="INF", message=said),))).evidence
    assert [(item.value, item.metric) for item in told] == [(31.0, "rule:SOLFPRoofline"), (0.0, "rule:SOLFPRoofline")]


def test_work_of_tensor_cores_has_no_position_from_those_counters():
    assert assess(fp32(**{"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": 40.0})).roofline is None


def test_idle_tensor_cores_under_busy_arithmetic_are_the_advice():
    tensor = "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active"
    one = assess(profile(name="ampere_sgemm_128x64_tn", sm=90.0, memory=30.0, **{tensor: 0.0}))
    assert one.advice[0].because.metric == tensor
    busy = assess(profile(name="ampere_bf16_gemm", sm=90.0, memory=30.0, **{tensor: 80.0}))
    assert busy.advice[0].because.metric == SM_THROUGHPUT


def stalled(cycles, **more):
    ratio = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    return profile(
        sm=20.0, memory=20.0, waves=4.0, **{ratio.format(key): value for key, value in cycles.items()}, **more
    )


def test_stalls_are_shares_of_all_cycles_without_the_issuing_one():
    ratio = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
    cycles = {"long_scoreboard": 6.0, "wait": 3.0, "selected": 1.0, "long_scoreboard_not_issued": 5.0}
    one = assess(stalled(cycles, **{LATENCY: 10.0}))
    assert [(stall.reason, stall.fraction) for stall in one.stalls] == [("long_scoreboard", 0.6), ("wait", 0.3)]
    assert one.advice[0].because.metric == ratio.format("long_scoreboard")


@pytest.mark.parametrize(("percent", "n_stalls"), [("100.0", 1), ("100.1", 0), ("250", 0), ("999999999", 0)])
def test_a_stall_is_at_most_all_of_the_time(percent, n_stalls):
    said = "On average, each warp of this kernel spends 5 cycles being stalled waiting for a memory barrier."
    rule = Rule(
        id="CPIStall", kind="OPT", message=f"{said} This stall type represents about {percent}% of the total average"
    )
    assert len(assess(profile(rules=(rule,))).stalls) == n_stalls


def test_stalls_in_the_words_of_a_rule():
    said = (
        "On average, each warp of this kernel spends 437.2 cycles being stalled waiting for the L1 instruction queue"
        " for local and global (LG) memory operations to be not full. Often so. This stall type represents about 46.9%"
        " of the total average of 933.1 cycles between issuing two instructions."
    )
    [stall] = assess(profile(rules=(Rule(id="CPIStall", kind="OPT", message=said),))).stalls
    assert (stall.reason, stall.cycles, stall.fraction) == ("lg_throttle", 437.2, pytest.approx(0.469))


def test_another_word_of_ncus_own_rule_is_a_caveat():
    own = Rule(
        id="SOLBottleneck", kind="OPT", message="This workload exhibits low compute throughput and memory bandwidth"
    )
    report = assess_all([profile(sm=70.0, memory=20.0, rules=(own,))], sources=["s"])
    assert report.kernels[0].speed.agrees_with_ncu is False
    assert len(report.warnings) == 1


def check_report(report):
    document = json.loads(kernels_json.render(report))
    jsonschema.Draft202012Validator(schema("kernels")).validate(document)
    for width in (60, 80, 200):
        shown = kernels.render(report, width=width, color=False, verbose=True)
        assert max(len(line) for line in shown.splitlines()) <= width
    assert kernels_markdown.render(report)
    for one in report.kernels:
        for item in (*one.evidence, *(advice.because for advice in one.advice)):
            assert item.statement
            assert item.metric


def test_reports_of_made_profiles():
    made = [fp32(), profile(), profile(sm=90.0, memory=5.0), profile(sm=5.0, memory=9.0, waves=0.01)]
    made += [profile(sm=70.0, memory=70.0), profile(sm=10.0, memory=85.0, name="\x1b[31m|`evil`<b>\n")]
    check_report(assess_all(made, sources=["a|b.csv"], warnings=["w"]))


def test_the_command(tmp_path, capsys):
    header = '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    page = tmp_path / "page.csv"
    page.write_text(header + '"0","k","","Compute (SM) Throughput","%","90"\n"0","k","","Memory Throughput","%","20"\n')
    assert group.main(["kernels", str(page), "-f", "json"], standalone_mode=False) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["speed_of_light"]["class"] == "compute-bound"


# ----------------------------------------------------------------------------------------- real files, where there are

REAL = sorted((SHARED / "ncu").glob("*[!d]")) if SHARED.is_dir() else []
REAL += [path for path in [SHARED / "seeds" / "blog_kernel_ncu.txt"] if path.exists()]


@pytest.mark.shared
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_real_files_agree_with_ncus_own_rule(path: Path):
    if path.suffix == ".ncu-rep":
        pytest.importorskip("ncu_report")
    read = read_profiles(str(path))
    report = assess_all(read.profiles, sources=[str(path)], warnings=read.warnings)
    check_report(report)
    assert not report.warnings
    for one in report.kernels:
        assert ncu_title(one.profile)
        assert one.speed.agrees_with_ncu


@pytest.mark.shared
def test_facts_of_real_files():
    if not REAL:
        pytest.skip("no real profiles beside this checkout")
    by_name = {path.name: path for path in REAL}
    [t4] = read_profiles(str(by_name["details_csv_rules_T4_cc7.5.csv"])).profiles
    assert (t4.function, t4.compute_capability, t4.metrics["gpu__time_duration.sum"]) == (
        "copy_blocked",
        "7.5",
        21_058_944,
    )
    assert [stall.reason for stall in assess(t4).stalls] == ["long_scoreboard", "lg_throttle"]
    [b200] = read_profiles(str(by_name["details_csv_rules_GB200_cc10.0.log"])).profiles
    assert assess(b200).occupancy.limiters == ("registers", "shared memory")
    a100 = read_profiles(str(by_name["text_basic_torch_A100_cc8.0.txt"])).profiles
    classes = [assess(one).speed.kernel_class for one in a100]
    assert {kind: classes.count(kind) for kind in set(classes)} == {
        KernelClass.LATENCY: 13,
        KernelClass.MEMORY: 3,
        KernelClass.SMALL: 1,
    }


L1 = "l1tex__throughput.avg.pct_of_peak_sustained_active"


@pytest.mark.parametrize(
    ("l1", "waves", "kernel_class"),
    [
        (99.3, 15.1, KernelClass.MEMORY),
        (80.0, 15.1, KernelClass.LATENCY),
        (99.3, 0.5, KernelClass.SMALL),
        (99.3, None, KernelClass.LATENCY),  # of which part of the device is not known
    ],
)
def test_a_full_level_of_memory_is_the_limit_where_nvidias_rule_looks_past_it(l1, waves, kernel_class):
    said = "This kernel exhibits low compute throughput and memory bandwidth utilization relative to the peak"
    own = Rule(id="SOLBottleneck", kind="OPT", message=said)
    known = {} if waves is None else {"waves": waves}
    one = assess(profile(sm=16.6, memory=49.7, rules=(own,), **known, **{L1: l1}))
    is_full = kernel_class is KernelClass.MEMORY
    assert (one.speed.kernel_class, one.speed.is_near_roof) == (kernel_class, is_full)
    assert one.speed.agrees_with_ncu is (kernel_class is KernelClass.LATENCY)
    assert ("fewer requests to L1/TEX" in one.advice[0].fix) is is_full
    report = assess_all([one.profile], sources=("s",))
    assert bool(report.warnings) is (kernel_class is KernelClass.SMALL)
    assert ("looks past: Latency Issue" in kernels.render(report, width=100, color=False)) is is_full


def test_what_leaves_the_work_as_it_is_saves_nothing_under_a_full_level():
    held = {
        "sm__maximum_warps_per_active_cycle_pct": 25.0,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 24.9,
        "launch__occupancy_limit_shared_mem": 8.0,
        "launch__occupancy_limit_warps": 16.0,
    }
    said = Rule(id="TheoreticalOccupancy", kind="OPT", message="low", speedup_fraction=0.54, speedup_scope="global")
    one = assess(profile(sm=23.3, memory=46.0, waves=51.2, rules=(said,), **held, **{L1: 91.9}))
    assert "L1/TEX" in one.advice[0].fix
    assert not [item for item in one.advice if item.topic.value == "occupancy"]
