"""Time, FLOPs and roofs of operators on drawn traces: what is counted, what fires, what stays quiet."""

import pytest
from msgspec.structs import replace

from profkit.analyzers.roof import ANALYZER
from profkit.analyzers.roof.shown import mfu_sentence, roof_summary, step_sentence
from profkit.findings.roof import ABOVE_ROOF, BELOW_ROOF
from profkit.model.documents.report import Report
from profkit.model.finding import Skipped
from profkit.model.kernel_names import Precision
from profkit.pipeline import analyse, triage_trace
from profkit.render.json.triage import report_to_dict
from profkit.render.markdown.triage import render as render_markdown
from profkit.render.terminal.triage import render as render_text
from profkit.testing import Row, kernel, launch, span, trace_of
from profkit.timeline import Facts
from tests.drawing import launched

A100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB", "numSms": 108}]}
BF16, FP32 = "c10::BFloat16", "float"
GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
MS = 10**6
# 2 * 4096 * 4096 * 4096 = 137.4 GFLOP: 440.5 us at 312 TFLOP/s
SQUARE = [[4096, 4096], [4096, 4096]]
ROOF_NS = 2 * 4096**3 / 312e12 * 1e9


def op(name, start_ns, end_ns, dims=None, *, kind=BF16, concrete=None, tid=1000, **more):
    args = dict(more)
    if dims is not None:
        strides = [_strides(size) for size in dims]
        args |= {
            "Input Dims": dims,
            "Input type": [kind] * len(dims),
            "Input Strides": strides,
            "Concrete Inputs": concrete or [""] * len(dims),
        }
    return Row(name=name, cat="cpu_op", start_ns=start_ns, end_ns=end_ns, tid=tid, args=args)


def _strides(sizes):
    out, stride = [], 1
    for size in reversed(sizes):
        out.insert(0, stride)
        stride *= size
    return out


def steps(n, length_ns):
    return [span(f"ProfilerStep#{step}", step * length_ns, (step + 1) * length_ns) for step in range(n)]


def products(n_steps, length_ns, each_ns, *, per_step=1, dims=SQUARE, name="aten::mm", gemm=GEMM, kind=BF16):
    """Steps of products one after another, each of one kernel."""
    rows, number = steps(n_steps, length_ns), 0
    for step in range(n_steps):
        for place in range(per_step):
            number += 1
            at = step * length_ns + place * 20_000
            start = step * length_ns + 100_000 + place * each_ns
            rows += [op(name, at, at + 10_000, dims, kind=kind)]
            rows += launched(gemm, at + 1000, start, start + each_ns, number)
    return rows


def measured(rows, **metadata):
    return ANALYZER.measure(Facts.of(trace_of(rows, **(metadata or A100))))


def test_mfu_is_flops_over_steps_and_peak():
    result = measured(products(4, 2 * MS, 880_000))
    assert result.flops() == 4 * 2 * 4096**3
    assert result.mfu == pytest.approx(4 * 2 * 4096**3 / (8e-3 * 312e12))
    assert result.hfu is None
    assert result.precision is Precision.BF16
    (family,) = result.families
    assert family.share == pytest.approx(ROOF_NS / 880_000)
    assert family.flop_per_s == pytest.approx(2 * 4096**3 / 880e-6)
    assert result.left_ns == pytest.approx(4 * (880_000 - ROOF_NS), abs=4)
    assert step_sentence(result) == "at the roof (bf16) this step takes 1.56 ms instead of 2.00 ms"
    assert mfu_sentence(result) == "MFU 22.0 % of 312 TFLOP/s (bf16, dense, A100 80 GB SXM)"
    assert ANALYZER.judge(result) == ()  # half of the roof is a good kernel


def test_slow_products_are_found_with_what_the_roof_leaves():
    (finding,) = ANALYZER.judge(measured(products(4, 2 * MS, 1_800_000)))
    assert finding.id == BELOW_ROOF.id
    assert finding.title == "matrix products run at 24.5 % of what the device can do"
    assert finding.recoverable_ns == pytest.approx(1_800_000 - ROOF_NS, abs=2)
    assert finding.evidence[1].statement == "at the roof (bf16) this step takes 641 us instead of 2.00 ms"


@pytest.mark.parametrize(
    ("kernel_name", "kind", "fix"),
    [
        ("pytorch_flash::flash_fwd_kernel", BF16, "fused already"),
        ("fmha_cutlassF_f32_aligned_64x64_rf_sm80", FP32, "in bf16 or fp16"),
        (GEMM, BF16, "choose a fused kernel"),
    ],
)
def test_the_fix_of_attention_fits_its_kernel(kernel_name, kind, fix):
    name, sizes = "aten::scaled_dot_product_attention", [[4, 16, 4096, 64]] * 3
    concrete = ["", "", "", "", "0.", "False", "", "False"]
    rows = steps(4, 100 * MS)
    for step in range(4):
        at = step * 100 * MS
        attend = op(name, at, at + 10_000, [*sizes, [], [], [], [], []], kind=kind, concrete=concrete)
        args = dict(attend.args) | {"Input type": [kind] * 3 + ["", "Scalar", "Scalar", "", "Scalar"]}
        rows += [replace(attend, args=args)]
        rows += launched(kernel_name, at + 1000, at + 100_000, at + 99 * MS, step + 1)
    (finding,) = ANALYZER.judge(measured(rows))
    assert finding.title.startswith("attention runs at ")
    assert fix in finding.fix


def test_work_above_its_roof_is_said_and_not_clipped():
    result = measured(products(4, 2 * MS, 400_000))
    (finding,) = ANALYZER.judge(result)
    assert finding.id == ABOVE_ROOF.id
    assert finding.evidence[0].statement.startswith("aten::mm takes 400 us a call, 90.8 % of the least")
    assert result.families[0].share == pytest.approx(1.10, abs=0.01)
    assert "at the roof" not in roof_summary(result)


def test_another_device_has_rates_and_no_roof():
    rows = products(4, 2 * MS, 1_800_000)
    result = measured(rows, deviceProperties=[{"id": 0, "name": "NVIDIA A100"}])
    assert (result.mfu, result.families[0].share) == (None, None)
    assert result.families[0].flop_per_s == pytest.approx(2 * 4096**3 / 1.8e-3)
    assert ANALYZER.judge(result) == ()
    assert "no peak is known" in roof_summary(result)


def test_the_report_says_it_in_one_line_and_in_the_headline():
    trace = trace_of(products(6, 2 * MS, 1_800_000), **A100)
    rank, verdict = triage_trace(trace)
    assert verdict.headline == (
        "90.0 % of the window is compute; matrix products run at 24.5 % of what the device can do;"
        " at the roof (bf16) this step takes 641 us"
    )
    assert verdict.findings[0].id == BELOW_ROOF.id
    assert rank.roof.startswith("MFU 22.0 % of 312 TFLOP/s")
    report = Report(verdict=verdict, ranks=(rank,), findings=rank.findings, skipped=rank.skipped)
    assert "  roof         MFU 22.0 % of 312 TFLOP/s" in render_text(report, width=100)
    assert "Roof: MFU 22.0 %" in render_markdown(report)
    assert report_to_dict(report)["ranks"][0]["roof"] == rank.roof


def test_where_the_number_format_is_the_limit_the_headline_has_no_roof_of_it():
    rows = products(6, 20 * MS, 18 * MS, gemm="ampere_sgemm_128x64_tn", kind=FP32)
    rank, verdict = triage_trace(trace_of(rows, **A100))
    assert verdict.findings[0].id == "precision.no_tf32"
    assert "at the roof" not in verdict.headline
    assert "at the roof (fp32) this step takes" in rank.roof


def test_where_kernels_are_the_limit_it_says_how_to_record_shapes():
    rows = [row for row in products(6, 2 * MS, 1_800_000) if row.cat != "cpu_op"]
    rows += [op("aten::mm", step * 2 * MS, step * 2 * MS + 9_000) for step in range(6)]
    rank, verdict = triage_trace(trace_of(rows, **A100))
    report = Report(verdict=verdict, ranks=(rank,), findings=rank.findings, skipped=rank.skipped)
    assert "  roof         operators were recorded without shapes" in render_text(report, width=100)


def test_without_shapes_it_says_how_to_record_them():
    rows = [row for row in products(4, 2 * MS, 880_000) if row.cat != "cpu_op"]
    bare = [op("aten::mm", step * 2 * MS, step * 2 * MS + 9_000) for step in range(4)]
    result = measured([*rows, *bare])
    assert isinstance(result, Skipped)
    assert "--shapes" in result.how_to_get


@pytest.mark.parametrize(
    ("gemm", "precision"),
    [
        ("ampere_sgemm_128x64_tn", Precision.FP32),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16", Precision.TF32),
        ("cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128>", Precision.TF32),
        ("gemm_of_some_kind", Precision.UNKNOWN),
    ],
)
def test_the_kernel_tells_fp32_from_tf32(gemm, precision):
    result = measured(products(4, 20 * MS, 10 * MS, gemm=gemm, kind=FP32))
    assert result.uses[0].precision is precision
    assert (result.mfu is None) is (precision is Precision.UNKNOWN)


def test_the_outermost_operator_counts_once():
    rows = [
        *steps(2, MS),
        op("aten::linear", 0, 50_000, [[64, 128], [256, 128]]),
        op("aten::matmul", 1_000, 40_000, [[64, 128], [128, 256]]),
        op("aten::mm", 2_000, 30_000, [[64, 128], [128, 256]]),
        *launched(GEMM, 3_000, 100_000, 110_000, 1),
        *launched("splitKreduce_kernel", 5_000, 110_000, 112_000, 2),
    ]
    (use,) = measured(rows).uses
    assert (use.operator, use.n_calls, use.flops, use.time_ns) == ("aten::linear", 1, 2 * 64 * 128 * 256, 12_000)


def test_under_autocast_the_product_inside_counts_and_the_cast_beside_it():
    rows = [
        *steps(2, MS),
        op("aten::linear", 0, 50_000, [[64, 128], [256, 128]], kind=FP32),
        op("aten::copy_", 1_000, 5_000, [[64, 128], [64, 128]], kind=FP32),
        *launched("elementwise_kernel", 2_000, 100_000, 104_000, 1),
        op("aten::linear", 10_000, 40_000, [[64, 128], [256, 128]]),
        op("aten::mm", 12_000, 30_000, [[64, 128], [128, 256]]),
        *launched(GEMM, 13_000, 110_000, 120_000, 2),
    ]
    uses = {use.operator: use for use in measured(rows).uses}
    assert set(uses) == {"aten::linear", "aten::copy_"}
    assert uses["aten::linear"].precision is Precision.BF16
    assert uses["aten::linear"].time_ns == 10_000


def test_work_run_again_in_backward_is_hfu_and_not_mfu():
    node = "autograd::engine::evaluate_function: CheckpointFunctionBackward"
    forward = {"Sequence number": 5, "Fwd thread id": 0}
    rows = [
        *steps(1, 4 * MS),
        op("aten::mm", 0, 10_000, SQUARE, **forward),
        *launched(GEMM, 1_000, 100_000, 900_000, 1),
        op(node, 20_000, 90_000, **{"Sequence number": 5, "Fwd thread id": 1}),
        op("aten::mm", 30_000, 40_000, SQUARE, **{"Sequence number": 6, "Fwd thread id": 0}),
        *launched(GEMM, 31_000, 900_000, 1_700_000, 2),
        op("aten::mm", 50_000, 60_000, SQUARE),
        *launched(GEMM, 51_000, 1_700_000, 2_500_000, 3),
    ]
    result = measured(rows)
    each = 2 * 4096**3
    assert (result.flops(), result.flops(is_recomputed=True)) == (2 * each, each)
    assert result.hfu == pytest.approx(1.5 * result.mfu)
    assert "HFU" in mfu_sentence(result)


def test_a_gradient_of_a_gradient_is_no_recomputation():
    node = "autograd::engine::evaluate_function: MmBackward0"
    other = [[4096, 4096], [4096, 8192]]  # what forward never multiplied
    rows = [
        *steps(1, 4 * MS),
        op("aten::mm", 0, 10_000, SQUARE, **{"Sequence number": 5, "Fwd thread id": 0}),
        *launched(GEMM, 1_000, 100_000, 900_000, 1),
        op(node, 20_000, 90_000, **{"Sequence number": 5, "Fwd thread id": 1}),
        op("aten::mm", 30_000, 40_000, other, **{"Sequence number": 6, "Fwd thread id": 0}),
        *launched(GEMM, 31_000, 900_000, 2_700_000, 2),
    ]
    result = measured(rows)
    assert result.flops(is_recomputed=True) == 0
    assert result.hfu is None


def test_kernels_without_an_operator_make_mfu_a_lower_bound():
    rows = products(4, 2 * MS, 800_000)
    rows += [kernel(GEMM, step * 2 * MS + MS, step * 2 * MS + 1_700_000, correlation=100 + step) for step in range(4)]
    result = measured(rows)
    assert result.matrix_known_share == pytest.approx(0.8 / 1.5)
    assert mfu_sentence(result).startswith("MFU at least ")


def test_where_most_products_are_unknown_there_is_no_mfu():
    rows = products(4, 2 * MS, 200_000)
    rows += [kernel(GEMM, step * 2 * MS + MS, step * 2 * MS + 1_700_000, correlation=100 + step) for step in range(4)]
    assert measured(rows).mfu is None


def test_an_operator_at_the_edge_has_all_of_its_time_or_none():
    trace = trace_of(products(4, 2 * MS, 880_000), **A100)
    low, high = trace.window_ns
    cut = replace(trace, window_ns=(low + 500_000, high - 1_500_000), steps=())
    result = ANALYZER.measure(Facts.of(cut))
    # the first product began before the window, the last ends after it
    assert (result.uses[0].n_calls, result.uses[0].time_ns) == (3, 3 * 880_000)
    assert result.above == ()


def test_without_steps_mfu_is_of_the_window():
    rows = [row for row in products(4, 2 * MS, 880_000) if not row.name.startswith("ProfilerStep")]
    result = measured(rows)
    assert mfu_sentence(result).startswith("MFU over the window ")
    assert "this window takes" in step_sentence(result)


def test_templates_of_the_compiler_are_products_that_are_not_known():
    rows = products(4, 2 * MS, 800_000)
    for step in range(4):
        at = step * 2 * MS + MS
        rows.append(kernel("triton_tem_fused_mm_3", at, at + 200_000, correlation=100 + step))
    assert measured(rows).matrix_known_share == pytest.approx(0.8)


def test_tokens_per_second_are_those_that_the_script_told():
    rows = products(4, 2 * MS, 880_000)
    for step in range(4):
        at = (step + 1) * 2 * MS - 2000
        rows.append(Row(name="profkit.tokens", cat="profkit", start_ns=at, end_ns=at, ph="C", args={"tokens": 1000}))
    result = measured(rows)
    assert result.told == {"tokens": 4000}
    assert "; 500,000 tokens/s; " in roof_summary(result)


def test_products_from_the_cache_are_at_their_roof_at_most():
    # 16 x 4096 by 4096 x 4096: 34 MB are 16.5 us of memory, 0.5 GFLOP 1.7 us of arithmetic
    thin = {"dims": [[16, 4096], [4096, 4096]]}
    result = measured(products(4, MS, 10_000, **thin))
    assert (result.families[0].share, result.above) == (1.0, ())
    result = measured(products(4, MS, 33_000, **thin))
    assert result.families[0].share == pytest.approx(0.5, abs=0.01)
    assert measured(products(4, MS, 1_500, **thin)).above


def test_a_graph_of_unknown_work_has_no_roof_to_speak_of():
    rows = products(4, 2 * MS, 200_000, dims=[[512, 512], [512, 512]])
    rows += [
        kernel("other", step * 2 * MS + MS, step * 2 * MS + 1_900_000, correlation=100 + step) for step in range(4)
    ]
    result = measured(rows)
    assert ANALYZER.judge(result) == ()
    assert roof_summary(result).endswith("FLOPs or bytes are known of 18.2 % of compute time only")


def test_on_a_cpu_operators_have_rates():
    rows = [*steps(3, MS)]
    for step in range(3):
        at = step * MS
        rows += [
            op("aten::linear", at + 10_000, at + 510_000, [[64, 128], [256, 128]], kind=FP32),
            op("aten::addmm", at + 20_000, at + 500_000, [[64, 128], [64, 128], [128, 256]], kind=FP32),
            op("aten::relu", at + 600_000, at + 900_000, [[64, 256]], kind=FP32),
        ]
    result = measured(rows, schemaVersion=1)
    by_name = {use.operator: use for use in result.uses}
    assert set(by_name) == {"aten::linear", "aten::relu"}
    assert by_name["aten::linear"].time_ns == 1_500_000
    assert result.flops() == 3 * 2 * 64 * 128 * 256
    assert result.mfu is None


def on_cpu(each_ns, *more):
    """Steps of a product in fp32, 137.4 GFLOP, without any device; the first is left out as start-up."""
    rows = steps(4, 2000 * MS)
    for step in range(4):
        at = step * 2000 * MS + MS
        rows += [op("aten::mm", at, at + each_ns, SQUARE, kind=FP32)]
    return [*rows, *more]


def test_products_faster_than_any_cpu_ran_elsewhere():
    assert measured(on_cpu(1500 * MS), any="").flops() == 3 * 2 * 4096**3  # 91.6 GFLOP/s
    skipped = measured(on_cpu(MS), any="")  # 137 TFLOP/s
    assert isinstance(skipped, Skipped)
    assert "ran on a device whose kernels are not in the trace" in skipped.reason


def test_operators_that_launch_kernels_nobody_recorded_have_no_rates():
    call = launch(2002 * MS, 2003 * MS, correlation=1)
    assert isinstance(measured(on_cpu(1500 * MS, call), any=""), Skipped)


def test_there_is_no_mfu_where_operators_are_above_their_roof():
    result = measured(products(4, 2 * MS, round(ROOF_NS * 0.9)))
    assert result.above
    assert result.mfu is None
    assert mfu_sentence(result) == ""


def test_where_the_roof_leaves_little_the_line_says_so_in_short():
    """Products take 880 us, at the roof 440 us: that is 22 % of a step of 2 ms, and 2.2 % of one of 20 ms."""
    assert "at the roof (bf16) this step takes 1.56 ms instead of 2.00 ms" in roof_summary(
        measured(products(4, 2 * MS, 880_000))
    )
    said = roof_summary(measured(products(4, 20 * MS, 880_000)))
    assert said.endswith("kernels at their roof would shorten this step by 2.2 % only")


def test_mfu_is_of_the_format_that_does_most():
    """A model in fp32 with an eighth of its FLOPs in tf32 is no model in tf32, of which it would reach a fraction."""
    main, few = [[4096, 4096], [4096, 4096]], [[4096, 4096], [4096, 512]]
    rows = products(4, 20 * MS, 9 * MS, dims=main, gemm="ampere_sgemm_128x128_tn", kind=FP32)
    for step in range(4):
        at, start = step * 20 * MS + 50_000, step * 20 * MS + 10 * MS
        tf32 = "ampere_tf32_s1688gemm_tf32_128x128_ldg8_f2f_stages_32x3_tn"
        rows += [
            op("aten::mm", at, at + 10_000, few, kind=FP32),
            *launched(tf32, at + 1000, start, start + MS, 100 + step),
        ]
    result = measured(rows)
    assert result.precision is Precision.FP32
    assert result.mfu == pytest.approx(4 * 2 * 4096**3 * 1.125 / (80e-3 * 19.5e12))


def test_kernels_of_a_trace_without_calls_have_no_operator():
    """Operators with shapes, and kernels of which nothing tells who launched them."""
    rows = [row for row in products(2, 1_000_000, 500_000) if row.cat != "cuda_runtime"]
    trace = trace_of(rows)
    assert len(trace.calls) == 0
    result = ANALYZER.measure(Facts.of(trace))
    assert isinstance(result, Skipped) or result.known_ns == 0


def test_the_lines_of_slow_products_are_those_that_the_roof_leaves_most_of():
    """Two products of nearly the same time: the one that takes twice its least, and one that takes 16 times."""
    rows = steps(4, 2 * MS)
    for step in range(4):
        at = step * 2 * MS
        rows += [span("net.py(5): wide", at + 10, at + 15_000, cat="python_function")]
        rows += [span("net.py(9): narrow", at + 20_000, at + 35_000, cat="python_function")]
        for place, (dims, length) in enumerate(((SQUARE, 880_000), ([[2048, 2048], [2048, 2048]], 900_000))):
            begin = at + place * 20_000 + 1000
            start = at + 100_000 + place * 880_000
            rows += [op("aten::mm", begin, begin + 10_000, dims, tid=0)]
            rows += launched(GEMM, begin + 1000, start, start + length, 2 * step + place + 1)
    rows = [
        replace(row, tid=0) if row.cat in ("cuda_runtime", "python_function", "user_annotation") else row
        for row in rows
    ]
    (found,) = [one for one in analyse(trace_of(rows, **A100)).rank.findings if one.id == BELOW_ROOF.id]
    narrow, wide = found.places
    left = (880_000 - ROOF_NS, 900_000 - ROOF_NS / 8)
    assert (narrow.place.name, wide.place.name) == ("narrow() (net.py:9)", "wide() (net.py:5)")
    assert narrow.share == pytest.approx(left[1] / sum(left), abs=0.001)
    assert wide.ns == pytest.approx(4 * left[0], abs=8)
