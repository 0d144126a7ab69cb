"""What a kernel report may say and recommend: shares with a whole, roofs with little tensor use, the busiest pipe."""

import pytest
from msgspec.structs import replace

from profkit.kernels.assess import assess
from profkit.kernels.claims import Launch
from profkit.kernels.fixes import Owner, fixes, owner_of
from profkit.kernels.speed import SM_THROUGHPUT
from profkit.kernels.stalls import LATENCY
from profkit.model.kernel import Rule, Topic
from tests.kernels.test_assess import fp32, profile, stalled

REASONS = [
    *("barrier", "branch_resolving", "dispatch_stall", "drain", "imc_miss", "lg_throttle", "long_scoreboard"),
    *("math_pipe_throttle", "membar", "mio_throttle", "no_instruction", "not_selected", "selected"),
    *("short_scoreboard", "sleeping", "tex_throttle", "wait"),
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


# ----------------------------------------------------------------------------------------------- whose code a kernel is


CUBLAS = "cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_tn_align2"


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("ampere_sgemm_64x64_nn", Owner.LIBRARY),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(T1::Params)", Owner.LIBRARY),
        ("cutlass3x_sm100_tensorop_s64x256x32gemm_f8_f8_f32_f16_f16", Owner.LIBRARY),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw", Owner.LIBRARY),
        ("void cudnn::ops::nchwToNhwcKernel<float, float, float>(int)", Owner.LIBRARY),
        ("nvjet_tst_192x192_64x4_1x2_h_bz_coopA_NNT", Owner.LIBRARY),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>(Params)", Owner.LIBRARY),
        ("void cutlass::Kernel<cutlass::gemm::kernel::B2bGemm<cutlass::gemm::GemmShape<192, 384, 128>>>", Owner.OWN),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::AbsFunctor<float>>(int)", Owner.TORCH),
        ("triton_poi_fused_add_0", Owner.INDUCTOR),
        ("square_kernel_0d1d234", Owner.OWN),
        ("flash_attention_kernel(float *, int)", Owner.OWN),
        ("void gemm<128, 8, 128, 8, 8>(float *, float *, float *, int, int, int)", Owner.OWN),
    ],
)
def test_whose_code_a_kernel_is(name, owner):
    assert owner_of(name) is owner


@pytest.mark.parametrize("topic", [topic for topic in Topic if topic not in {Topic.ROOF, Topic.PIPE, Topic.OTHER}])
def test_who_calls_a_librarys_kernel_is_told_what_a_caller_can_change(topic):
    said = {}
    for name in (CUBLAS, "my_gemm", "void at::native::vectorized_elementwise_kernel<4>", "triton_poi_fused_add_0"):
        one = replace(profile(sm=20.0, memory=20.0, waves=4.0), name=name)
        said[owner_of(name)] = (
            " ".join(fixes(Launch.of(one), topic, None)) if topic in TOLD or name != "my_gemm" else "own"
        )
    assert len(set(said.values())) >= 2
    for words in ("registers", "unroll", "swizzle", "__syncthreads", "cp.async"):
        assert not any(words in said[owner] for owner in Owner if owner is not Owner.OWN)


TOLD = {Topic.ACCESS, Topic.SPILLS, Topic.BANKS, Topic.GRID, Topic.TAIL, Topic.BLOCK, Topic.OCCUPANCY, Topic.ACHIEVED}


def test_operands_that_a_library_cannot_load_in_whole_are_padded():
    one = replace(profile(sm=40.0, memory=30.0, waves=9.0), name=CUBLAS)
    padded = [item for item in assess(one).advice if item.topic is Topic.ALIGNMENT]
    assert "16 bytes" in padded[0].fix
    assert "2 elements at once" in padded[0].because.statement
    aligned = replace(one, name=CUBLAS.replace("align2", "align8"))
    assert not [item for item in assess(aligned).advice if item.topic is Topic.ALIGNMENT]


def test_a_format_that_the_device_has():
    tensor = {TENSOR: 0.0}
    one = replace(profile(sm=90.0, memory=30.0, waves=9.0, **tensor), name="volta_sgemm_128x64_nn")
    assert "bf16" in assess(replace(one, compute_capability="8.0")).advice[0].fix
    old = assess(replace(one, compute_capability="7.5")).advice[0].fix
    assert "fp16 under torch.autocast" in old
    assert "neither bf16 nor TF32" in old


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


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ampere_sgemm_128x128", "split-K"),
        ("my_gemm", "split-K"),
        ("reduce_kernel", "two passes"),
        ("void at::native::reduce_kernel<512, 1>(int)", "a larger batch"),
    ],
)
def test_a_small_grid_of_a_product_is_split(name, said):
    one = assess(replace(profile(sm=5.0, memory=9.0, waves=0.1), name=name))
    assert said in one.advice[0].fix
    assert "0.1 of a wave" in one.advice[0].because.statement
    assert not [item for item in one.advice if "not the problem" in item.fix]


# ------------------------------------------------------------------------------------------------- formats, and roofs

DRAM = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"
COUNTED = "smsp__sass_thread_inst_executed_op_{}{}_pred_on.sum.per_cycle_elapsed"


def counted(**flops):
    """The counters of fp32 and fp64 instructions: additions per cycle, 0 where none are named."""
    found = {"smsp__cycles_elapsed.avg.per_second": 1e9}
    for letter, name in (("f", "fp32"), ("d", "fp64")):
        found |= {COUNTED.format(letter, "add"): flops.get(name, 0.0), COUNTED.format(letter, "mul"): 0.0}
        found[f"derived__smsp__sass_thread_inst_executed_op_{letter}fma_pred_on_x2"] = 0.0
    return found


@pytest.mark.parametrize(
    ("name", "flops", "says", "never"),
    [
        ("sweep(double*)", {"fp64": 9.0}, "single precision where its digits suffice", "half-precision"),
        ("sweep", {"fp32": 9.0}, "a half-precision format", "single"),
        ("pack_keys", {}, "registers)", "format"),
        ("copy_rows(float*)", {}, "a half-precision format", "single"),
        ("gen_sequenced<curandStateXORWOW, float>", None, "registers)", "format"),
        ("sweep", None, "a smaller number format", "half-precision"),
        ("gemm_kernel<__half>", None, "registers)", "format"),
        ("void at::native::vectorized_elementwise_kernel<4, f>(int)", None, "a half-precision format", "single"),
        ("my_vectorized_elementwise_kernel_of_mine", None, "smaller", "torch.compile"),
    ],
)
def test_a_smaller_format_is_advised_as_the_kernels_own_allows(name, flops, says, never):
    metrics = {} if flops is None else counted(**flops)
    for sm, memory in ((20.0, 91.3), (65.0, 70.0)):
        one = assess(profile(name=name, sm=sm, memory=memory, waves=80.0, **{DRAM: memory}, **metrics))
        fix = one.advice[0].fix
        assert never not in fix, fix
        assert says in fix or memory < 80, fix


def test_torch_compile_is_for_kernels_of_torch():
    for name, is_torchs in (("void at::native::vectorized_elementwise_kernel<4, f>(int)", True), ("softmax_k", False)):
        for sm in (20.0, 85.0):
            fix = assess(profile(name=name, sm=sm, memory=88.0, waves=80.0, **{DRAM: 88.0})).advice[0].fix
            assert ("torch.compile" in fix) is is_torchs, fix


def test_what_stalls_cost_at_a_full_roof_is_what_the_roof_leaves():
    ratio = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"
    stalls_ = Rule(id="CPIStall", kind="OPT", message="", speedup_fraction=0.825, speedup_scope="global")
    one = assess(profile(sm=20.4, memory=91.3, waves=80.0, rules=(stalls_,), **{DRAM: 91.3, ratio: 8.2, LATENCY: 10.0}))
    assert not any("82.5" in item.because.statement for item in one.advice)
    [why] = [item.statement for item in one.evidence if "largest estimate" in item.statement]
    assert "memory is at 91.3 % of its peak" in why
    assert "at most 8.7 % can be saved" in why
