"""Communication is told by a kernel's own words, or by the operator that launches it; what multiplies is compute."""

import re

import pytest

from profkit.analyzers.communication.overlap import Overlap, measure
from profkit.capture.tools.ncu import NO_COLLECTIVES, target_of
from profkit.errors import UsageError
from profkit.model.names import function_name, is_asking, kind_of
from profkit.model.trace import Kind
from profkit.pipeline import triage_trace
from profkit.ranks.reduce.collective_kinds import CollectiveKind
from profkit.ranks.reduce.summary import summarise
from profkit.testing import Row, kernel, launch, span, trace_of
from profkit.timeline import Facts

BASE = 10**9
US = 1000
EP = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 8}}


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
        "nvshmemi_transfer_quiet",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<...>",
        "two_shot_all_reduce_kernel_inplace",
        "_dispatch_all_to_all_expert_major_kernel",
        "_combine_all_to_all_kernel",
        "void moe::MoeAlltoAllCombine<__nv_bfloat16, 8>(Params)",
        "void (anonymous namespace)::reduce_scatter_push<4>(float*)",
        "fusedAllGatherKernel",
        "_ZN3moe20all2all_push_payloadEPvi",
        "void aiter::allgather_vec<__hip_bfloat16, 8>(aiter::RankData*)",
    ],
)
def test_kernels_that_say_what_ranks_do_together(name):
    assert kind_of(name, is_copy=False) == Kind.COMM
    assert not re.search(NO_COLLECTIVES, function_name(name))  # ncu would wait for the other ranks
    with pytest.raises(UsageError, match="is communication or a copy"):
        target_of(name, skip=None, count=None)


@pytest.mark.parametrize("name", ["void dpsk::ep::internode::combine<8>()", "void deep_ep::intranode::dispatch<4>()"])
def test_kernels_whose_library_alone_says_it(name):
    assert kind_of(name, is_copy=False) == Kind.COMM


@pytest.mark.parametrize(
    "name",
    [
        "all_gather_gemm_persistent_kernel",  # it multiplies: the time is the product's
        "void cutlass::gemm_reduce_scatter<cutlass::half_t>(Params)",
        "triton_poi_fused_all_gather_into_tensor_cat_view_3",  # inductor lists what it fused around the collective
        "block_all_reduce_sum_f32_f32_kernel",
        "void softmax_kernel<float, WarpAllReduce<Sum>>(float*)",
        "void warpAllReduceMax(float*)",
        "all_reduced_elements_kernel",
        "small_gather_kernel",
        "all_gather_copy_in_kernel",
        "_all_to_all_prepare_metadata",
        "moe_dispatch_sort",
        "void cub::DispatchReduceByKey<...>",
        "batch_norm_SyncBN_kernel",
        "fused_dma_gemm",
        "hipblaslt_gemm_x",
        "void at::native::reduce_kernel<512, 1>",
        "flash_fwd_splitkv_combine_kernel",
        "scatter_reduce_kernel",
    ],
)
def test_kernels_that_only_sound_like_it(name):
    assert kind_of(name, is_copy=False) == Kind.COMPUTE


def launched(*work, **metadata):
    """One step; each of `work` is a kernel and the operators around its launch, the outermost first. 80 us each."""
    rows = [span("ProfilerStep#0", BASE, BASE + 100 * US * len(work))]
    for number, (name, *operators) in enumerate(work, 1):
        at = BASE + 100 * US * (number - 1)
        rows.append(kernel(name, at + 20 * US, at + 100 * US, correlation=number))
        rows.append(launch(at + 6 * US, at + 8 * US, correlation=number))
        rows += [
            Row(name=operator, cat="cpu_op", start_ns=at + depth * US, end_ns=at + (14 - depth) * US)
            for depth, operator in enumerate(operators)
        ]
    return trace_of(rows, **metadata)


def comm_us(*work, **metadata):
    budget = Facts.of(launched(*work, **metadata)).budget
    return budget.comm_exposed // US, budget.compute // US


def test_the_innermost_operator_around_the_launch_says_what_a_meaningless_kernel_is():
    assert comm_us(("_kernel_v2", "TokenAllToAllBackward")) == (80, 0)
    assert comm_us(("_kernel_v2", "autograd::engine::evaluate_function: X", "moe::all_to_all")) == (80, 0)
    assert comm_us(("_kernel_v2", "ExpertLayer")) == (0, 80)
    assert comm_us(("_kernel_v2", "TokenAllToAllBackward", "moe::expert_map")) == (0, 80)


@pytest.mark.parametrize(
    "name",
    [
        "ampere_bf16_s16816gemm_bf16_128x128",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>",
        "void at::native::index_elementwise_kernel<128, 4>",
        "_permute_tokens_kernel",
        "_expert_offsets_kernel",
        "triton_poi_fused_add_0",
        "Memset (Device)",
    ],
)
def test_what_multiplies_or_is_local_is_compute_under_any_operator(name):
    assert comm_us((name, "TokenAllToAllBackward"))[0] == 0


def test_fsdps_copies_around_a_gather_are_compute():
    assert not is_asking("fsdp::all_gather_copy_in")
    assert comm_us(("split_with_sizes_copy_out_kernel", "fsdp::all_gather_copy_in")) == (0, 80)


def test_a_node_of_tokens_counts_where_something_crosses_over_between_ranks():
    push = ("_push_payload_kernel", "EPTokenCombineBackward")
    assert comm_us(push, **EP) == (80, 0)
    assert comm_us(push) == (0, 80)  # nothing says that there are other ranks
    assert comm_us(push, ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", "c10d::allreduce_")) == (160, 0)
    assert comm_us(("_weighted_kernel", "EPTokenCombineBackward"), **EP) == (0, 80)


def test_a_job_of_one_rank_has_nobody_to_speak_to():
    alone = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1}}
    assert comm_us(("_kernel_v2", "TokenAllToAllBackward"), **alone) == (0, 80)


def test_budget_overlap_and_ranks_see_the_same():
    trace = launched(
        ("ampere_bf16_s16816gemm_bf16_128x128", "aten::mm"),
        ("_combine_all_to_all_kernel", "MoECombine"),
        ("_kernel_v2", "ExpertAllToAll"),
        **EP,
    )
    facts = Facts.of(trace)
    found = measure(facts)
    assert isinstance(found, Overlap)
    assert (found.n_operations, found.comm_ns, facts.budget.comm_exposed) == (2, 160 * US, 160 * US)
    assert triage_trace(trace)[1].bottleneck == "comm-bound"
    # one that only pushes may end before the others have come: its end tells no clock
    kinds = summarise(facts, rank=0).collectives.kind.tolist()
    assert kinds == [CollectiveKind.SEND_RECV, CollectiveKind.OTHER]
