"""What names tell: kernels of several vendors and generations."""

import pytest

from profkit.model.names import (
    family_of,
    function_name,
    is_of_training,
    says_nothing,
    short_name,
    span_kind_of,
)
from profkit.model.trace import SpanKind


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
        ("sm80_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x32x32", "convolution"),
        ("void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3>", "convolution"),
        ("igemm_wrw_gtcx2_nhwc_bf16_bx0_ex1_bt256x128x16", "convolution"),
        ("aten::convolution_backward", "convolution"),
        ("aten::upsample_bilinear2d", "other"),
        ("aten::linear", "matmul"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct)", "norm"),
        ("void vllm::fused_add_rms_norm_kernel<vllm::_typeConvert<c10::BFloat16>>", "norm"),
        ("void cudnn::ops::nchwToNhwcKernel<float, float, float>(cudnn::ops::nchw2nhwc_params_t<float>)", "layout"),
        ("void split_embedding_backward_codegen_adagrad_unweighted_kernel(fbgemm_gpu::PTA)", "embedding"),
        ("aten::max_pool2d_with_indices", "other"),
        ("triton_poi_fused_convolution_23", "elementwise"),
        ("triton_per_fused_add_convolution_native_layer_norm_22", "norm"),
        ("triton_red_fused__safe_softmax_13", "softmax"),
        ("triton_red_fused_gt_sum_33", "reduction"),
        ("triton_tem_fused_mm_7", "matmul"),
        ("fmhaSm100aKernel_QkvE4m3OBfloat16H64", "attention"),
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
    assert span_kind_of("rpc_sync#forward(master -> worker1)") == SpanKind.COMM


@pytest.mark.parametrize("length", [16, 40, 80])
def test_short_names_fit(length: int) -> None:
    name = "void at::native::elementwise_kernel<128, 4, at::native::impl<at::native::CUDAFunctor_add<float>>>(int)"
    assert len(short_name(name, length)) <= length
    assert short_name(name, 80) == "elementwise_kernel<CUDAFunctor_add>"
    assert short_name("aten::mm") == "aten::mm"


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, F<float>>(int, float)", "vectorized_elementwise_kernel"),
        ("void at::native::(anonymous namespace)::layer_norm_kernel<float>(int)", "layer_norm_kernel"),
        ("void at::native::<unnamed>::f<float, (int)4, void g<A *>(B &)::[lambda() (instance 1)]>(int)", "f"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int>(cublasParams)", "kernel"),
        ("copy_blocked[v1,cw51c](Array<long long, 1>, long long)", "copy_blocked"),
        ("ampere_bf16_s16816gemm_bf16_128x128_tn", "ampere_bf16_s16816gemm_bf16_128x128_tn"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("void foo(int) [clone .kd]", "foo"),
        ("_Z9my_kernelPfi", "my_kernel"),
        ("_ZN2at6native13reduce_kernelILi4ENS0_15CUDAFunctor_addIfEEEEviT0_T1_", "reduce_kernel"),
        ("_ZN2at6native12_GLOBAL__N_117layer_norm_kernelIfEEvi", "layer_norm_kernel"),
        *[("", ""), (">(<", ""), ("_Z", "")],
    ],
)
def test_the_function_is_what_all_tools_agree_on(name: str, function: str) -> None:
    assert function_name(name) == function


@pytest.mark.parametrize(
    ("name", "short", "is_silent"),
    [
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(Params)",
            "Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>",
            False,
        ),
        (
            "void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2>>>(Params)",
            "device_kernel<FlashAttnFwdSm90>",
            False,
        ),
        (
            "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float, float>(cublasGemvParams)",
            "internal::gemvx::kernel",
            True,
        ),
        ("Kernel2", "Kernel2", True),
        ("triton__0d1d2d3d4de", "triton__0d1d2d3d4de", True),
        ("triton_", "triton_", True),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0", False),
        ("void reduce_kernel<512, 1, at::native::ReduceOp<float>>()", "reduce_kernel<ReduceOp>", False),
    ],
)
def test_a_name_that_says_nothing_comes_with_its_template(name: str, short: str, is_silent: bool) -> None:
    assert short_name(name) == short
    assert says_nothing(name) == is_silent


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("autograd::engine::evaluate_function: MmBackward0", True),
        ("autograd::Engine::thread_main", True),
        ("AddmmBackward0", True),
        ("Optimizer.step#SGD.step", True),
        ("cudnn_ampere_scudnn_128x64_stridedB_splitK_wgrad_nn", True),
        ("autograd::THPVariable_add_", False),  # a binding, which a forward pass calls as well
        ("autograd::VariableHooks::requires_grad_", False),
        ("void dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int)", False),  # a transposed convolution, forward
        ("sm80_xmma_fprop_implicit_gemm_f32", False),
    ],
)
def test_signs_of_training(name: str, said: bool) -> None:
    assert is_of_training(name) == said
