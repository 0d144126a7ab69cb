"""Shares of the work by family, and from when on fusing would be worth it."""

import pytest
from msgspec.structs import replace

from profkit.analyzers.kernels import Kernels, judge, measure, present
from profkit.testing import kernel, launch, span
from tests.drawing import BASE, US, back_to_back, facts_of, finding_in, launched, triaged

BF16 = "ampere_bf16_s16816gemm_bf16_128x128"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_mul<float>>"


@pytest.fixture(scope="module")
def measured() -> Kernels:
    return measure(
        facts_of("""
        steps  | 0...................
        gpu s7 | .KKKKKkkkkk.........
    """)
    )


def test_shares_are_of_the_sum_of_work(measured: Kernels) -> None:
    found = replace(measured, work_ns=10, by_family={"matmul": 2, "attention": 1, "elementwise": 4, "other": 3})
    assert found.matrix_share == 0.3
    assert found.memory_share == 0.4
    assert replace(found, by_family={"other": 10}).matrix_share == 0
    assert replace(found, by_family={"other": 10}).memory_share == 0
    assert replace(found, work_ns=0).matrix_share == 0


@pytest.mark.parametrize(("fusable_us", "fires"), [(50, True), (49, False)])
def test_fusing_is_worth_a_twentieth_of_the_window(measured: Kernels, fusable_us: int, fires: bool) -> None:
    found = replace(
        measured,
        scope=replace(measured.scope, window_ns=1000 * US),
        busy_ns=900 * US,
        work_ns=900 * US,
        by_family={"elementwise": 900 * US},
        fusable_ns=fusable_us * US,
    )
    assert bool(judge(found)) == fires


def unmarked(names_of_kernels: str, operator: str):
    """Kernels of one name without steps, one of them far longer, and the operator around each launch."""
    rows = []
    for number, length in enumerate((2, 3, 900, 2), 1):
        at = 10**9 + 1_000_000 * number
        rows += [launch(at, at + 2000, correlation=number), span(operator, at - 1000, at + 3000, cat="cpu_op")]
        rows.append(kernel(names_of_kernels, at + 5000, at + 5000 + length * 1000, correlation=number))
    return facts_of(rows)


def test_a_name_that_says_nothing_is_shown_with_the_operator_that_launches_it():
    found = measure(unmarked("triton__0d1d2de", "triton_poi_fused_add_0"))
    assert found.top[0].shown == "triton__0d1d2de (triton_poi_fused_add_0)"
    table = present(found).tables[0]
    assert table.headers[-1] == "launched by"
    assert table.rows[0][-1] == "triton_poi_fused_add_0"
    said = measure(unmarked("layer_norm_kernel", "aten::native_layer_norm"))
    assert said.top[0].shown == "layer_norm_kernel"


def test_the_launch_to_profile_is_the_one_that_has_the_time():
    found = measure(unmarked("triton_", "CompiledFunction"))
    assert (found.top[0].typical_launch, found.top[0].typical_ns) == (2, 900 * US)


def test_launches_are_named_of_the_hottest_kernel_and_of_the_hottest_that_memory_limits():
    """Of twelve launches: the fourth CONVOLUTION, the third MUL; of the others a next tool names none."""
    lengths = {CONVOLUTION: (99, 99, 99, 900), "some_kernel": (50, 50, 50, 700), MUL: (40, 40, 500, 40)}
    rows = []
    for number, (name, length) in enumerate(((name, of[k]) for k in range(4) for name, of in lengths.items()), 1):
        at = BASE + 1_000 * US * number
        rows += launched(name, at, at + 5 * US, at + (5 + length) * US, number)
    launches = {use.name: (use.typical_launch, use.typical_ns // US) for use in measure(facts_of(rows)).top}
    assert launches == {CONVOLUTION: (3, 900), "some_kernel": (None, 0), MUL: (2, 500)}


NHWC = "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(Params)"
CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16"


@pytest.mark.parametrize(("layout_us", "fires"), [(45, True), (39, False)])
def test_layout_changes_from_a_twentieth_of_compute_ask_for_channels_last(layout_us: int, fires: bool) -> None:
    found = finding_in(back_to_back((NHWC, layout_us), (CONVOLUTION, 800 - layout_us)), "kernel.layout")
    assert bool(found) == fires
    if fires:
        assert found.recoverable_ns == layout_us * US
        told = found.evidence[0].statement
        assert told.startswith("kernels that convert between NCHW and NHWC take 45.0 us per step, 5.6 % of kernel time")
        assert "channels_last" in found.fix
        assert "MIOPEN" not in found.fix


def test_on_amd_channels_last_needs_a_switch() -> None:
    work = (("batched_transpose_32x32_half", 100), ("igemm_fwd_gtcx2_nhwc_bf16_bx0_ex1_bt128x128x32", 700))
    found = finding_in(back_to_back(*work), "kernel.layout", hip_runtime_version=60200)
    assert "PYTORCH_MIOPEN_SUGGEST_NHWC=1" in found.fix


@pytest.mark.parametrize(
    ("name", "spans", "fix", "proof"),
    [
        (MUL, (), "fuse them with torch.compile", "torch.compile the module"),
        ("triton_poi_fused_mul_3", (), "already compiled", "Replace the longest"),
        (
            MUL,
            ("## Call CompiledFxGraph abc ##",),
            "part of the job is compiled, these are not",
            "Compile the module that",
        ),
    ],
)
def test_what_is_compiled_is_not_told_to_be_compiled(name: str, spans: tuple[str, ...], fix: str, proof: str) -> None:
    rows = [span(one, BASE, BASE + 500 * US) for one in spans]
    verdict = triaged([*rows, *back_to_back(*[(name, 100)] * 8, (BF16, 150))]).verdict
    assert verdict.findings[0].id == "kernel.unfused"
    assert verdict.fixes[0].startswith(fix)
    assert verdict.proof.startswith(proof)


FP16, FP32 = "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "volta_sgemm_128x64_nn"
COPY = "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase &)::[lambda(float)]"
CAST = f"void at::native::unrolled_elementwise_kernel<{COPY}, at::native::memory::LoadWithCast<1>>(int)"
MOVE = f"void at::native::elementwise_kernel<128, 2, void at::native::gpu_kernel_impl_nocast<{COPY}>(int)>(int, T3)"


@pytest.mark.parametrize(
    ("product", "device", "said"),
    [
        (FP32, "TITAN RTX", "fp16"),
        (FP32, "NVIDIA A100-SXM4-80GB", "bf16"),
        (FP32, "Tesla P4", ""),
        (FP16, "TITAN RTX", ""),
        (BF16, "NVIDIA A100-SXM4-80GB", ""),
    ],
)
def test_half_precision_is_advised_where_it_is_not_used_in_the_format_of_the_device(product, device, said):
    rows = back_to_back(*[(MUL, 100)] * 8, (product, 150))
    verdict = triaged(rows, deviceProperties=[{"id": 0, "name": device}]).verdict
    assert verdict.findings[0].id == "kernel.unfused"
    assert ("half-precision" in verdict.fixes[0]) == bool(said)
    assert ("Or use" in verdict.proof) == bool(said)
    assert said in verdict.proof
    assert "cast" not in verdict.fixes[0]


def test_copies_that_lead_are_told_by_what_they_change():
    fix = triaged(back_to_back(*[(CAST, 60), (MOVE, 40)] * 8, (BF16, 150))).verdict.fixes[0]
    assert fix.startswith("cast less often: copies to another number format take at least 480 us per step; ")
    assert "in one layout: copies in the same format take at least 320 us per step; " in fix


@pytest.mark.parametrize("node", ["TanhBackward0", "TanhBackwardBackward0"])
def test_nothing_fuses_on_a_cpu_what_is_differentiated_twice(node):
    """torch.compile does not: a gradient with create_graph=True, then backward() through it."""
    begins = range(0, 900 * US, 100 * US)
    rows = [span("aten::mul", at, at + 95 * US, cat="cpu_op") for at in begins]
    rows += [span(f"autograd::engine::evaluate_function: {node}", 900 * US, 990 * US, cat="cpu_op")]
    found = triaged(rows).found
    assert ("kernel.unfused" in found) is (node == "TanhBackward0")
