"""Least times by hand."""

import pytest

from profkit.model.kernel_names import Precision
from profkit.roof.formulas.work import Work
from profkit.roof.roofline import Limit, Peak, peak_of, roof_of

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
