"""What names tell: kernels of several vendors and generations."""

from __future__ import annotations

import pytest

from profkit.model.names import family_of, kind_of, precision_of, short_name, span_kind_of
from profkit.model.trace import Kind, SpanKind


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclWorkElem)",
        "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
        "void dpsk::ep::internode::combine<8>()",
        "void deep_ep::intranode::dispatch<4>(int*)",
        "nvshmemi_transfer_quiet",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<...>",
        "two_shot_all_reduce_kernel_inplace",
    ],
)
def test_communication(name: str) -> None:
    assert kind_of(name, is_copy=False) == Kind.COMM


@pytest.mark.parametrize(
    "name",
    [
        "void cub::DispatchReduceByKey<...>",
        "batch_norm_SyncBN_kernel",
        "fused_dma_gemm",
        "hipblaslt_gemm_x",
        "void at::native::reduce_kernel<512, 1>",
        "all_reduced_elements_kernel",
        "moe_dispatch_sort",
    ],
)
def test_compute_that_sounds_like_communication(name: str) -> None:
    assert kind_of(name, is_copy=False) == Kind.COMPUTE


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("cutlass_80_simt_sgemm_256x128_8x4_tn_align1", "fp32"),
        ("ampere_sgemm_128x128_tn", "fp32"),
        ("volta_scudnn_128x64_relu_interior_nn_v1", "fp32"),
        ("cutlass_80_tensorop_s1688gemm_128x64", "tf32"),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n", "tf32"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "bf16"),
        ("nvjet_tst_192x192_64x4_1x2_h_bz_coopA_NNT", "bf16"),
        ("ampere_fp16_s16816gemm_fp16_256x128", "fp16"),
        ("volta_h884gemm_128x128", "fp16"),
        ("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32", "fp8"),
        ("void at::native::vectorized_elementwise_kernel<4, float>", None),
    ],
)
def test_precision_of_matrix_kernels(name: str, precision: str | None) -> None:
    assert precision_of(name) == precision


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", "elementwise"),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(lambda)", "reduction"),
        ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel", "norm"),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<128>>", "attention"),
        ("Cijk_Alik_Bljk_SB_MT64x16x32", "matmul"),
        ("aten::addmm", "matmul"),
        ("aten::mul", "elementwise"),
        ("void at::native::multi_tensor_apply_kernel<...adam...>", "optimizer"),
        ("some_custom_thing", "other"),
    ],
)
def test_families(name: str, family: str) -> None:
    assert family_of(name) == family


def test_ranges_of_the_host() -> None:
    assert span_kind_of("ProfilerStep#12") == SpanKind.STEP
    assert span_kind_of("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__") == SpanKind.LOADER
    assert span_kind_of("data_loader") == SpanKind.LOADER
    assert span_kind_of("Optimizer.step#AdamW.step") == SpanKind.OPTIMIZER
    assert span_kind_of("Optimizer.zero_grad#AdamW.zero_grad") == SpanKind.OTHER
    assert span_kind_of("gloo:all_reduce") == SpanKind.COMM


@pytest.mark.parametrize("length", [16, 40, 80])
def test_short_names_fit(length: int) -> None:
    name = "void at::native::elementwise_kernel<128, 4, at::native::impl<at::native::CUDAFunctor_add<float>>>(int)"
    assert len(short_name(name, length)) <= length
    assert short_name(name, 80) == "elementwise_kernel<CUDAFunctor_add>"
    assert short_name("aten::mm") == "aten::mm"
