"""How much faster a device multiplies in TF32 and in half precision: as its maker's figures say."""

import pytest

from profkit.findings.kernels import MATRIX_RATES

# Dense TFLOP/s with fp32 accumulation: FP32, TF32 (0: none, or not used by PyTorch), half (docs/sources.md, rule 8).
FIGURES = {
    "NVIDIA A100-SXM4-80GB": (19.5, 156, 312),
    "NVIDIA H100 80GB HBM3": (67, 494.5, 989.5),
    "NVIDIA H100 PCIe": (51, 378, 756.5),
    "NVIDIA H200": (67, 494.5, 989.5),
    "NVIDIA GB200": (80, 1250, 2500),
    "NVIDIA A10": (31.2, 62.5, 125),
    "NVIDIA A40": (37.4, 74.8, 149.7),
    "NVIDIA L4": (30.3, 60, 121),
    "NVIDIA L40": (90.5, 90.5, 181),
    "NVIDIA L40S": (91.6, 183, 366),
    "NVIDIA A10G": (31.5, 35, 70),
    "NVIDIA GeForce RTX 4090": (82.6, 82.6, 165.2),
    "Tesla V100-SXM2-16GB": (15.7, 0, 125),
    "Tesla T4": (8.1, 0, 65),
    "NVIDIA GeForce RTX 2080 Ti": (14.2, 0, 56.9),
    "AMD Instinct MI100": (256, 0, 1024),
    "AMD Instinct MI250X": (95.7, 0, 383),
    "AMD Instinct MI300X": (163.4, 0, 1307.4),
    "AMD Instinct MI355X": (157.3, 0, 2516.6),
}


@pytest.mark.parametrize(("name", "figures"), FIGURES.items(), ids=FIGURES)
def test_the_ratios_are_those_of_the_makers_figures(name, figures):
    fp32, tf32, half = figures
    rates = next(rates for pattern, rates in MATRIX_RATES if pattern.search(name))
    assert rates.tf32 == pytest.approx(tf32 / fp32, rel=0.02)
    assert rates.half == pytest.approx(half / fp32, rel=0.02)
