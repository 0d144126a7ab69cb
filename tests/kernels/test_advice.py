"""What a kernel report may say and recommend: shares with a whole, roofs with little tensor use, the busiest pipe."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from profkit.kernels.assess import assess
from profkit.kernels.speed import SM_THROUGHPUT
from profkit.kernels.stalls import LATENCY
from profkit.model.kernel import Rule
from tests.kernels.test_assess import fp32, profile, stalled

REASONS = [
    "barrier",
    "branch_resolving",
    "dispatch_stall",
    "drain",
    "imc_miss",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "membar",
    "mio_throttle",
    "no_instruction",
    "not_selected",
    "selected",
    "short_scoreboard",
    "sleeping",
    "tex_throttle",
    "wait",
]
TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
PIPE = "sm__inst_executed_pipe_{}.avg.pct_of_peak_sustained_elapsed"


def shares(one):
    return {stall.reason: round(stall.fraction, 3) for stall in assess(one).stalls}


# ------------------------------------------------------------------------------------------------------------- stalls


def test_one_collected_reason_is_no_share():
    assert shares(stalled({"dispatch_stall": 0.04})) == {}
    assert not [item for item in assess(stalled({"dispatch_stall": 0.04})).advice if "stall" in item.because.metric]


def test_a_reason_with_the_whole_beside_it_is_a_share():
    assert shares(stalled({"dispatch_stall": 0.04}, **{LATENCY: 8.0})) == {"dispatch_stall": 0.005}
    of_warps = {"smsp__warps_active.avg.per_cycle_active": 4.0, "smsp__issue_active.avg.per_cycle_active": 0.5}
    assert shares(stalled({"wait": 2.0}, **of_warps)) == {"wait": 0.25}


def test_all_reasons_are_a_whole_and_without_one_they_are_none():
    cycles = {**dict.fromkeys(REASONS, 0.0), "wait": 3.0, "selected": 1.0}
    volta = replace(stalled(cycles), compute_capability="7.0")
    assert shares(volta) == {"wait": 0.75}
    assert shares(replace(volta, compute_capability="9.0")) == {}  # gmma is missing there
    for reason in REASONS:
        less = {name: value for name, value in cycles.items() if name != reason}
        assert shares(replace(stalled(less), compute_capability="7.0")) == {}


def test_shares_of_passes_that_differ_are_never_above_all():
    assert shares(stalled({"wait": 11.0}, **{LATENCY: 10.0})) == {"wait": 1.0}


def test_a_rule_has_the_share_that_metrics_lack():
    said = (
        "On average, each warp spends 437.2 cycles being stalled waiting for a memory barrier. This stall type"
        " represents about 46.9% of the total average of 933.1 cycles."
    )
    one = replace(stalled({"dispatch_stall": 0.04}), rules=(Rule(id="CPIStall", kind="OPT", message=said),))
    assert shares(one) == {"membar": 0.469}


def test_where_instructions_are_issued_nearly_always_stalls_are_no_advice():
    one = stalled({"not_selected": 5.0}, **{LATENCY: 10.0, "smsp__issue_active.avg.per_cycle_active": 0.8})
    assert not [item for item in assess(one).advice if "stall" in item.because.metric]


# -------------------------------------------------------------------------------------------------------------- roofs


@pytest.mark.parametrize("percent", [0.0, 0.06, 3.0])
@pytest.mark.parametrize("name", ["volta_sgemm_128x64_nn", "vectorized_elementwise_kernel"])
def test_a_trace_of_tensor_use_leaves_the_roof_of_a_plain_kernel(name, percent):
    one = assess(replace(fp32(**{TENSOR: percent}), name=name))
    assert one.roofline is not None
    assert one.roofline.roof_fraction == 0.5
    [said] = [item.statement for item in one.evidence if item.metric == "roofline.flop_per_s"]
    assert ("tensor cores" in said) is (percent > 0)


def test_where_tensor_cores_may_have_done_more_there_is_no_position():
    unknown = replace(fp32(**{TENSOR: 3.0}), name="my_kernel")  # 10 % of fp32's peak; 3 % of bf16's are 48 % of it
    assert assess(unknown).roofline is None
    assert assess(replace(unknown, name="ampere_bf16_s16816gemm")).roofline is None
    assert assess(replace(fp32(**{TENSOR: 0.3}), name="my_kernel")).roofline is not None
    assert assess(replace(fp32(**{TENSOR: 5.0}), name="volta_sgemm")).roofline is None


# -------------------------------------------------------------------------------------------------------------- pipes


def compute_bound(*, name="curand_kernel", percent=62.0, rules=(), **pipes):
    return replace(
        profile(
            sm=percent, memory=10.0, waves=4.0, rules=rules, **{PIPE.format(key): value for key, value in pipes.items()}
        ),
        name=name,
    )


def test_the_busiest_pipe_is_named_and_its_remedy():
    one = assess(compute_bound(alu=62.0, fma=4.0, tensor_op_hmma=0.0))
    assert (one.busiest_pipe.name, one.busiest_pipe.percent) == ("alu", 62.0)
    assert one.advice[0].because.metric == PIPE.format("alu")
    assert "integer" in one.advice[0].fix
    assert not [item for item in one.advice if "bf16" in item.fix or "TF32" in item.fix]


def test_products_outside_tensor_cores_are_told_to_use_them():
    one = assess(compute_bound(name="ampere_sgemm_128x64_tn", percent=90.0, fma=90.0, tensor_op_hmma=0.06))
    assert "tensor cores" in one.advice[0].fix
    elementwise = assess(compute_bound(name="vectorized_elementwise_kernel", fma=62.0, tensor_op_hmma=0.0))
    assert "tensor cores" not in elementwise.advice[0].fix


def test_a_pipe_that_is_not_the_limit_is_not_named():
    one = assess(compute_bound(percent=90.0, alu=40.0))
    assert one.busiest_pipe is None
    assert one.advice[0].because.metric == SM_THROUGHPUT
    assert "ComputeWorkloadAnalysis" in one.advice[0].fix


def test_the_busiest_part_may_be_the_issue_of_instructions():
    issue = {"sm__issue_active.avg.pct_of_peak_sustained_elapsed": 84.0}
    one = replace(compute_bound(percent=84.0, alu=60.0, fma=75.0))
    one = replace(one, metrics={**one.metrics, **issue})
    assert assess(one).busiest_pipe.name == "issue"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("ALU is the highest-utilized pipeline (62.3%) based on active cycles. It executes integer operations.", "alu"),
        ("Shared is the highest-utilized pipeline (62.3%). It's dominated by its Tensor (FP) sub-pipeline.", "tensor"),
        ("FMA (FP16) is the highest-utilized pipeline (62.3%) based on active cycles.", "fp16"),
        ("Something New is the highest-utilized pipeline (62.3%) based on active cycles.", None),
        ("ALU is the highest-utilized pipeline (20.0%) based on active cycles.", None),
        ("All compute pipelines are under-utilized.", None),
    ],
)
def test_the_busiest_pipe_in_the_words_of_a_rule(said, name):
    rule = Rule(id="HighPipeUtilization", kind="INF", message=said)
    pipe = assess(compute_bound(rules=(rule,))).busiest_pipe
    assert (pipe.name if pipe else None) == name


# ------------------------------------------------------------------------------------------------------------ ranking


def rule(rule_id, fraction, scope="global", message=""):
    return Rule(id=rule_id, kind="OPT", message=message, speedup_fraction=fraction, speedup_scope=scope)


def test_advice_follows_ncus_own_estimates_of_several_the_largest():
    rules = (
        rule("MemoryCacheAccessPattern", 0.45),
        rule("MemoryCacheAccessPattern", 0.43),
        rule("UncoalescedGlobalAccess", 0.74),
        rule("LaunchConfiguration", 0.5, message="a partial wave of 136 thread blocks"),
        rule("TheoreticalOccupancy", 0.9, "local"),
        rule("WorkloadImbalance", 0.06, message="One or more SMs have a much lower number of active cycles"),
        rule("WorkloadImbalance", 0.8, message="One or more L2 Slices have a much lower number of active cycles"),
    )
    one = assess(replace(profile(sm=10.0, memory=62.0, waves=1.5, rules=rules), name="copy_blocked"))
    estimated = [(item.estimate.rule, item.estimate.fraction) for item in one.advice if item.estimate]
    assert estimated[:2] == [("UncoalescedGlobalAccess", 0.74), ("LaunchConfiguration", 0.5)]
    assert "at most 25.0 % of the kernel's time, though ncu's rule says 50.0 %" in one.advice[1].because.statement
    assert "coalesce" in one.advice[0].fix
    assert "74.0 % of the kernel's time" in one.advice[0].because.statement
    assert "WorkloadImbalance" not in {name for name, _ in estimated}


def test_an_estimate_for_a_part_of_the_device_is_none_of_the_kernels_time():
    rules = (rule("TheoreticalOccupancy", 0.81, "local"),)
    occupancy = {"sm__maximum_warps_per_active_cycle_pct": 18.75, "launch__occupancy_limit_registers": 1.0}
    one = assess(profile(sm=20.0, memory=20.0, waves=1.4, rules=rules, **occupancy))
    [told] = [item for item in one.advice if item.estimate]
    assert "for one part of the device" in told.because.statement


def test_an_estimate_is_bound_by_the_roof_and_by_what_the_last_wave_leaves_idle():
    tail = rule("LaunchConfiguration", 0.5, message="a partial wave of 136 thread blocks")
    full = assess(profile(sm=20.0, memory=20.0, waves=1.9, rules=(tail,)))
    assert not [item for item in full.advice if item.estimate]
    near = assess(profile(sm=10.0, memory=85.0, waves=2.1, rules=(tail, rule("CPIStall", 0.4))))
    assert not [item for item in near.advice if item.estimate]
    assert near.advice[0].fix.startswith("it is at its roof")


def test_what_follows_from_a_small_grid_is_no_advice_of_its_own():
    rules = (
        rule("AchievedOccupancy", 0.6),
        rule("WorkloadImbalance", 0.3, message="SMs have"),
        rule("LaunchConfiguration", 0.9),
    )
    one = assess(replace(profile(sm=5.0, memory=9.0, waves=0.1, rules=rules), name="reduce_kernel"))
    assert {item.estimate.rule for item in one.advice} == {"LaunchConfiguration"}


def test_the_text_page_knows_rules_by_section():
    rules = (
        rule("Source Counters", 0.7, message="This kernel has uncoalesced global accesses resulting in a total of 5"),
        rule("Launch Statistics", 0.33, message="2 full waves and a partial wave of 32 thread blocks"),
    )
    one = assess(profile(sm=10.0, memory=62.0, waves=2.5, rules=rules))
    assert [item.estimate.fraction for item in one.advice if item.estimate] == [0.7, 0.33]


# ------------------------------------------------------------------------------------------- tiles, and grids too small


def test_a_tile_kernel_is_told_to_load_less_per_operation():
    tile = replace(profile(sm=70.0, memory=72.0, waves=4.0), name="my_tiled_gemm")
    assert "larger tiles" in assess(tile).advice[0].fix
    assert "only less work" not in assess(tile).advice[0].fix
    shared = replace(
        profile(sm=30.0, memory=90.0, **{"l1tex__throughput.avg.pct_of_peak_sustained_active": 90.0}),
        name="my_tiled_gemm",
    )
    assert "larger tiles" in assess(shared).advice[0].fix


@pytest.mark.parametrize(("name", "said"), [("ampere_sgemm_128x128", "split-K"), ("reduce_kernel", "two passes")])
def test_a_small_grid_of_a_product_is_split(name, said):
    one = assess(replace(profile(sm=5.0, memory=9.0, waves=0.1), name=name))
    assert said in one.advice[0].fix
    assert "0.1 of a wave" in one.advice[0].because.statement
    assert not [item for item in one.advice if "not the problem" in item.fix]
