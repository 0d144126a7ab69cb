"""Least times by hand; peaks of devices by their names as traces write them, in docs/roof.md and in ratios."""

import pytest

from profkit.findings.kernels import MATRIX_RATES
from profkit.model.kernel_names import Precision
from profkit.roof.formulas.work import Work
from profkit.roof.roofline import _TABLE, Limit, Peak, peak_of, roof_of
from tests.conftest import ROOT

# 100 TFLOP/s, 1 TB/s, a cache of 1 MB
PEAK = Peak(name="a device", flop_per_s={Precision.BF16: 1e14}, bytes_per_s=1e12, cache_bytes=10**6, source="drawn")


def work(family="matmul", flops=None, n_bytes=None):
    return Work(family=family, flops=flops, least_flops=flops, n_bytes=n_bytes, precision=Precision.BF16)


@pytest.mark.parametrize(
    ("flops", "n_bytes", "least_ns", "limit"),
    [
        (10**11, 10**8, 10**6, Limit.COMPUTE),  # 1 ms against 0.1 ms
        (10**9, 10**9, 10**6, Limit.MEMORY),  # 10 us against 1 ms
        (10**9, None, 10**4, Limit.COMPUTE),
    ],
)
def test_the_slower_of_two_limits_is_the_roof(flops, n_bytes, least_ns, limit):
    roof = roof_of(work(flops=flops, n_bytes=n_bytes), PEAK, Precision.BF16)
    assert roof.least_ns == pytest.approx(least_ns)
    assert roof.limit is limit


def test_what_may_be_in_the_cache_is_not_sure_to_wait_for_memory():
    roof = roof_of(work(flops=10**8, n_bytes=2 * 10**6), PEAK, Precision.BF16)
    assert (roof.least_ns, roof.sure_ns) == (pytest.approx(2000), pytest.approx(1000))
    roof = roof_of(work(flops=10**8, n_bytes=10**7), PEAK, Precision.BF16)
    assert (roof.least_ns, roof.sure_ns) == (pytest.approx(10_000), pytest.approx(8000))


def test_what_a_call_finds_in_the_cache_and_leaves_there_does_not_wait_for_memory():
    """In a reference trace an RTX 4090 squares 134 MB in 131 us, with a cache of 72 MiB."""
    roof = roof_of(work("elementwise", 33_554_432, 268_435_456), peak_of("NVIDIA GeForce RTX 4090"), Precision.FP32)
    assert roof.sure_ns < 131_340 < roof.least_ns


def test_what_a_causal_mask_hides_takes_no_time():
    masked = Work(family="attention", flops=2 * 10**11, least_flops=10**11, n_bytes=10, precision=Precision.BF16)
    assert roof_of(masked, PEAK, Precision.BF16).least_ns == pytest.approx(10**6)


@pytest.mark.parametrize(
    ("given", "precision"),
    [
        (work(flops=10**9, n_bytes=10**9), Precision.FP32),  # no peak of that format
        (work(flops=10**9, n_bytes=10**9), Precision.UNKNOWN),
        (work(flops=None, n_bytes=10**9), Precision.BF16),  # attention of packed sequences
        (work("elementwise", flops=10**9, n_bytes=2 * 10**6), Precision.BF16),
        (work("elementwise", flops=10**9), Precision.BF16),
    ],
)
def test_what_is_not_known_has_no_roof(given, precision):
    assert roof_of(given, PEAK, precision) is None


def test_elementwise_operators_have_the_roof_of_memory_alone():
    assert roof_of(work("elementwise", 10**15, 10**9), PEAK, Precision.FP32).least_ns == pytest.approx(10**6)


@pytest.mark.parametrize(
    ("name", "is_called", "bf16_tera", "giga"),
    [
        ("Tesla V100-SXM2-16GB", "V100 SXM2", None, 900),
        ("Tesla V100-DGXS-32GB", "V100 SXM2", None, 900),
        ("Tesla V100-PCIE-32GB", "V100 PCIe", None, 900),
        ("Tesla T4", "T4", None, 320),
        ("NVIDIA A10", "A10", 125, 600),
        ("NVIDIA A10G", "A10G", 70, 600),
        ("NVIDIA L4", "L4", 121, 300),
        ("NVIDIA A30", "A30", 165, 933),
        ("NVIDIA A40", "A40", 149.7, 696),
        ("NVIDIA RTX A6000", "RTX A6000", 154.8, 768),
        ("NVIDIA GeForce RTX 3090", "GeForce RTX 3090", 71, 936),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090", 165.2, 1008),
        ("NVIDIA GH200 480GB", "GH200 96 GB", 989.4, 4000),
        ("NVIDIA L40", "L40", 181, 864),
        ("NVIDIA L40S", "L40S", 362, 864),
        ("A100-SXM4-40GB", "A100 40 GB", 312, 1555),
        ("NVIDIA A100-PCIE-40GB", "A100 40 GB", 312, 1555),
        ("NVIDIA A100-SXM4-80GB", "A100 80 GB SXM", 312, 2039),
        ("NVIDIA A800-SXM4-80GB", "A100 80 GB SXM", 312, 2039),
        ("NVIDIA A100 80GB PCIe", "A100 80 GB PCIe", 312, 1935),
        ("NVIDIA H100 80GB HBM3", "H100 SXM", 989.4, 3350),
        ("NVIDIA H100 PCIe", "H100 PCIe", 756.5, 2000),
        ("NVIDIA H100 NVL", "H100 NVL", 835.5, 3900),
        ("NVIDIA H200", "H200 SXM", 989.4, 4800),
        ("NVIDIA B200", "B200", 2250, 8000),
        ("NVIDIA GB200", "GB200, each GPU", 2500, 8000),
        ("AMD Instinct MI210", "MI210", 181, 1638.4),
        ("AMD Instinct MI250X", "MI250X, each die", 191.5, 1638.4),
        ("AMD Instinct MI250X/MI250", "MI250X, each die", 191.5, 1638.4),
        ("AMD Instinct MI300A", "MI300A", 980.6, 5300),
        ("AMD Instinct MI300X", "MI300X", 1307.4, 5300),
        ("AMD Instinct MI325X", "MI325X", 1307.4, 6000),
        ("AMD Instinct MI355X", "MI355X", 2516.6, 8000),
    ],
)
def test_a_device_is_known_by_its_name(name, is_called, bf16_tera, giga):
    peak = peak_of(name)
    assert peak.name == is_called
    assert peak.flop_per_s.get(Precision.BF16) == (bf16_tera * 1e12 if bf16_tera else None)
    assert peak.bytes_per_s == giga * 1e9
    assert peak.source


@pytest.mark.parametrize(
    "name",
    ["", "CPU", "NVIDIA A100", "NVIDIA H100", "AMD Radeon Graphics", "NVIDIA PG509-210", "NVIDIA GeForce RTX 4090 D"],
)
def test_a_name_that_may_be_several_devices_has_no_peak(name):
    assert peak_of(name) is None


@pytest.mark.parametrize("row", _TABLE, ids=[row[1] for row in _TABLE])
def test_the_table_has_the_ratios_of_the_finding_on_precision(row):
    _, name, (_, fp32, tf32, fp16, *_), *_ = row
    rates = next(rates for pattern, rates in MATRIX_RATES if pattern.search(name))
    rounded = 0.07  # data sheets of H100 NVL and GB200 round fp32 to 60 and 80
    assert fp16 / fp32 == pytest.approx(rates.half, rel=rounded)
    if rates.tf32:
        assert tf32 / fp32 == pytest.approx(rates.tf32, rel=rounded)


def peaks_table():
    headers = ("device", "fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "GB/s", "MiB", "source")
    rows = [
        (name, *(f"{rate:g}" if rate else "-" for rate in rates), f"{giga:g}", f"{mebi:g}", source)
        for _, name, rates, giga, mebi, source in _TABLE
    ]
    rule = "|".join(["---", *["---:"] * 9, "---"])
    lines = [f"| {' | '.join(cells)} |" for cells in (headers, *rows)]
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def test_the_document_has_the_peaks_of_the_program():
    assert peaks_table() in (ROOT / "docs/roof.md").read_text(encoding="utf-8")
