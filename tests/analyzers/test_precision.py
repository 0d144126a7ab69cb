"""What a cheaper number format saves, by what the device can do."""

import pytest
from msgspec.structs import replace

from profkit.analyzers.precision import judge, measure
from profkit.model.finding import SEVERITY_FROM, Severity
from profkit.model.kernel_names import told
from profkit.testing import kernel, launch, operator, span
from tests.drawing import BASE, US, back_to_back, facts_of, triaged

A100 = "NVIDIA A100-SXM4-80GB"
SGEMM = "ampere_sgemm_128x128_tn"
TF32 = "cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4"
BF16 = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
GEMV = "void gemv2T_kernel_val<int, int, float, float, float>(int)"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_mul<float>>"


def measured(*work, rows=(), **device):
    """What is measured of these kernels back to back, and of these rows, on a device of which that is told."""
    told = [{"id": 0, **device}] if device.get("name") else []
    return measure(facts_of([*rows, *back_to_back(*work)], deviceProperties=told))


def found(*work, device="", **more):
    """The id and the saved us per step of each finding."""
    return [(one.id, one.recoverable_ns // US) for one in judge(measured(*work, name=device, **more))]


def verdict_on(*work, device=""):
    return triaged(back_to_back(*work), deviceProperties=[{"id": 0, "name": device}] if device else []).verdict


@pytest.mark.parametrize(
    ("device", "told"),
    [
        (A100, [("precision.no_tf32", 700)]),  # 800 x (1 - 1/8)
        ("NVIDIA A10", [("precision.no_tf32", 400)]),
        ("", [("precision.no_tf32", 700)]),  # the kernel's name says Ampere
        ("NVIDIA GeForce RTX 4090", [("precision.fallback", 450)]),  # TF32 is no faster there: half precision is, 2x
        ("Tesla V100-SXM2-16GB", [("precision.fallback", 750)]),  # no TF32 at all
        ("Quadro RTX 6000", [("precision.fallback", 750)]),  # 130.5 against 16.3: full rate, as on T4
        ("NVIDIA GeForce RTX 2080 Ti", [("precision.fallback", 650)]),
        ("NVIDIA RTX 4000 Ada Generation", [("precision.no_tf32", 400)]),
        ("AMD Instinct MI250X", [("precision.fallback", 650)]),
        ("AMD Instinct MI355X", [("precision.fallback", 800)]),  # 2,516 against 157
    ],
)
def test_what_fp32_products_could_save_depends_on_the_device(device, told):
    assert found((SGEMM, 800), (MUL, 100), device=device) == told


SCUDNN = "volta_scudnn_128x128_relu_small_nn_v1"


@pytest.mark.parametrize(
    ("device", "told", "saved"),
    [
        ({"name": "NVIDIA T1000"}, "float16", 400),  # TU117: no tensor cores, twice the rate
        ({"name": "NVIDIA T600 Laptop GPU", "computeMajor": 7, "computeMinor": 5}, "float16", 400),
        ({"name": "Tesla P100-PCIE-16GB"}, "float16", 400),
        ({"name": "Quadro GP100", "computeCapability": "6.0"}, "float16", 400),
        ({"name": "Xavier", "computeMajor": 7, "computeMinor": 2}, "float16", 700),
        ({"name": "NVIDIA RTX of tomorrow", "computeMajor": 12, "computeMinor": 0}, "bfloat16", 750),
        ({"name": "AMD Radeon of tomorrow", "computeMajor": 7, "computeMinor": 1}, "bfloat16", 750),
    ],
    ids=lambda value: value["name"] if isinstance(value, dict) else str(value),
)
def test_a_device_that_no_table_knows_has_the_formats_of_its_compute_capability(device, told, saved):
    (one,) = judge(measured((SCUDNN, 800), **device))
    assert (one.id, one.recoverable_ns // US) == ("precision.fallback", saved)
    assert f"dtype=torch.{told}" in one.fix
    assert f"dtype=torch.{told}" in one.proof
    said = " ".join((one.fix, *(tool.purpose for tool in one.next_tools)))
    assert saved > 400 or "tensor cores" not in said  # 2x is what half the bytes give


@pytest.mark.parametrize(
    "device", [{"name": "Quadro P620", "computeCapability": "6.1"}, {"name": "Tesla P4"}, {"name": "GeForce GTX 1080"}]
)
def test_half_precision_is_no_advice_where_a_device_computes_slower_in_it(device):
    """Compute capability 6.1 has fp16 at 1/64 of the rate of fp32."""
    assert judge(measured((SCUDNN, 800), **device)) == ()


def test_kernels_that_any_device_runs_do_not_say_that_it_has_tf32():
    assert found(("sgemm_128x128_nn", 800)) == [("precision.fallback", 750)]


def test_from_tf32_half_precision_saves_half_not_fifteen_sixteenths():
    assert found((TF32, 800), device=A100) == [("precision.fallback", 400)]


CONVOLUTION = "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int)"


def test_where_tf32_is_on_nobody_is_told_to_switch_it_on():
    """Of products: what is left in fp32 found no kernel of the other kind. Of convolutions TF32 is the default."""
    assert found((SGEMM, 400), (TF32, 400), device=A100) == [("precision.fallback", 575)]  # 400 x 15/16 + 400 / 2
    assert found((CONVOLUTION, 800), device=A100) == [("precision.fallback", 750)]
    assert found((CONVOLUTION, 400), (SGEMM, 400), device=A100) == [("precision.no_tf32", 350)]  # its default is off


def test_convolutions_without_tensor_cores_are_told_channels_last():
    (one,) = judge(measured((CONVOLUTION, 400), (TF32, 400), name=A100))
    assert "channels_last" in one.fix
    assert "set_float32_matmul_precision" not in one.fix


def test_a_plain_product_that_a_convolution_launches_is_one():
    around = operator("aten::cudnn_convolution", BASE - 10**7, BASE + 10**7)
    assert found((SGEMM, 800), rows=[around], device=A100) == [("precision.fallback", 750)]


DGEMM = "void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>(Params)"
ADD64 = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<double>>"


def test_double_precision_is_named_and_never_healthy():
    assert found((DGEMM, 600), (ADD64, 200)) == [("precision.fp64", 787)]  # 800 less 1/64 of it
    assert found((ADD64, 200), (BF16, 600)) == [("precision.fp64", 196)]
    assert found((MUL, 200), (BF16, 600)) == []
    verdict = verdict_on((DGEMM, 900))
    assert not verdict.is_healthy
    assert verdict.findings[0].id == "precision.fp64"


def test_a_product_with_a_vector_gains_nothing_from_tf32_and_half_from_half_the_bytes():
    assert found((GEMV, 800), (TF32, 100), device=A100) == [("precision.fallback", 450)]
    assert found((GEMV, 400), (SGEMM, 400), device=A100) == [("precision.no_tf32", 350)]


def test_fused_attention_chooses_for_itself():
    fused = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel)"
    assert found((fused, 800), device=A100) == [("precision.fallback", 750)]
    assert found((fused, 400), (SGEMM, 400), device=A100) == [("precision.no_tf32", 350)]


def test_among_half_precision_it_is_a_fallback():
    assert found((SGEMM, 400), (BF16, 400), device=A100)[0][0] == "precision.fallback"


def test_below_a_fiftieth_of_the_window_tf32_is_not_worth_a_word():
    result = measured((SGEMM, 800), name=A100)
    window = result.scope.window_ns
    for saved, fires in ((0.0201, True), (0.0199, False)):
        covered = round(window * saved * 8 / 7)
        told = judge(replace(result, allowable_ns=covered))
        assert ("precision.no_tf32" in {finding.id for finding in told}) == fires


def test_the_larger_gain_is_the_headline_and_its_change_is_tried():
    """450 us of fp32 products save up to 394 us in TF32; fusing 500 us of elementwise kernels saves up to 400."""
    verdict = verdict_on((SGEMM, 450), *[(MUL, 100)] * 5, device=A100)
    assert [finding.id for finding in verdict.findings] == ["kernel.unfused", "precision.no_tf32"]
    verdict = verdict_on((SGEMM, 600), *[(MUL, 100)] * 4, device=A100)
    assert [finding.id for finding in verdict.findings] == ["precision.no_tf32", "kernel.unfused"]
    assert "without TF32" in verdict.headline
    assert verdict.next_tool.command == "profkit try --only tf32 -- python train.py"
    assert "set_float32_matmul_precision('high')" in verdict.fixes[0]


def test_a_larger_gain_stands_before_a_smaller_one_whatever_the_headline_is():
    """Communication has 30 % of each step, products in fp32 45 % and copies 4 %: TF32 gives more than copies."""
    rows, number = [], 0
    for step in range(8):
        begin = BASE + step * 1000 * US
        rows.append(span(f"ProfilerStep#{step}", begin, begin + 1000 * US))
        parts = (("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0, 300), (SGEMM, 360, 810), ("", 320, 360))
        for name, first, last in parts:
            number += 1
            asked = BASE - 5000 * US + number * 10 * US
            row = kernel(name, begin + first * US, begin + last * US, correlation=number, bytes=10**6)
            rows.append(row if name else replace(row, name="Memcpy HtoD (Pageable -> Device)", cat="gpu_memcpy"))
            call = "cudaLaunchKernel" if name else "cudaMemcpyAsync"
            rows.append(launch(asked, asked + US, correlation=number, name=call))
    verdict = triaged(rows).verdict
    assert [one.id for one in verdict.findings] == ["comm.exposed", "precision.no_tf32", "h2d.exposed"]
    assert [fix.split()[0] for fix in verdict.fixes[1:]] == ["call", "use"]


def test_no_weight_is_called_low_beside_a_large_share():
    for work in ([(TF32, 900)], [(SGEMM, 900)], [(SGEMM, 500), (BF16, 400)], [("sgemm_32", 300)]):
        for one in triaged(back_to_back(*work)).found.values():
            assert one.severity is not Severity.LOW or one.fraction < SEVERITY_FROM[Severity.HIGH]


@pytest.mark.parametrize(
    ("name", "device", "command"),
    [
        ("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>", A100, "profkit try --only bf16"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention)", A100, "profkit try --only bf16"),
        ("ampere_sgemm_128x128_tn", A100, "profkit try --only tf32"),
        ("volta_sgemm_128x64_tn", "Tesla V100-SXM2-16GB", "profkit ncu --kernel volta_sgemm_128x64_tn"),
        ("gemm_kernel_float_of_mine", A100, "profkit ncu --kernel gemm_kernel_float_of_mine"),
    ],
)
def test_whether_tensor_cores_multiply_is_asked_where_the_name_does_not_tell(name, device, command):
    verdict = verdict_on((name, 900), device=device)
    found = [one for one in verdict.findings if one.id.startswith("precision.")]
    for one in found:
        assert one.next_tools[0].command.startswith(command)
        assert ("tensor cores at all" in one.next_tools[0].purpose) is (told(name).on_matrix_units is None)
    assert found or told(name).on_matrix_units is None
