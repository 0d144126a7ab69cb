"""Names as traces write them, and the table against the ratios that `precision.fallback` has."""

import pytest

from profkit.findings.kernels import MATRIX_RATES
from profkit.model.kernel_names import Precision
from profkit.roof.roofline import _TABLE, peak_of


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
